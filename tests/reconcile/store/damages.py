"""What somebody who owns the file may do to a record: each kind of damage does it, and gives the words, as a pattern,
by which the first bad row must be named. A record that offers no place for one raises `NoPlace`.
"""

import json
import re
from collections.abc import Callable
from typing import Any, Final

from reconcile.chain import GENESIS, fields_hash
from reconcile.checkpoint import Checkpoint
from tests.reconcile.store.records import OTHER_KEY, Copy, NoPlace

Damage = Callable[[Copy], str]

_ROW: Final = (
    "SELECT h.position, o.operation_id, h.seq, o.key, o.seq FROM history h JOIN operations o ON o.key = h.operation_key"
)
#: A history row with all that is hashed, and the key and hash behind it.
_WHOLE_ROW: Final = (
    "SELECT h.position, o.operation_id, h.seq, h.at, h.actor, h.kind, h.from_state, h.to_state, h.cause,"
    " h.remote_job_id, h.reason, h.facts, h.operation_key, h.hash FROM history h"
    " JOIN operations o ON o.key = h.operation_key"
)
_COVERED: Final = "(SELECT coalesce(max(position), 0) FROM checkpoints)"


def named(seq: object, operation_id: object, position: object) -> str:
    return re.escape(f"row {seq} of {operation_id} (position {position})")


# ---- damage to history: each gives a pattern that the fault must match, or raises NoPlace ----


def _changed(column: str, *values: Any) -> Damage:
    """One value of one row becomes another."""

    def damage(copy: Copy) -> str:
        found = copy.one_of(f"{_ROW} WHERE NOT (h.{column} IS ?)", values[0])
        position, operation_id, seq, *_ = found
        value = copy.rnd.choice(
            [v for v in values if copy.rows(f"{_ROW} WHERE h.position = ? AND NOT (h.{column} IS ?)", position, v)]
        )
        copy.do(f"UPDATE history SET {column} = ? WHERE position = ?", value, position)
        return named(seq, operation_id, value if column == "position" else position)

    damage.__name__ = f"changed_{column}"
    return damage


def a_byte_of_text_changed(copy: Copy) -> str:
    """Also into what is no UTF-8."""
    column = copy.rnd.choice(["actor", "cause", "reason", "facts", "hash", "kind"])
    found = copy.one_of(f"{_ROW} WHERE length(h.{column}) > 0")
    position, operation_id, seq, *_ = found
    ((text,),) = copy.rows(f"SELECT CAST({column} AS BLOB) FROM history WHERE position = ?", position)
    at = copy.rnd.randrange(len(text))
    damaged = text[:at] + bytes([text[at] ^ copy.rnd.choice([1, 2, 32, 128])]) + text[at + 1 :]
    copy.do(f"UPDATE history SET {column} = CAST(? AS TEXT) WHERE position = ?", damaged, position)
    return named(seq, operation_id, position)


def a_space_in_the_facts(copy: Copy) -> str:
    """The same value in another spelling is another row."""
    position, operation_id, seq, *_ = copy.one_of(_ROW)
    copy.do("UPDATE history SET facts = facts || ' ' WHERE position = ?", position)
    return named(seq, operation_id, position)


def a_row_was_removed(copy: Copy) -> str:
    found = copy.one_of(f"{_ROW} WHERE h.seq < o.seq")
    position, operation_id, seq, *_ = found
    copy.do("DELETE FROM history WHERE position = ?", position)
    return rf"row {seq + 1} of {operation_id} \(position \d+\): out of order, row {seq} was expected"


def a_row_was_removed_and_those_after_it_moved_up(copy: Copy) -> str:
    found = copy.one_of(f"{_ROW} WHERE h.seq < o.seq")
    position, operation_id, seq, key, _ = found
    copy.do("DELETE FROM history WHERE position = ?", position)
    for (moved,) in copy.rows("SELECT seq FROM history WHERE operation_key = ? AND seq > ? ORDER BY seq", key, seq):
        copy.do("UPDATE history SET seq = seq - 1 WHERE operation_key = ? AND seq = ?", key, moved)
    return f"row {seq} of {operation_id} "


