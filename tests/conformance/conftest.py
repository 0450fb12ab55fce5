"""Every test runs once for each driver."""

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.drivers import DRIVERS
from tests.conformance.owner import Place


@pytest.fixture(scope="session", params=sorted(DRIVERS))
def places(request: pytest.FixtureRequest) -> Iterator[Callable[[], Place]]:
    """Gives a fresh place with each call."""
    with DRIVERS[request.param]() as fresh:
        yield fresh


@pytest.fixture
def place(places: Callable[[], Place]) -> Place:
    """A place in which nothing was ever kept."""
    return places()
