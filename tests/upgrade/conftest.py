"""The ground of the simulated stories, for worlds that begin with a kept file."""

from tests.simulation.conftest import folder, frozen_heap

__all__ = ["folder", "frozen_heap"]