def the_tail_was_cut(copy: Copy) -> str:
    found = copy.one_of(f"{_ROW} WHERE h.seq > 1")
    _, operation_id, seq, key, length = found
    copy.do("DELETE FROM history WHERE operation_key = ? AND seq >= ?", key, seq)
    return rf"row {seq - 1} of {operation_id} \(position \d+\): the chain ends here after {seq - 1} rows, {length} were"


def a_whole_chain_was_cut(copy: Copy) -> str:
    _, operation_id, _, key, _ = copy.one_of(_ROW)
    copy.do("DELETE FROM history WHERE operation_key = ?", key)
    return f"no row of {operation_id}: the chain ends here"


def the_tail_was_cut_and_the_row_mended(copy: Copy) -> str:
    """The operation says what the shortened chain says: the checkpoint knows more, or a position is missing."""
    found = copy.one_of(f"{_ROW} WHERE h.seq > 1")
    _, operation_id, seq, key, _ = found
    _cut_and_mend(copy, key, seq)
    gaps = _missing_after_signed(copy)
    signed_there = f"row \\d+ of {operation_id}: checkpoint \\d+ signed it, and the operation has only {seq - 1} rows"
    return f"{signed_there}|position {gaps[0]}: no row stands there" if gaps else signed_there


def _cut_and_mend(copy: Copy, key: int, seq: int) -> None:
    copy.do("DELETE FROM history WHERE operation_key = ? AND seq >= ?", key, seq)
    kept = copy.rows("SELECT kind, to_state, facts, hash FROM history WHERE operation_key = ? ORDER BY seq", key)
    folded: dict[str, Any] = {}
    for kind, to_state, facts, digest in kept:
        folded |= json.loads(facts) | {"head": digest}
        folded |= {"state": to_state} if kind == "move" else {}
    ((living,),) = copy.rows("SELECT living FROM operations WHERE key = ?", key)
    mended = json.loads(living) | {
        "deadlines": {k: v for k, v in (folded.get("deadlines") or {}).items() if v is not None}
    }
    copy.do(
        "UPDATE operations SET seq = ?, head = ?, state = ?, remote_job_id = ?, living = ? WHERE key = ?",
        seq - 1, folded["head"], folded["state"], folded.get("remote_job_id"), json.dumps(mended), key,
    )  # fmt: skip


def _missing_after_signed(copy: Copy) -> list[int]:
    """The positions after the newest checkpoint, or all where nothing was pruned, that have no row."""
    ((last,),) = copy.rows("SELECT seq FROM sqlite_sequence WHERE name = 'history'")
    ((after,),) = copy.rows(f"SELECT CASE WHEN EXISTS (SELECT 1 FROM pruned) THEN {_COVERED} ELSE 0 END")
    there = {position for (position,) in copy.rows("SELECT position FROM history")}
    return [position for position in range(after + 1, last + 1) if position not in there]


def an_operation_and_its_history_were_removed(copy: Copy) -> str:
    _, operation_id, _, key, _ = copy.one_of(_ROW)
    copy.do("DELETE FROM history WHERE operation_key = ?", key)
    copy.do("DELETE FROM operations WHERE key = ?", key)
    gone = f"row \\d+ of {operation_id}: checkpoint \\d+ signed it, and the operation is gone; no pruning"
    gaps = _missing_after_signed(copy)
    return f"{gone}|position {gaps[0]}: no row stands there" if gaps else gone


def an_operation_was_removed_and_its_history_left(copy: Copy) -> str:
    _, operation_id, _, key, _ = copy.one_of(_ROW)
    copy.do("DELETE FROM operations WHERE key = ?", key)
    ((first,),) = copy.rows("SELECT min(position) FROM history WHERE operation_key = ?", key)
    gone = f"row \\d+ of {operation_id}: checkpoint \\d+ signed it, and the operation is gone"
    return f"{gone}|row 1 of an operation that is not there \\(position {first}\\)"


#: At a place that is nobody's.
_FORGED: Final = (
    "INSERT INTO pruned (operation_id, seq, head, pruned_at, behind, operation_key)"
    " SELECT ?, ?, ?, ?, ?, 1 + coalesce(max(key), 0) FROM operations"
)


