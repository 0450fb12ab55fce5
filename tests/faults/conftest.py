"""One nursery for all tests here, so that Python reads the modules once."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.faults.disk import made
from tests.faults.nursery import Nursery, nursery


@pytest_asyncio.fixture(scope="package", loop_scope="package")
async def lives(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Nursery]:
    """Where daemons come from, each on a disk of its own."""
    async with nursery(made(tmp_path_factory.mktemp("disk"))) as opened:
        yield opened
