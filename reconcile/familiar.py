"""What a list said of jobs when it told nothing new: an entry that says the same again needs no look into the file.

It lives in memory and only saves work: what is not known here, or has changed in any way since, is looked at as ever.
"""

import hashlib
from collections.abc import Iterable
from typing import Final

#: Jobs of one provider that are remembered. 100,000: arbitrary, some 30 MiB; the others are looked at each time.
MAX_JOBS: Final = 100_000
#: In place of the operation's key where that has ended: nobody waits to see it.
ENDED: Final = 0


class Familiar:
    """The entries of one provider's list that are known, by what they say."""

    def __init__(self) -> None:
        #: By the entry's digest: the operation's key.
        self._keys: dict[bytes, int] = {}
        #: By job: the digest of its entry.
        self._prints: dict[str, bytes] = {}
        #: Jobs of which something changed since a page was begun, which may be older; None: no page is on its way.
        self._changed: set[str] | None = None

    def key_of(self, entry: bytes) -> int | None:
        """The key of the operation whose job this text shows as it was last known; None: it has to be looked at."""
        return self._keys.get(_print(entry))

    def begin_page(self) -> None:
        """A page is about to be brought to the file."""
        self._changed = set()

    def end_page(self) -> None:
        """Nothing is learned from the page, or nothing more: whatever changes from here on need not be noted."""
        self._changed = None

    def learn(self, known: Iterable[tuple[str, int, bytes]]) -> None:
        """Of these jobs, each with its operation's key and its entry's text, the page of now told nothing new.

        Those that have ended take half of the room at most: they only grow in number.
        """
        changed = self._changed or ()
        self.end_page()
        for job_id, key, entry in known:
            room = MAX_JOBS // 2 if key == ENDED else MAX_JOBS
            if job_id not in changed and (job_id in self._prints or len(self._prints) < room):
                self.forget(job_id)
                self._prints[job_id] = digest = _print(entry)
                self._keys[digest] = key

    def forget(self, job_id: str) -> None:
        """Something became of a job, by whatever road."""
        if self._changed is not None:
            self._changed.add(job_id)
        digest = self._prints.pop(job_id, None)
        if digest is not None:
            self._keys.pop(digest, None)


def _print(entry: bytes) -> bytes:
    """What tells two entries apart."""
    return hashlib.blake2b(entry, digest_size=16).digest()