def an_operation_was_removed_and_told_to_be_pruned(copy: Copy) -> str:
    """The forged pruning names a checkpoint that did not sign the last head: the chain had gone on since."""
    ((covered,),) = copy.rows(f"SELECT {_COVERED}")
    found = copy.one_of(
        "SELECT key, operation_id, seq, head FROM operations o"
        " WHERE (SELECT max(position) FROM history WHERE operation_key = o.key) > ?",
        covered,
    )
    (newest,) = copy.one_of("SELECT max(number) FROM checkpoints HAVING max(number) IS NOT NULL")
    key, operation_id, seq, head = found
    copy.do("DELETE FROM history WHERE operation_key = ?", key)
    copy.do("DELETE FROM operations WHERE key = ?", key)
    copy.do(
        _FORGED,
        operation_id,
        seq,
        head,
        5,
        newest,
    )
    return f"the pruned operation {operation_id}: checkpoint {newest}, behind which"


def a_pruning_was_told_of_an_operation_that_is_there(copy: Copy) -> str:
    found = copy.one_of(
        "SELECT o.operation_id, h.seq, h.head, h.checkpoint FROM heads h JOIN operations o"
        " ON o.operation_id = h.operation_id JOIN checkpoints c ON c.number = h.checkpoint"
    )
    operation_id, seq, head, number = found
    copy.do(
        _FORGED,
        operation_id,
        seq,
        head,
        5,
        number,
    )
    return f"the pruned operation {operation_id}: it is told to be pruned, and it is there"


def an_operation_was_told_to_be_pruned_behind_an_earlier_head(copy: Copy) -> str:
    """A real head, but not the last that was signed: what came after it would be gone unseen."""
    operation_id, seq, head, number = copy.one_of(
        "SELECT h.operation_id, h.seq, h.head, h.checkpoint FROM heads h JOIN operations o"
        " ON o.operation_id = h.operation_id WHERE EXISTS (SELECT 1 FROM heads l JOIN checkpoints c"
        "  ON c.number = l.checkpoint WHERE l.operation_id = h.operation_id AND l.checkpoint > h.checkpoint)"
    )
    copy.do(
        "DELETE FROM history WHERE operation_key = (SELECT key FROM operations WHERE operation_id = ?)", operation_id
    )
    copy.do("DELETE FROM operations WHERE operation_id = ?", operation_id)
    copy.do(
        _FORGED,
        operation_id,
        seq,
        head,
        5,
        number,
    )
    return (
        rf"row \d+ of {operation_id}: checkpoint \d+ signed it, and it is told to have been pruned at row {seq} behind"
    )


def an_operation_was_invented_where_another_was_pruned(copy: Copy) -> str:
    """Its chain is whole and stands at positions that are free: no checkpoint of that time has signed it."""
    there = {position for (position,) in copy.rows("SELECT position FROM history")}
    ((covered,),) = copy.rows(f"SELECT {_COVERED}")
    free = [position for position in range(1, covered + 1) if position not in there]
    *row, key, _ = copy.one_of(f"{_WHOLE_ROW} WHERE h.seq = 1 AND h.facts LIKE '%\"remote_job_id\":null%'")
    if not free:
        raise NoPlace
    row[0], row[1] = copy.rnd.choice(free), "op_invented"
    head = fields_hash(GENESIS, row)
    deadlines = {name: at for name, at in json.loads(row[11])["deadlines"].items() if at is not None}
    copy.do(
        "INSERT INTO operations SELECT key + 1000, ?, provider, type, ?, ?, remote_status, created_at, started_at,"
        " NULL, 'tok_invented', trace_id, fingerprint, contract_version, 1, ?, ?, 0 FROM operations WHERE key = ?",
        row[1], row[7], json.loads(row[11])["remote_job_id"], head, json.dumps({"deadlines": deadlines}), key,
    )  # fmt: skip
    _insert(copy, key + 1000, row, head)
    return (
        rf"row 1 of op_invented \(position {row[0]}\): checkpoint \d+ covers it, and signed no head of this operation"
    )


