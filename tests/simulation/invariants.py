"""What must hold in a told story: one client's one operation at the stand-in, and whoever is called back of it.

The rules compare the file as it stands between two lives with what happened outside the process: the provider's own
jobs, uploads and log of requests, what the client was told, what the webhook's sender was told. The file is never
believed by itself. Rules on roads that are not walked here (inbox decisions) have no function.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from tests.simulation.rules import record, story_ends, story_sends, story_tellings
from tests.simulation.view import View, load
from tests.simulation.world import SimWorld


def check(world: SimWorld, *, at_the_end: bool) -> list[str]:
    """All rules on the world as it stands; `at_the_end`: the story is over and nothing was left broken."""
    if not world.database.exists():
        told = [*world.client.started, *world.provider.acks, *world.provider.log.creates]
        return [f"N18: {told} was acknowledged or sent, and there is no file"] if told else []
    view = load(world)
    found = [f"{name}: {words}" for name, rule in RULES.items() for words in rule(view)]
    if at_the_end:
        found += [f"{name}: {words}" for name, rule in ENDINGS.items() for words in rule(view)]
        found += [f"life {life.number}: {words}" for life in world.lives if life.ended for words in life.troubles]
    return found


RULES: Final[Mapping[str, Callable[[View], Iterator[str]]]] = {
    "N1": story_sends.n1_a_create_has_its_row,
    "N2": story_sends.n2_creates_are_equal,
    "N3": story_sends.n3_one_job,
    "N4": story_sends.n4_names_differ,
    "N5": story_sends.n5_a_job_id_is_written_once,
    "N7": record.n7_moves_are_legal,
    "N8": record.n8_one_end,
    "N9": record.n9_causes_exist,
    "N10": story_ends.n10_ends_fit_their_counts,
    "N11": story_ends.n11_no_end_against_the_truth,
    "N12": story_ends.n12_items_add_up,
    "N15": story_sends.n15_a_cancel_is_a_wish,
    "N17": story_tellings.n17_one_effect_an_event,
    "N18": story_tellings.n18_acks_are_durable,
    "N20": story_ends.n20_success_was_read,
    "N23": story_ends.n23_something_always_comes_next,
    "N26": record.n26_the_chain_holds,
    "N27": record.n27_history_folds_to_the_row,
    "N28": story_tellings.n28_all_or_nothing,
    "N29": story_tellings.n29_callbacks_tell_what_was_kept,
}
ENDINGS: Final[Mapping[str, Callable[[View], Iterator[str]]]] = {
    "N23": story_ends.n23_it_ends,
    "N29": story_tellings.n29_all_are_told,
}
