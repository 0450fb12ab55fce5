"""All that must hold in any random world, run after each crash and at the end."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.simulation.histories.rules import deadlines, ends, jobs, paces, promises, sends, tellings, wishes
from tests.simulation.histories.rules.seen import Seen
from tests.simulation.histories.world import HistoryWorld
from tests.simulation.rules import record
from tests.simulation.view import View, load


def check(world: HistoryWorld, *, at_the_end: bool) -> list[str]:
    """All rules on the world as it stands; `at_the_end`: every life is over."""
    acks = [ack for sender in world.senders.values() for ack in sender.acks]
    started = [op for customer in world.customers for op in customer.told.started]
    if not world.database.exists():
        told = [*acks, *started, *world.sends]
        return [f"N18: {told[:3]} was acknowledged or sent, and there is no file"] if told else []
    seen = Seen(world, load(world), at_the_end)
    found = [f"{name}: {words}" for name, rule in RULES.items() for words in rule(seen)]
    if at_the_end:
        found += [f"{name}: {words}" for name, rule in ENDINGS.items() for words in rule(seen)]
    return found


def of_the_record(rule: Callable[[View], Iterator[str]]) -> Callable[[Seen], Iterator[str]]:
    """A rule that looks at the file alone."""
    return lambda seen: rule(seen.view)


RULES: Final[Mapping[str, Callable[[Seen], Iterator[str]]]] = {
    "N1": sends.n1_a_row_before_each_send,
    "N2": sends.n2_creates_are_equal,
    "N3": jobs.n3_one_job,
    "N3 (told)": jobs.n3_two_jobs_are_told,
    "N4": sends.n4_names_differ,
    "N5": jobs.n5_a_job_id_is_written_once,
    "N6": sends.n6_a_refusal_is_the_end,
    "N7": of_the_record(record.n7_moves_are_legal),
    "N8": of_the_record(record.n8_one_end),
    "N9": wishes.n9_causes_exist,
    "N10": ends.n10_ends_fit_their_counts,
    "N11": ends.n11_no_end_against_the_truth,
    "N12": ends.n12_items_add_up,
    "N15": wishes.n15_a_cancel_is_a_wish,
    "N15 (inputs)": wishes.inputs_are_sent_once,
    "N17": tellings.n17_one_effect_an_event,
    "N18": tellings.n18_acks_are_durable,
    "N20": ends.n20_success_was_read,
    "N21": paces.n21_polls_keep_their_distance,
    "N21 (Retry-After)": paces.n21_retry_after_is_kept,
    "N19": tellings.n19_an_event_finds_its_operation,
    "N19 (rings)": paces.n19_a_ring_is_answered,
    "N21 (budget)": paces.n21_a_good_read_resets_the_budget,
    "N21 (errors)": paces.n21_a_good_read_leaves_no_errors,
    "N22": deadlines.n22_a_deadline_is_a_wall_clock,
    "N22 (last read)": deadlines.n22_after_one_last_read,
    "N23": deadlines.n23_something_always_comes_next,
    "N26": of_the_record(record.n26_the_chain_holds),
    "N27": of_the_record(record.n27_history_folds_to_the_row),
    "N28": wishes.n28_all_or_nothing,
    "N29": tellings.n29_an_effect_once,
    "N31": sends.n31_a_violation_stops_everything,
    "N32": wishes.n32_only_what_is_open_is_decided,
    "N38": sends.n38_credentials_stay_home,
    "N23 (due)": promises.what_is_due_is_done,
    "N23 (ends)": promises.an_end_is_found,
    "N23 (waiters)": promises.who_waits_is_told,
    "N22 (early)": promises.no_deadline_is_early,
    "N22 (decisions)": promises.a_decision_gives_time,
    "N22 (once)": promises.a_deadline_is_set_once,
    "N21 (gone)": promises.a_job_is_gone_after_a_whole_run,
    "N21 (budget kept)": promises.errors_keep_to_their_budget,
    "N21 (restarts)": promises.a_wait_outlives_the_process,
    "N21 (tries)": promises.tries_keep_their_distance,
    "N3 (re-sends)": promises.a_resend_waits,
    "N15 (taken)": promises.a_cancel_that_was_taken_is_sent,
    "N12 (each)": promises.each_item_is_what_it_was,
    "N12 (newest)": promises.the_newest_result_is_served,
    "N8 (told)": promises.a_contradiction_is_told,
    "N29 (given)": promises.a_claim_is_given,
    "N29 (distance)": promises.callbacks_keep_their_distance,
    "N33 (lives)": promises.lives_end_as_they_were_to,
}
ENDINGS: Final[Mapping[str, Callable[[Seen], Iterator[str]]]] = {
    "N23": deadlines.n23_it_ends,
    "N18": tellings.everybody_was_told,
    "N28 (files)": promises.nothing_is_left_over,
}
