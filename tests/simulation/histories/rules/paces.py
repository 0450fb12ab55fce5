"""How often a provider is asked, and how soon: between two reads, after an error, a wait or a ring."""

import itertools
from collections import defaultdict
from collections.abc import Iterator
from typing import Final

from tests.simulation.histories.configuration import POLL, host_of
from tests.simulation.histories.rules.seen import POLLED, Seen, is_calm, surely_answered
from tests.simulation.histories.scripts import STANDINS
from tests.simulation.histories.world import HistoryWorld, Send
from tests.simulation.view import moves
from tests.simulation.world import LEASE_MS

_BASE_MS: Final = 2_000
#: A ring is answered by a read within so long, ms: reads under way take less.
_ANSWERED_MS: Final = 2_000

#: A delivery rings within so long after it left its sender, ms: the latest that a network makes it, and its commit.
_RINGS_WITHIN_MS: Final = 5_000 + 1_000


def n21_polls_keep_their_distance(seen: Seen) -> Iterator[str]:
    """Two reads of one job in a row lie `base` apart, unless something rang in between."""
    if seen.world.jumped:
        return
    asked = _asked_at(seen)
    for trace_id, sends in seen.sends.items():
        reads = [s for s in sends if s.method == "GET" and s.row is not None and s.row["state"] in POLLED]
        for one, two in itertools.pairwise(reads):
            assert one.row is not None
            assert two.row is not None
            if one.life != two.life or two.at_ms - one.at_ms >= _BASE_MS or one.row["state"] != two.row["state"]:
                continue
            if one.fault:
                continue  # a read is no effect: aiohttp may send it once more where its connection broke
            if any(one.at_ms <= at <= two.at_ms for at in asked[trace_id]):
                continue  # a person's decision is followed by a read at once
            if any(s.has_effect and one.at_ms <= s.at_ms <= two.at_ms and s not in (one, two) for s in sends):
                continue  # what was done in between is looked after
            if one.path != two.path or _rang(seen, two.host, one.at_ms - _RINGS_WITHIN_MS, two.at_ms):
                continue
            if two.row["deadline_at"] is not None and two.at_ms + 1_000 >= two.row["deadline_at"]:
                continue
            gap, op = two.at_ms - one.at_ms, two.row
            yield f"{op['operation_id']}: {two.path} was read {gap} ms after it was, in {op['state']}"


def _asked_at(seen: Seen) -> defaultdict[str, list[int]]:
    """When people, or a deadline, moved each operation, by its trace."""
    asked: defaultdict[str, list[int]] = defaultdict(list)
    for op in seen.view.operations:
        causes = ("decision:", "cancel:", "input:", "deadline:")
        asked[op["trace_id"]] = [row["at"] for row in moves(seen.view, op) if row["cause"].startswith(causes)]
    return asked


def _rang(seen: Seen, host: str, since: int, until: int) -> bool:
    return any(since <= at <= until and host_of(name) == host for at, name in seen.world.rings)


def n21_retry_after_is_kept(seen: Seen) -> Iterator[str]:
    """After a 429 or 503 with a wait that was surely heard, that provider is left alone so long."""
    if seen.world.jumped:
        return
    for name, watch in seen.world.watches.items():
        host = host_of(name)
        sends = [s for s in seen.world.sends if s.host == host]
        for arrival in watch.arrivals:
            if not arrival.mischief.endswith("_wait"):
                continue
            own = [s for s in sends if (s.at_ms, s.trace_id, s.path) == (arrival.at_ms, arrival.trace_id, arrival.path)]
            if len(own) != 1 or own[0].fault:
                continue
            until = arrival.at_ms + 1_000 * arrival.wait_seconds
            early = [s for s in sends if arrival.at_ms < s.at_ms < until and s.life == own[0].life]
            early = [s for s in early if _begun_at(s, sends) > arrival.at_ms]  # what had begun comes to its end
            yield from (
                f"{s.method} {s.path} left {until - s.at_ms} ms before {name} would be asked" for s in early[:1]
            )


