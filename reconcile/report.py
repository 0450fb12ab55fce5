"""Telling of what was committed: to the log, the meters, the waiters, and whoever sleeps until something is due."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from reconcile.changes import Changes
from reconcile.health import EndSeen
from reconcile.model import Change, EntryKind, UnixMs
from reconcile.seams import Clock, Meters
from reconcile.store.writer import Done

#: Undocumented words remembered, so that each is logged once; beyond, they are only counted.
MAX_WORDS: Final = 1000


class Reporter:
    """Tells of committed changes: to the log, the meters, the watchers, and whoever sleeps until something is due."""

    def __init__(
        self,
        *,
        changes: Changes,
        meters: Meters,
        clock: Clock,
        log: Any,
        on_due: Callable[[UnixMs], None],
        on_change: Callable[[Change], bool] = lambda _: False,
        on_delivery: Callable[[], None] = lambda: None,
    ) -> None:
        self._changes = changes
        self._meters = meters
        self._clock = clock
        #: Told of each change first; True: something has to be looked at now.
        self._on_change = on_change
        self._log = log
        self._on_due = on_due
        #: Told that the outbox has something to look at.
        self._on_delivery = on_delivery
        self._words: set[tuple[str, str | None]] = set()

    def __call__(self, done: Sequence[Done]) -> None:
        """One commit's outcomes, on the loop, before the callers hear of them."""
        try:
            self._changes.tell([change for outcome in done for change in outcome.changes])
        except Exception:  # noqa: BLE001 - the rim, as below; what the streams were not told they read in the file
            self._log.exception("report_failed")
            self._changes.lose_streams()
        for outcome in done:
            try:
                for change in outcome.changes:
                    if self._on_change(change):
                        self._on_due(self._clock.now())
                    self._tell(change)
                if outcome.due_at is not None:
                    self._on_due(outcome.due_at)
                if outcome.unmatched is not None:
                    self._meters.count("webhooks_unmatched", provider=outcome.unmatched)
                if outcome.delivers or (outcome.changes and any(change.delivers for change in outcome.changes)):
                    self._on_delivery()
            except Exception:  # noqa: BLE001 - the rim: a fault in telling must not end the writer, whose commit stands
                self._log.exception("report_failed")

    def _tell(self, change: Change) -> None:
        op = change.operation
        for entry in change.entries:
            if entry.kind is EntryKind.FACT:
                continue
            event = "state_changed" if entry.kind is EntryKind.MOVE else f"evidence_{entry.kind}"
            if not entry.is_passing:
                self._meters.count(event, provider=op.provider, to=entry.to_state or "")
            self._log.info(
                event,
                operation_id=op.operation_id,
                trace_id=op.trace_id,
                provider=op.provider,
                from_state=entry.from_state,
                to_state=entry.to_state,
                cause=entry.cause,
                reason=entry.reason,
            )
        if change.reminds and op.attention is not None:
            deadline = op.deadline(op.state_deadline_name or "attention")
            self._log.warning(
                "question_still_open",
                operation_id=op.operation_id,
                trace_id=op.trace_id,
                provider=op.provider,
                reason=op.attention.reason,
                since_ms=op.attention.since,
                deadline_ms=deadline,
            )
        if change.end_seen is not None:
            self._measure(op.provider, change.end_seen)
        if change.is_late_event:
            self._meters.count("webhooks_late", provider=op.provider)
        if change.verdict is not None and change.verdict.word is not None and not change.verdict.known:
            self.unknown_word(op.provider, change.verdict.word, operation_id=op.operation_id)
        if change.entries or change.is_news:
            self._changes.publish(change)

    def _measure(self, provider: str, end: EndSeen) -> None:
        """How an end came to light, and how long after it: from the provider's own time to our commit (J5)."""
        if end.is_missed:
            self._meters.count("ends_missed", provider=provider)
        if end.provider_at is not None:
            # The provider's clock may be ahead of ours: an end is never seen before it came.
            seconds = max(0, self._clock.now() - end.provider_at) / 1000
            road = "webhook" if end.is_announced else "sweep"
            self._meters.observe("detection_delay_seconds", seconds, provider=provider, road=road)

    def unknown_word(self, provider: str, word: str | None, **where: str) -> None:
        """An undocumented status word: counted each time, logged once (N13)."""
        self._meters.count("unknown_status", provider=provider)
        if (provider, word) not in self._words and len(self._words) < MAX_WORDS:
            self._words.add((provider, word))
            self._log.warning("unknown_status", provider=provider, word=word, **where)
