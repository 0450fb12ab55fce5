"""Lists of the local API: narrowed by what is known, by nothing else, and refused where nothing can be read now."""

import pytest

from tests.handlers.ground import Ground
from tests.handlers.test_operations_api import assert_problem
from tests.reconcile.store.ground import beside


@pytest.mark.parametrize(
    "path", ["/v1/operations", "/v1/operations/op_1", "/v1/operations/op_1/history", "/v1/inbox", "/v1/status"]
)
async def test_what_cannot_be_read_is_to_be_asked_for_again(ground: Ground, path: str) -> None:
    """503 with Retry-After, and no word of something that was not stored: nothing was to be."""
    with beside(ground.folder / "reconciled.db", writes=True) as connection:
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute("ALTER TABLE operations RENAME TO gone")
    answer = await ground.api("GET", path)
    assert assert_problem(answer, 503)["title"] == "Not readable"
    assert int(answer.headers["Retry-After"]) > 0
