"""A process that is killed, for real, while it prunes: the file opens, its chains verify, and the next life goes on."""

import asyncio
import signal
from pathlib import Path
from typing import Any, Final

from reconcile.states import State
from tests.reconcile.rows import DAY, NOW
from tests.reconcile.store.aged import HANGING, check_file, hanging_on, keys_of, writing
from tests.reconcile.store.ground import dump
from tests.stories.stage import ASK_AGAIN, PATIENCE, Home, client_of, serving, settle

#: Ended operations of the file: more than are pruned before a kill arrives.
MANY: Final = 600
#: Lives that end by a kill.
KILLS: Final = 3


def _fill(home: Home) -> tuple[set[int], set[int]]:
    """Many ended operations and a few open ones, nothing signed yet; the keys of either."""
    home.state_dir.mkdir(parents=True)
    with writing(home.database) as aged:
        opens = {aged.operation(n, State.OBSERVING, age=900 * DAY) for n in range(1, MANY, MANY // 5)}
        ended = {aged.operation(n) for n in range(1, MANY) if n not in aged.keys}
        for n in aged.keys:
            aged.items(n, 3)
            aged.observation(n, aged.request(n))
            aged.event(n, age=NOW % DAY)
            aged.client_key(n)
        aged.items(2, 2_000, attempt=2)
        aged.connection.execute("INSERT INTO providers (provider, kind) VALUES ('test', 'openai_batch')")
        aged.page(2, 1)
    return ended, opens


async def _pruned(home: Home, least: int) -> int:
    """Wait until so many are gone; how many are."""
    async with asyncio.timeout(PATIENCE):
        while (count := home.rows("SELECT count(*) AS n FROM pruned")[0]["n"]) < least:  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(ASK_AGAIN)
    return int(count)


def _what_hangs(home: Home, key: int) -> dict[str, list[Any]]:
    """All of one operation but what a life may change: its row in the schedule."""
    found = hanging_on(dump(home.database), home.database, key)
    return {table: rows for table, rows in found.items() if table != "schedule"}


async def test_killed_again_and_again_while_it_prunes_it_loses_nothing_that_is_open(tmp_path: Path) -> None:
    home = settle(tmp_path)
    with home.config.open("a") as file:
        file.write('[retention]\nfinished = "10d"\n')
    ended, opens = _fill(home)
    had = {key: _what_hangs(home, key) for key in opens}

    gone = 0
    for _ in range(KILLS):
        async with serving(home) as daemon:
            gone = await _pruned(home, gone + 20)
            await daemon.stop(signal.SIGKILL)
        check_file(home.database)
        left = keys_of(dump(home.database))
        assert opens <= left.keys()
        for key in opens:
            has = _what_hangs(home, key)
            assert all(row in has[table] for table in HANGING if table != "schedule" for row in had[key][table])
    assert 0 < gone < len(ended), "a kill came too late to tell anything"

    async with serving(home) as daemon, client_of(home) as client:
        await client.until_ready(daemon)
        await _pruned(home, len(ended))
        assert (await client.call("GET", "/v1/operations/op_3")).status == 404
        assert await daemon.stop() == 0
    check_file(home.database)
    assert keys_of(dump(home.database)).keys() == opens
    assert home.rows("SELECT count(*) AS n FROM pruned WHERE checkpoint IS NULL") == [{"n": 0}]
