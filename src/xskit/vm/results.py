"""What a command leaves in $XSKIT_OUT, put into the user's folder."""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

from xskit.errors import UsageError
from xskit.vm.errors import GuestError

__all__ = ["bring_back", "require_folder"]


def require_folder(target: Path) -> None:
    """Told before a guest runs, not after.

    Raises:
        UsageError: the place for results is there and no folder.
    """
    if os.path.lexists(target) and not target.is_dir():
        raise UsageError(f"{target} is no folder, and results are to go there", remedy="--out DIR")


def bring_back(folder: Path, target: Path) -> tuple[Path, ...]:
    """Copy files and symbolic links into the user's folder, which is made only if there is something.

    What has the same name there is replaced, and never written through: a link left by an earlier guest leads anywhere.
    Pipes, sockets and devices mean nothing outside the guest, and stay.

    Raises:
        GuestError: there is no room, or no right to write.
    """
    copied = []
    try:
        for parent, folders, files in os.walk(folder):
            for name in sorted([*files, *folders]):
                source = Path(parent, name)
                mode = source.lstat().st_mode
                if not (stat.S_ISREG(mode) or stat.S_ISLNK(mode)):
                    continue
                goal = target / source.relative_to(folder)
                _make_parents(goal.parent, target)
                if os.path.lexists(goal):
                    goal.unlink()
                shutil.copy2(source, goal, follow_symlinks=False)
                copied.append(goal)
    except OSError as error:
        raise GuestError(
            f"what the command left cannot be brought to {target}: {error.strerror} ({error.filename})",
            remedy="--out DIR, with room in it",
        ) from error
    return tuple(sorted(copied))


def _make_parents(folder: Path, target: Path) -> None:
    """The folders of a result; a link or file of an earlier guest in their place is replaced."""
    if folder != target:
        _make_parents(folder.parent, target)
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
    folder.mkdir(parents=True, exist_ok=True)
