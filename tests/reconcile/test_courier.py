"""One attempt on the wire: where it connects to, what it says there, and what it makes of the answer."""

import asyncio
from typing import Any, Final

import aiohttp
import pytest
from yarl import URL

from reconcile.callback import Attempt, Callback
from reconcile.courier import Courier
from reconcile.signatures import Key, KeyType
from reconcile.store.deliveries import Delivery
from tests.handlers.ground import HandClock

CI: Final = Callback("ci", URL("https://ci.example.com/hooks/"), (Key(KeyType.HMAC, b"k" * 24),))


class Asked(aiohttp.BaseConnector):
    """Connects to nothing, and keeps what it was asked to connect to."""

    def __init__(self, *, reaches: bool) -> None:
        super().__init__()
        self.asked: list[tuple[str | None, str | None, str | None]] = []
        self._reaches = reaches

    async def _create_connection(self, req: Any, traces: Any, timeout: Any) -> Any:  # noqa: ASYNC109 - its own
        self.asked.append((req.url.host, req.server_hostname, req.headers["Host"]))
        if self._reaches:
            raise aiohttp.ServerDisconnectedError
        raise aiohttp.ClientConnectorError(req.connection_key, OSError("nobody is there"))


class Names:
    """A resolver whose answers change from one look-up to the next."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def resolve(self, host: str, port: int = 0, family: Any = None) -> list[Any]:
        if not self.answers:
            raise OSError("no such name")
        return [{"host": address} for address in self.answers.pop(0)]

    async def close(self) -> None:
        pass


async def sent(
    *answers: list[str],
    callback: Callback = CI,
    url: str = "https://ci.example.com/hooks/x",
    reaches: bool = False,
    times: int = 1,
) -> tuple[Attempt, list[tuple[str | None, str | None, str | None]]]:
    """What the last of some attempts came to, and what they connected to."""
    connector, names = Asked(reaches=reaches), Names(*answers)
    courier = Courier(connector=lambda: connector, resolver=lambda: names, clock=HandClock())  # type: ignore[arg-type,return-value]
    delivery = Delivery("msg_1", "op_1", "ci", url, "operation.done", b"{}", 0)
    try:
        for _ in range(times):
            attempt = await courier.deliver(callback, delivery)
        return attempt, connector.asked
    finally:
        await courier.close()


async def test_the_checked_address_is_the_one_connected_and_the_name_stands_in_host_and_tls() -> None:
    """S31: a second look-up, with another answer, is never made."""
    attempt, asked = await sent(["93.184.215.14"], ["127.0.0.1"])
    assert asked == [("93.184.215.14", "ci.example.com", "ci.example.com")]
    assert attempt == Attempt(None, "connect")


async def test_a_name_that_changes_between_two_attempts_is_judged_at_each() -> None:
    attempt, asked = await sent(["93.184.215.14"], ["127.0.0.1"], times=2)
    assert len(asked) == 1
    assert attempt == Attempt(None, "address_refused: 127.0.0.1 (loopback)")


async def test_of_several_addresses_the_refused_ones_are_left_out_and_the_others_tried_in_turn() -> None:
    _, asked = await sent(["10.0.0.1", "2606:2800:21f::1", "127.0.0.1", "93.184.215.14"])
    assert [host for host, *_ in asked] == ["2606:2800:21f::1", "93.184.215.14"]


async def test_once_connected_no_other_address_is_tried() -> None:
    """What may have arrived is repeated by the schedule, not at once."""
    attempt, asked = await sent(["93.184.215.14", "93.184.215.15"], reaches=True)
    assert [host for host, *_ in asked] == ["93.184.215.14"]
    assert attempt == Attempt(None, "reset")


async def test_a_port_that_is_spelled_out_stands_in_host() -> None:
    ci = Callback("ci", URL("http://ci.example.com:8080/hooks/"), CI.keys)
    _, asked = await sent(["93.184.215.14"], callback=ci, url="http://ci.example.com:8080/hooks/x")
    assert asked == [("93.184.215.14", "ci.example.com", "ci.example.com:8080")]


@pytest.mark.parametrize("answers", [[], [[]]])
async def test_a_name_that_leads_nowhere_is_a_failed_attempt(answers: list[list[str]]) -> None:
    assert await sent(*answers) == (Attempt(None, "dns"), [])


async def test_a_url_that_its_callback_does_not_cover_any_more_is_not_sent() -> None:
    assert await sent(["93.184.215.14"], url="https://old.example.com/x") == (Attempt(None, "callback_moved"), [])


async def test_an_address_that_is_written_out_is_not_looked_up() -> None:
    ci = Callback("ci", URL("http://10.0.0.1/"), CI.keys)
    _, asked = await sent(callback=ci, url="http://10.0.0.1/x")
    assert asked == [("10.0.0.1", None, "10.0.0.1")]


async def test_a_target_that_never_answers_is_given_up_after_thirty_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("reconcile.courier.ATTEMPT_SECONDS", 0.05)

    class Silent(Names):
        async def resolve(self, host: str, port: int = 0, family: Any = None) -> list[Any]:
            await asyncio.Event().wait()
            return []

    silent: Any = Silent()
    courier = Courier(connector=lambda: Asked(reaches=False), resolver=lambda: silent, clock=HandClock())
    delivery = Delivery("msg_1", "op_1", "ci", "https://ci.example.com/hooks/x", "operation.done", b"{}", 0)
    assert await courier.deliver(CI, delivery) == Attempt(None, "timeout")
    await courier.close()