def a_row_was_appended(copy: Copy) -> str:
    """Chained as it should be, but by somebody who did not know of the operation's own row."""
    *row, key, digest = copy.one_of(f"{_WHOLE_ROW} WHERE h.seq = o.seq")
    ((last,),) = copy.rows("SELECT max(position) FROM history")
    row[0], row[2] = last + 1, row[2] + 1
    _insert(copy, key, row, fields_hash(digest, row))
    told = f"the chain has {row[2]} rows, only {row[2] - 1} were recorded|it moves out of "
    return named(row[2], row[1], row[0]) + f": ({told})"


def a_row_was_inserted_for_no_operation(copy: Copy) -> str:
    *row, _, _ = copy.one_of(_WHOLE_ROW)
    ((last,),) = copy.rows("SELECT max(position) FROM history")
    row[0], row[1], row[2] = last + 1, "op_none", 1
    _insert(copy, copy.rnd.choice([0, 999]), row, fields_hash(GENESIS, row))
    return rf"row 1 of an operation that is not there \(position {last + 1}\)"


def _insert(copy: Copy, key: int, row: list[Any], digest: str) -> None:
    values = (row[0], key, *row[2:], digest)
    copy.do(f"INSERT INTO history VALUES ({', '.join('?' * 13)})", *values)


_TOLD: Final = "at, actor, kind, from_state, to_state, cause, remote_job_id, reason, facts, hash"


def two_rows_changed_places_in_one_chain(copy: Copy) -> str:
    found = copy.one_of(f"{_ROW} WHERE h.seq < o.seq")
    position, operation_id, seq, key, length = found
    other = copy.rnd.randrange(seq + 1, length + 1)
    ((there,),) = copy.rows("SELECT position FROM history WHERE operation_key = ? AND seq = ?", key, other)
    _swap(copy, position, there)
    return named(seq, operation_id, position)


def two_rows_changed_places_across_chains(copy: Copy) -> str:
    one, two = copy.one_of(_ROW), copy.one_of(_ROW)
    if one[3] == two[3]:
        raise NoPlace
    _swap(copy, one[0], two[0])
    first = min(one, two, key=lambda row: row[3])
    return named(first[2], first[1], first[0])


def _swap(copy: Copy, one: int, two: int) -> None:
    """All that two rows tell, but for their places."""
    (a,), (b,) = (copy.rows(f"SELECT {_TOLD} FROM history WHERE position = ?", position) for position in (one, two))
    assignments = ", ".join(f"{name} = ?" for name in _TOLD.split(", "))
    copy.do(f"UPDATE history SET {assignments} WHERE position = ?", *b, one)
    copy.do(f"UPDATE history SET {assignments} WHERE position = ?", *a, two)


def two_rows_changed_positions(copy: Copy) -> str:
    one, two = copy.one_of(_ROW), copy.one_of(_ROW)
    if one == two:
        raise NoPlace
    for old, new in ((one[0], -1), (two[0], one[0]), (-1, two[0])):
        copy.do("UPDATE history SET position = ? WHERE position = ?", new, old)
    first = min((one, two), key=lambda row: (row[3], row[2]))
    return named(first[2], first[1], (two if first is one else one)[0])


def all_positions_after_one_were_renumbered(copy: Copy) -> str:
    position, *_ = copy.one_of(_ROW)
    for (moved,) in copy.rows("SELECT position FROM history WHERE position >= ? ORDER BY position DESC", position):
        copy.do("UPDATE history SET position = position + 1 WHERE position = ?", moved)
    key_order = copy.rows(f"{_ROW} WHERE h.position > ? ORDER BY o.key, h.seq LIMIT 1", position)
    return named(key_order[0][2], key_order[0][1], key_order[0][0])


def a_row_was_given_to_another_operation(copy: Copy) -> str:
    found = copy.one_of(f"{_ROW} WHERE h.seq = o.seq")
    other = copy.one_of("SELECT key, seq, operation_id FROM operations WHERE operation_id <> ?", found[1])
    position, operation_id, seq, key, _ = found
    copy.do("UPDATE history SET operation_key = ?, seq = ? WHERE position = ?", other[0], other[1] + 1, position)
    if key < other[0]:
        return f"(row {seq - 1}|no row) of {operation_id}[ :]"
    return named(other[1] + 1, other[2], position)