def _begun_at(send: Send, sends: list[Send]) -> int:
    """When the action began that sent it, as far as is known: its lease may have been renewed, and what it sent before
    tells then. A list has no row, and is read a page at a time.
    """
    if send.row is None or send.row["lease_until"] is None:
        return send.at_ms
    action = (send.life, send.trace_id, send.row["fence"])
    own = (s.at_ms for s in sends if s.row is not None and (s.life, s.trace_id, s.row["fence"]) == action)
    return min(int(send.row["lease_until"]) - LEASE_MS, *own, send.at_ms)


def n21_a_good_read_resets_the_budget(seen: Seen) -> Iterator[str]:
    """Nobody is told that reads keep failing where one of the last `error_budget` was surely answered well."""
    for op in seen.view.operations:
        if op["provider"] in STANDINS:
            continue  # their lists are reads too
        good = surely_answered(seen, op["trace_id"])
        for row in moves(seen.view, op):
            if row["to_state"] != "observation_failed" or "reads in a row failed" not in row["reason"]:
                continue
            reads = [s for s in seen.its_sends(op) if s.method == "GET" and "/job_" in s.path]
            last = [s for s in reads if s.at_ms <= row["at"]][-POLL["error_budget"] :] if not seen.world.jumped else []
            answered = [s.at_ms for s in last if (s.at_ms, s.method, s.path) in good]
            if answered:
                yield f"{op['operation_id']}: {row['reason']}, and those at {answered} were answered well"


def n21_a_good_read_leaves_no_errors(seen: Seen) -> Iterator[str]:
    """After a read that was surely answered well the row counts no error, as its next request finds it."""
    if seen.world.jumped:
        return
    for trace_id, sends in seen.sends.items():
        good = surely_answered(seen, trace_id)
        for one, two in itertools.pairwise(sends):
            if one.life != two.life or "/job_" not in one.path or (one.at_ms, one.method, one.path) not in good:
                continue
            if any(one.at_ms <= at <= two.at_ms and host == one.host for at, host in seen.world.refused):
                continue  # a read that never left is an error too
            stood = [send.row["state"] if send.row is not None else "" for send in (one, two)]
            if two.row is not None and one.method == "GET" and set(stood) <= POLLED and two.row["errors"]:
                yield f"{two.row['operation_id']} was read well at {one.at_ms} and counted {two.row['errors']} errors"


def _stops_at(world: HistoryWorld) -> int:
    """When the first life was stopped, ms; now, where it died."""
    dooms = world.plan.dooms
    after = dooms[0].stop_after if dooms else None
    return world.now_ms if after is None else world.lives[0].began_ms + round(after * 1000)


def n19_a_ring_is_answered(seen: Seen) -> Iterator[str]:
    """Where nothing is broken, a ring is followed by a read that began after it, whatever was under way."""
    if not is_calm(seen) or len(seen.world.lives) > 1:
        return
    for name, sender in seen.world.senders.items():
        for job_id, at in sender.rung:
            job = seen.by_id.get((name, job_id))
            ops = [op for op in seen.view.operations if (op["provider"], op["remote_job_id"]) == (name, job_id)]
            if job is None or len(ops) != 1:
                continue
            if not seen.at_the_end and at + _ANSWERED_MS > _stops_at(seen.world):
                continue  # the process died, or was stopped, before the read was due
            walk = moves(seen.view, ops[0])
            stood = next((row["to_state"] for row in reversed(walk) if row["at"] <= at), None)
            is_over = any(row["at"] <= at + _ANSWERED_MS and row["to_state"] not in POLLED for row in walk[1:])
            reads = [s for s in seen.sends.get(ops[0]["trace_id"], ()) if at <= s.at_ms <= at + _ANSWERED_MS]
            if stood in POLLED and not is_over and not reads:
                yield f"{name} told of {job_id} at {at}, and it was not read after that"
