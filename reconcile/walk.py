"""One sweep under way: which jobs it set out to see, which of them no page has shown, when no page is left. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from reconcile import listing
from reconcile.contract import Lookup
from reconcile.model import UnixMs
from reconcile.provider import Page


class Keys:
    """Keys of operations, a bit each from the first one on: a million jobs that were made in a row are 125 kB."""

    def __init__(self) -> None:
        self._first = 0
        self._bits = bytearray()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __contains__(self, key: int) -> bool:
        place = key - self._first
        return 0 <= place < 8 * len(self._bits) and bool(self._bits[place >> 3] >> (place & 7) & 1)

    def __iter__(self) -> Iterator[int]:
        """In order; what is taken out meanwhile may still come."""
        for byte, bits in enumerate(self._bits):
            if bits:
                yield from (self._first + 8 * byte + bit for bit in range(8) if bits >> bit & 1)

    def add(self, keys: Sequence[int]) -> None:
        """Take in keys in their order, all greater than those before them."""
        if not keys:
            return
        first = self._first = self._first if self._bits else keys[0]
        bits = self._bits
        bits.extend(bytes((keys[-1] - first) // 8 + 1 - len(bits)))
        for key in keys:
            place = key - first
            bits[place >> 3] |= 1 << (place & 7)
        self._count += len(keys)

    def discard(self, key: int) -> None:
        """Take one out, where it is in."""
        place = key - self._first
        bit = 1 << (place & 7)
        if 0 <= place < 8 * len(self._bits) and self._bits[place >> 3] & bit:
            self._bits[place >> 3] ^= bit
            self._count -= 1


@dataclass(slots=True)
class Scope:
    """What a sweep sets out to see: the open jobs as they are known when it begins."""

    open_jobs: int = 0
    #: When the oldest of their operations was made.
    oldest_at: UnixMs | None = None
    #: Those that no page has shown yet. Jobs that come to be watched meanwhile are the next sweep's.
    unseen: Keys = field(default_factory=Keys)

    def add(self, keys: Sequence[int], oldest_at: UnixMs) -> None:
        """More open jobs, in the order of keys; the oldest of them was made then."""
        self.open_jobs += len(keys)
        self.oldest_at = oldest_at if self.oldest_at is None else min(self.oldest_at, oldest_at)
        self.unseen.add(keys)


@dataclass(slots=True)
class Walk:
    """One sweep under way."""

    fence: int
    trace_id: str
    began_at: UnixMs
    renewed_at: UnixMs
    scope: Scope
    #: A list is read where its provider is now.
    origin: str | None = None
    cursor: str | None = None
    pages: int = 0
    cursors: set[str] = field(default_factory=set)

    @property
    def has_seen_all(self) -> bool:
        """Whether every job that was open when it began has been shown, or is waited for no more."""
        return len(self.scope.unseen) == 0

    def see(self, keys: Iterable[int]) -> None:
        """Remember what a page showed, whatever became of the job meanwhile."""
        for key in keys:
            self.scope.unseen.discard(key)

    def turn(self, page: Page, lookup: Lookup) -> bool:
        """Go to the next page; False where there is none to read. A cursor that comes again leads round in a circle."""
        circles = page.next is not None and page.next in self.cursors
        cap = listing.max_pages(self.scope.open_jobs, lookup)
        oldest_at = self.scope.oldest_at
        is_past = oldest_at is not None and listing.shows_older(page, oldest_at, lookup)
        if page.next is None or circles or self.has_seen_all or is_past or self.pages >= cap:
            return False
        self.cursor = page.next
        self.cursors.add(page.next)
        return True


@dataclass(slots=True)
class Cursor:
    """One account's list between sweeps and in them."""

    due_at: UnixMs
    walk: Walk | None = None
    #: When what `needed` says was learned.
    ended_at: UnixMs | None = None
    is_running: bool = False