def history_was_rewritten_and_hashed_anew(copy: Copy) -> str:
    """Whoever knows how the chain is made may make another one: the checkpoint over it says no."""
    found = copy.one_of(f"{_ROW} WHERE h.position <= {_COVERED}")
    _, operation_id, seq, key, _ = found
    previous = GENESIS
    for *row, _, digest in copy.rows(f"{_WHOLE_ROW} WHERE o.key = ? ORDER BY h.seq", key):
        if row[2] == seq:
            row[10] += " (or so they say)"
        digest = digest if row[2] < seq else fields_hash(previous, row)
        copy.do("UPDATE history SET reason = ?, hash = ? WHERE position = ?", row[10], digest, row[0])
        previous = digest
    copy.do("UPDATE operations SET head = ? WHERE key = ?", previous, key)
    return rf"row \d+ of {operation_id} \(position \d+\): checkpoint \d+ signed another one"


def signed_rows_were_moved_behind_the_newest_checkpoint(copy: Copy) -> str:
    """The last rows of a chain that a checkpoint covers, written again as if they had come after it."""
    found = copy.one_of(f"{_ROW} WHERE h.seq > 1 AND h.position <= {_COVERED}")
    _, operation_id, seq, key, _ = found
    (previous,) = copy.rows("SELECT hash FROM history WHERE operation_key = ? AND seq = ?", key, seq - 1)[0]
    ((last,),) = copy.rows("SELECT max(position) FROM history")
    for *row, _, _ in copy.rows(f"{_WHOLE_ROW} WHERE o.key = ? AND h.seq >= ? ORDER BY h.seq", key, seq):
        copy.do("DELETE FROM history WHERE position = ?", row[0])
        last += 1
        row[0] = last
        previous = fields_hash(previous, row)
        _insert(copy, key, row, previous)
    copy.do("UPDATE operations SET head = ? WHERE key = ?", previous, key)
    return rf"row \d+ of {operation_id}[ :]"


# ---- damage to operations ----


def _operation_changed(column: str, *values: Any) -> Damage:
    def damage(copy: Copy) -> str:
        value = copy.rnd.choice(values)
        found = copy.one_of(f"SELECT key, operation_id FROM operations WHERE NOT ({column} IS ?)", value)
        copy.do(f"UPDATE operations SET {column} = ? WHERE key = ?", value, found[0])
        return f"of {found[1]}[ :]"

    damage.__name__ = f"operation_{column}"
    return damage


def a_deadline_was_edited(copy: Copy) -> str:
    key, operation_id, living = copy.one_of("SELECT key, operation_id, living FROM operations")
    document = json.loads(living)
    name = copy.rnd.choice(["create", "result", "cancel", "input", "collect", "attention"])
    deadlines = document.setdefault("deadlines", {})
    deadlines[name] = deadlines.get(name, 0) + 1
    copy.do("UPDATE operations SET living = ? WHERE key = ?", json.dumps(document), key)
    return f"the row of {operation_id}: its {name} deadline is"


# ---- damage to what is signed ----

_SIGNED_HEADS: Final = "SELECT h.checkpoint, h.operation_id FROM heads h JOIN checkpoints c ON c.number = h.checkpoint"


def _checkpoint_changed(column: str, sql: str) -> Damage:
    def damage(copy: Copy) -> str:
        found = copy.one_of("SELECT number FROM checkpoints")
        copy.do(f"UPDATE checkpoints SET {column} = {sql} WHERE number = ?", found[0])
        return f"checkpoint {found[0]}: "

    damage.__name__ = f"checkpoint_{column}"
    return damage


def _head_changed(column: str, sql: str) -> Damage:
    def damage(copy: Copy) -> str:
        found = copy.one_of(_SIGNED_HEADS)
        copy.do(f"UPDATE heads SET {column} = {sql} WHERE checkpoint = ? AND operation_id = ?", *found)
        return f"checkpoint {found[0]}: (its heads|the head of|it was signed over)"

    damage.__name__ = f"head_{column}"
    return damage


