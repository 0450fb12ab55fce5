"""Every meter by name: what it tells, its labels, a histogram's buckets. The names are the outer ones (Prometheus).

Labels take few values each: providers of the configuration, words of ours; never an operation, a job or a stranger's
word. What is counted under a name that does not stand here is shown nowhere; a test looks for that.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal

#: Label names and values of one series, in the order of the names.
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Family:
    """All series of one name. `buckets`: a histogram's upper bounds, ascending, without the infinite one."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """What a histogram has seen: in each bucket alone (the last one: beyond all bounds), and the sum of it."""

    counts: tuple[int, ...]
    sum: float

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)


#: Seconds from the provider's own end time to our commit. Its clock tells whole seconds, so that less than 1 is noise;
#: 15 m is the default `sweep`, 10 m and 5 m the default `cap`s; 24 h a batch window, beyond which a deadline tells.
_DELAYS: Final = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 900.0, 1800.0, 3600.0, 21600.0, 86400.0)
#: Seconds of a request: Prometheus' own defaults from 50 ms on, then the client's time-outs (30 s and 60 s) and 5 min
#: for uploads and results.
_REQUESTS: Final = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
#: Seconds of a commit: from one fsync of a fast disk (1 ms) over a slow one (5 s, F22) to the unit's watchdog (30 s).
_COMMITS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
#: Writes of one commit: doubling up to the writer's MAX_BATCH.
_WRITES: Final = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)

#: What is counted while it happens, by the name under which the rooms count it; since the start of the process.
METERS: Final[Mapping[str, Family]] = {
    "state_changed": Family(
        "reconciled_state_changes_total", "counter", "Moves of operations, by the state moved to.", ("provider", "to")
    ),
    "evidence_refused": Family(
        "reconciled_evidence_refused_total",
        "counter",
        "Evidence that would have moved an operation where its state does not let it; kept, and nothing moved.",
        ("provider", "to"),
    ),
    "evidence_contradiction": Family(
        "reconciled_evidence_contradictions_total",
        "counter",
        "Evidence that contradicts what is known of an ended operation; kept, and nothing moved.",
        ("provider", "to"),
    ),
    "webhooks": Family(
        "reconciled_webhooks_total",
        "counter",
        "Deliveries by answer: new and duplicate (200), refused (4xx, reason told here only), not_stored (503)."
        " Provider -: a path that no provider has.",
        ("provider", "answer", "reason"),
    ),
    "callbacks": Family(
        "reconciled_callbacks_total",
        "counter",
        "Attempts to call somebody back, by what came of them: delivered, waiting (tried again later), exhausted.",
        ("callback", "result"),
    ),
    "webhooks_late": Family(
        "reconciled_webhooks_late_total",
        "counter",
        "Deliveries that told of an end which a read had found before.",
        ("provider",),
    ),
    "webhooks_unmatched": Family(
        "reconciled_webhooks_unmatched_total",
        "counter",
        "Deliveries for which no operation was found when they came; those of a create under way are applied later.",
        ("provider",),
    ),
    "ends_missed": Family(
        "reconciled_ends_missed_total",
        "counter",
        "Ends that polling found while a webhook should have told of them.",
        ("provider",),
    ),
    "unknown_status": Family(
        "reconciled_unknown_status_total",
        "counter",
        "Status words that the provider's contract does not know; each counts as pending.",
        ("provider",),
    ),
    "detection_delay_seconds": Family(
        "reconciled_detection_delay_seconds",
        "histogram",
        "From a job's end by its provider's clock to our commit, by what brought it: webhook or sweep.",
        ("provider", "road"),
        _DELAYS,
    ),
    "requests": Family(
        "reconciled_requests_total",
        "counter",
        "Requests to providers, by purpose and answer: 2xx, 3xx, 4xx, 429, 5xx, no_answer (it may have arrived),"
        " not_sent (surely not).",
        ("provider", "purpose", "answer"),
    ),
    "request_duration_seconds": Family(
        "reconciled_request_duration_seconds",
        "histogram",
        "From a request's first byte to its whole answer; of a result, to its head.",
        ("provider", "purpose"),
        _REQUESTS,
    ),
    "commit_duration_seconds": Family(
        "reconciled_commit_duration_seconds", "histogram", "One transaction of the writer.", (), _COMMITS
    ),
    "commit_writes": Family("reconciled_commit_writes", "histogram", "Writes of one transaction.", (), _WRITES),
    "commits_lost": Family(
        "reconciled_commits_lost_total",
        "counter",
        "Transactions that were rolled back whole, such as on a full disk; senders and the daemon try again.",
    ),
}
