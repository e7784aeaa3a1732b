"""Debian packages fetched by apt under a configuration of our own, and unpacked: nothing is installed.

apt keeps its lists and archives in the user's cache, verifies what it reads by Debian's keyring, and takes the proxy
and the like from the machine's own configuration. It needs no root. Only the machine's list of installed packages is
read besides, to know which shared libraries are here already.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from xskit.vm import Say
from xskit.vm.errors import FetchError
from xskit.vm.places import vm_folder

__all__ = ["Apt", "Suite", "debian_release", "unpack"]


_ROOM_BYTES = 1 << 30
"""Lists, a package of 170 MB, and that unpacked."""

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_MIRRORS = {"security": "http://deb.debian.org/debian-security", "": "http://deb.debian.org/debian"}

# Hooks would act on the machine; they are cleared after the machine's own configuration has been read (`-c`).
_CONFIGURATION = """\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear DPkg::Pre-Invoke;
#clear DPkg::Post-Invoke;
#clear DPkg::Pre-Install-Pkgs;
Dir::Etc::sourcelist "{folder}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
Dir::State "{folder}/state";
Dir::State::lists "{folder}/lists";
Dir::State::status "{status}";
Dir::Cache "{folder}/cache";
Dir::Cache::archives "{folder}/archives";
Dir::Log "{folder}";
APT::Architecture "amd64";
APT::Architectures "amd64";
APT::Install-Recommends "false";
APT::Get::List-Cleanup "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Acquire::http::Timeout "20";
"""


@dataclass(frozen=True)
class Suite:
    """One suite of Debian, by the name that apt knows it by."""

    name: str

    @property
    def line(self) -> str:
        """Its line in a sources.list."""
        mirror = _MIRRORS["security" if self.name.endswith("-security") else ""]
        return f"deb [signed-by={_KEYRING}] {mirror} {self.name} main"


@dataclass(frozen=True)
class Package:
    """One version of a package, as the lists have it."""

    name: str
    version: str
    megabytes: float


class Apt:
    """apt with lists of its own for some suites.

    Args:
        name: of its folder in the cache.
        suites: to read.
        say: told what is going on, one line a step.

    Raises:
        FetchError: apt, dpkg-deb or Debian's keyring is missing.
    """

    def __init__(self, name: str, suites: Sequence[Suite], say: Say) -> None:
        for program in ("apt-get", "apt-cache", "dpkg-deb"):
            if shutil.which(program) is None:
                raise FetchError(
                    f"{program} is missing: kernels are fetched as Debian packages",
                    remedy="xskit vm kernels add BZIMAGE --modules DIR (a kernel of your own)",
                )
        if not _KEYRING.exists():
            raise FetchError(
                f"{_KEYRING} is missing: without it nothing from Debian can be verified",
                remedy="apt-get install debian-archive-keyring",
            )
        self._say = say
        self._folder = vm_folder("apt") / name
        for part in ("state", "lists/partial", "cache", "archives/partial"):
            (self._folder / part).mkdir(parents=True, exist_ok=True)
        (self._folder / "sources.list").write_text("".join(f"{suite.line}\n" for suite in suites))
        self._configuration = self._folder / "apt.conf"
        status = Path("/var/lib/dpkg/status")
        self._configuration.write_text(
            _CONFIGURATION.format(folder=self._folder, status=status if status.exists() else "/dev/null")
        )

    @property
    def has_lists(self) -> bool:
        """Whether lists have been fetched before."""
        return any((self._folder / "lists").glob("*_Packages*"))

    def update(self) -> None:
        """Fetch the lists anew where they have changed.

        Raises:
            FetchError: no connection, or a signature that does not verify.
        """
        self._say("reading Debian's package lists")
        self._run("update", "-q", "--error-on=any")

    def packages(self, pattern: str) -> list[Package]:
        """All packages whose name matches a regular expression as a whole, in every version there is."""
        names = [
            line.split(" - ")[0]
            for line in self._cache("search", "--names-only", f"^{pattern}$").splitlines()
            if re.fullmatch(pattern, line.split(" - ")[0])
        ]
        if not names:
            return []
        return _parse_show(self._cache("show", *names))

    def download(self, names: Sequence[str]) -> list[Path]:
        """Fetch packages, without what they depend on; the files stay until `clean`."""
        self.clean()
        self._run("download", "-q", *names, cwd=self._folder / "archives")
        return sorted((self._folder / "archives").glob("*.deb"))

    def download_with_dependencies(self, names: Sequence[str]) -> list[Path]:
        """Fetch packages and those that they depend on and that are not installed here; they stay likewise."""
        self.clean()
        self._run("install", "-q", "-y", "--no-install-recommends", "--download-only", *names)
        return sorted((self._folder / "archives").glob("*.deb"))

    def clean(self) -> None:
        """Remove the fetched files, and what a fetch that was broken off has left: it may be any package's."""
        for file in (self._folder / "archives").glob("*.deb"):
            file.unlink()

    def _cache(self, *arguments: str) -> str:
        return self._execute(["apt-cache", "-c", str(self._configuration), *arguments])

    def _run(self, *arguments: str, cwd: Path | None = None) -> None:
        _require_room(self._folder)
        self._execute(["apt-get", "-c", str(self._configuration), *arguments], cwd=cwd)

    def _execute(self, argv: Sequence[str], cwd: Path | None = None) -> str:
        environment = {**os.environ, "LC_ALL": "C", "DEBIAN_FRONTEND": "noninteractive"}
        done = subprocess.run(argv, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            raise explain_apt(done.stdout + done.stderr)
        return done.stdout


def _require_room(folder: Path) -> None:
    """apt does not end where its lists find no room: one of its helpers dies, and it waits for it for ever.

    Raises:
        FetchError: there is less room than a kernel takes with the lists of its suites.
    """
    free = shutil.disk_usage(folder).free
    if free < _ROOM_BYTES:
        raise FetchError(
            f"{folder} has room for {free >> 20} MiB, and what is fetched from Debian takes {_ROOM_BYTES >> 20} MiB",
            remedy="export XSKIT_CACHE=/var/tmp/xskit",
        )


def _parse_show(text: str) -> list[Package]:
    """The stanzas of `apt-cache show`."""
    found = []
    for stanza in text.split("\n\n"):
        fields = dict(re.findall(r"^(Package|Version|Size): (.*)$", stanza, re.MULTILINE))
        if "Package" in fields:
            found.append(Package(fields["Package"], fields["Version"], int(fields.get("Size", 0)) / 1e6))
    return found


_OFFLINE = ("Could not resolve", "Temporary failure resolving", "Could not connect", "Connection timed out",
            "Network is unreachable", "Unable to connect", "Connection failed")  # fmt: skip
_UNSIGNED = ("NO_PUBKEY", "is not signed", "signatures were invalid", "BADSIG", "EXPKEYSIG")


def explain_apt(output: str) -> FetchError:
    """The error behind what a failed apt has printed."""
    complaints = [line.strip() for line in output.splitlines() if line.startswith(("E:", "W:", "Err:"))]
    complaints.sort(key=lambda line: not line.startswith("E:"))  # a warning comes first, and is seldom the reason
    first = complaints[0] if complaints else output.strip().splitlines()[-1] if output.strip() else "no reason given"
    if reason := _line_with(output, _UNSIGNED):
        return FetchError(
            f"a package list does not verify by Debian's keyring: {reason}",
            remedy="apt-get install --only-upgrade debian-archive-keyring",
        )
    if reason := _line_with(output, _OFFLINE):
        return FetchError(
            f"Debian's servers cannot be reached: {reason}",
            remedy="xskit vm kernels add BZIMAGE --modules DIR (a kernel of your own)",
        )
    if reason := _line_with(output, ("No space left",)):
        return FetchError(f"apt could not write to the cache: {reason}", remedy="export XSKIT_CACHE=/var/tmp/xskit")
    return FetchError(f"apt failed: {first}")


def _line_with(output: str, signs: Iterable[str]) -> str | None:
    """The first line that has one of the signs: apt names the address on one line, and the reason on the next."""
    return next((line.strip() for line in output.splitlines() if any(sign in line for sign in signs)), None)


def unpack(packages: Iterable[Path], target: Path) -> None:
    """Unpack packages into a folder (dpkg-deb -x); no script of theirs runs.

    Raises:
        FetchError: a package is damaged, or there is no room.
    """
    for package in packages:
        done = subprocess.run(
            ["dpkg-deb", "-x", str(package), str(target)], capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            raise FetchError(f"{package.name} cannot be unpacked: {done.stderr.strip() or 'no reason given'}")


def debian_release() -> str | None:
    """The code name of the Debian this is ("bookworm"); None on other systems."""
    try:
        text = Path("/etc/os-release").read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    fields = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', text, re.MULTILINE))
    return fields.get("VERSION_CODENAME") if fields.get("ID") == "debian" else None