def a_head_was_dropped(copy: Copy) -> str:
    found = copy.one_of(_SIGNED_HEADS)
    copy.do("DELETE FROM heads WHERE checkpoint = ? AND operation_id = ?", *found)
    return rf"checkpoint {found[0]}: it was signed over \d+ heads, and \d+ are there"


def a_head_was_added(copy: Copy) -> str:
    found = copy.one_of("SELECT number FROM checkpoints")
    copy.do("INSERT INTO heads VALUES (?, 'op_added', 1, 'x')", found[0])
    return rf"checkpoint {found[0]}: it was signed over \d+ heads, and \d+ are there"


def a_head_stands_under_no_number(copy: Copy) -> str:
    copy.do("INSERT INTO heads VALUES (0, 'op_added', 1, 'x')")
    return "a head stands under checkpoint 0"


def a_checkpoint_was_dropped(copy: Copy) -> str:
    found = copy.one_of("SELECT number FROM checkpoints WHERE number < (SELECT max(number) FROM checkpoints)")
    copy.do("DELETE FROM checkpoints WHERE number = ?", found[0])
    return f"checkpoint {found[0] + 1}: checkpoint {found[0]} was expected"


def a_checkpoint_was_signed_with_another_key(copy: Copy) -> str:
    found = copy.one_of("SELECT * FROM checkpoints ORDER BY number DESC LIMIT 1")
    resigned = OTHER_KEY.sign(Checkpoint(*found[:7]))
    copy.do(
        "UPDATE checkpoints SET signature = ?, public_key = ? WHERE number = ?",
        resigned.signature, resigned.public_key, found[0],
    )  # fmt: skip
    return f"checkpoint {found[0]}: it was signed with another key"


def _pruned_changed(column: str, sql: str, where: str = "1 = 1") -> Damage:
    def damage(copy: Copy) -> str:
        found = copy.one_of(f"SELECT operation_id FROM pruned WHERE {where}")
        copy.do(f"UPDATE pruned SET {column} = {sql} WHERE operation_id = ?", *found)
        return f"the pruned operation {found[0]}|checkpoint \\d+: |of {found[0]}: checkpoint \\d+ signed it"

    damage.__name__ = f"pruned_{column}"
    return damage


def a_pruning_was_dropped(copy: Copy) -> str:
    found = copy.one_of("SELECT operation_id, checkpoint FROM pruned")
    copy.do("DELETE FROM pruned WHERE operation_id = ?", found[0])
    gone = f"of {found[0]}: checkpoint \\d+ signed it, and the operation is gone; no pruning"
    return f"{gone}|checkpoint {found[1]}: it was signed over \\d+ prunings"


def the_count_of_positions_was_raised(copy: Copy) -> str:
    ((last,),) = copy.rows("SELECT seq FROM sqlite_sequence WHERE name = 'history'")
    copy.do("UPDATE sqlite_sequence SET seq = seq + 1 WHERE name = 'history'")
    return f"position {last + 1}: no row stands there"


def the_count_of_positions_was_lowered(copy: Copy) -> str:
    ((last,),) = copy.rows("SELECT seq FROM sqlite_sequence WHERE name = 'history'")
    copy.do("UPDATE sqlite_sequence SET seq = seq - 1 WHERE name = 'history'")
    return f"{last - 1} positions that were given"


def an_operation_was_removed_and_the_count_of_positions_lowered(copy: Copy) -> str:
    """Nothing had signed it, and the sum is right again: but a row stands higher than any position that was given."""
    ((covered,),) = copy.rows(f"SELECT {_COVERED}")
    key, seq = copy.one_of(
        "SELECT key, seq FROM operations o WHERE (SELECT min(position) FROM history WHERE operation_key = o.key) > ?"
        " AND (SELECT max(position) FROM history WHERE operation_key = o.key) < (SELECT max(position) FROM history)",
        covered,
    )
    copy.do("DELETE FROM history WHERE operation_key = ?", key)
    copy.do("DELETE FROM operations WHERE key = ?", key)
    gap = _missing_after_signed(copy)[0]
    copy.do("UPDATE sqlite_sequence SET seq = seq - ? WHERE name = 'history'", seq)
    return f"position {gap}: no row stands there|positions that were given"


