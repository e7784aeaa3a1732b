"""The frame pool of the Python-level API, until that uses xsk/table.py."""

from __future__ import annotations

from collections.abc import Iterable

from xskit.xsk.path.owner import FrameError, Owner, Sighting

__all__ = ["FramePool"]


class FramePool:
    """Frames `0 .. frames-1`: a stack of free ones, and each one's owner.

    Frames never used yet are not on the stack but counted, so that a pool of millions costs nothing to make.
    Not for use by several threads.
    """

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self._returned: list[int] = []
        self._fresh = 0
        self._owners = bytearray(frames)

    @property
    def free(self) -> int:
        """Frames that nobody uses."""
        return len(self._returned) + self.frames - self._fresh

    def take(self, count: int, target: Owner) -> list[int]:
        """At most `count` free frames, for `target`."""
        split = max(0, len(self._returned) - count)
        taken = self._returned[split:]
        del self._returned[split:]
        fresh = min(count - len(taken), self.frames - self._fresh)
        taken.extend(range(self._fresh, self._fresh + fresh))
        self._fresh += fresh
        for frame in taken:
            self._owners[frame] = target
        return taken

    def move(self, frame: int, origin: Owner, target: Owner) -> None:
        """A frame changes hands.

        Raises:
            FrameError: it was not where it is said to come from.
        """
        if not 0 <= frame < self.frames:
            raise FrameError(f"there is no frame {frame}: there are only {self.frames}")
        if self._owners[frame] != origin:
            raise FrameError(
                f"frame {frame} goes from {origin.name} to {target.name}, but it was {self.owner(frame).name}"
            )
        self._owners[frame] = target
        if target == Owner.FREE:
            self._returned.append(frame)

    def owner(self, frame: int) -> Owner:
        """Who has the frame."""
        return Owner(self._owners[frame])

    def check(self, places: Iterable[Sighting]) -> dict[Owner, int]:
        """Compare the owners with what is seen: see Umem.check.

        Args:
            places: every entry of every ring.
        """
        seen: dict[int, Owner] = dict.fromkeys(self._returned, Owner.FREE)
        if len(seen) != len(self._returned):
            raise FrameError("a frame is free twice")
        for frame in self._returned:
            if self._owners[frame] != Owner.FREE:
                raise FrameError(f"frame {frame} is on the free stack, but its owner is {self.owner(frame).name}")
        for frame, place, owner in places:
            if not 0 <= frame < self.frames:
                raise FrameError(f"{place.name} holds frame {frame}: there are only {self.frames}")
            if frame in seen:
                raise FrameError(f"frame {frame} is in two places: {seen[frame].name} and {place.name}")
            if self._owners[frame] != owner:
                raise FrameError(f"frame {frame} is in {place.name}, but its owner is {self.owner(frame).name}")
            seen[frame] = place
        counts = {owner: self._owners.count(owner) for owner in Owner}
        if counts[Owner.FREE] != self.free:
            raise FrameError(f"{counts[Owner.FREE]} frames are free, but {self.free} can be had: some are lost")
        for frame, place in seen.items():
            if place != self._owners[frame]:
                counts[place] += 1
                counts[Owner(self._owners[frame])] -= 1
        return counts
