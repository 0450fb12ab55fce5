"""Fixtures of the handler tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.handlers.ground import Ground, running


@pytest.fixture
async def ground(tmp_path: Path) -> AsyncIterator[Ground]:
    """The daemon with one provider, `openai`, and its worker off."""
    async with running(tmp_path / "state") as g:
        yield g