_SIGNED_PRUNING: Final = "checkpoint <= (SELECT max(number) FROM checkpoints)"
DAMAGES: Final[tuple[Damage, ...]] = (
    _changed("at", 0, -5, 2**62),
    _changed("actor", "nobody", ""),
    _changed("kind", "fact", "move", "refused"),
    _changed("from_state", "observing", None, "accepted"),
    _changed("to_state", "succeeded", None, "failed"),
    _changed("cause", "x"),
    _changed("remote_job_id", "job_z", None),
    _changed("reason", "", "so it was"),
    _changed("facts", "{}", '{"remote_job_id":"job_z"}', "[", "{"),
    _changed("hash", "", "0" * 64, GENESIS),
    _changed("position", 100_000),
    _operation_changed("seq", 1, 2, 99),
    _operation_changed("head", "", "0" * 64),
    _operation_changed("state", "succeeded", "observing", "blocked", "nonsense"),
    _operation_changed("remote_job_id", "job_z", None),
    _operation_changed("living", "{}", "{oops}", '{"deadlines": 5}', "[]", '{"deadlines":{"other":1}}'),
    _checkpoint_changed("at", "at + 1"),
    _checkpoint_changed("position", "position + 1"),
    _checkpoint_changed("previous", "'x'"),
    _checkpoint_changed("heads", "heads + 1"),
    _checkpoint_changed("heads", "9223372036854775807"),
    _checkpoint_changed("pruned", "pruned + 1"),
    _checkpoint_changed("root", "upper(root)"),
    _checkpoint_changed("hash", "'é'"),
    _checkpoint_changed("public_key", f"'{OTHER_KEY.public_key}'"),
    _checkpoint_changed("signature", "'AAAA'"),
    _head_changed("seq", "seq + 1"),
    _head_changed("head", "'x'"),
    _head_changed("operation_id", "'op_x'"),
    _head_changed("checkpoint", "checkpoint + 1000"),
    _pruned_changed("seq", "seq + 1"),
    _pruned_changed("head", "'x'"),
    _pruned_changed("operation_id", "'op_x'"),
    _pruned_changed("behind", "behind + 1"),
    _pruned_changed("behind", "0"),
    _pruned_changed("pruned_at", "pruned_at + 1", _SIGNED_PRUNING),
    _pruned_changed("checkpoint", "NULL", _SIGNED_PRUNING),
    _pruned_changed("checkpoint", "behind", f"coalesce({_SIGNED_PRUNING}, 0) = 0"),
    a_byte_of_text_changed,
    a_space_in_the_facts,
    a_row_was_removed,
    a_row_was_removed_and_those_after_it_moved_up,
    the_tail_was_cut,
    the_tail_was_cut_and_the_row_mended,
    a_whole_chain_was_cut,
    an_operation_and_its_history_were_removed,
    an_operation_was_removed_and_its_history_left,
    an_operation_was_removed_and_told_to_be_pruned,
    a_pruning_was_told_of_an_operation_that_is_there,
    an_operation_was_told_to_be_pruned_behind_an_earlier_head,
    an_operation_was_invented_where_another_was_pruned,
    a_row_was_appended,
    a_row_was_inserted_for_no_operation,
    two_rows_changed_places_in_one_chain,
    two_rows_changed_places_across_chains,
    two_rows_changed_positions,
    all_positions_after_one_were_renumbered,
    a_row_was_given_to_another_operation,
    history_was_rewritten_and_hashed_anew,
    signed_rows_were_moved_behind_the_newest_checkpoint,
    a_deadline_was_edited,
    a_head_was_dropped,
    a_head_was_added,
    a_head_stands_under_no_number,
    a_checkpoint_was_dropped,
    a_checkpoint_was_signed_with_another_key,
    a_pruning_was_dropped,
    the_count_of_positions_was_raised,
    the_count_of_positions_was_lowered,
    an_operation_was_removed_and_the_count_of_positions_lowered,
)
