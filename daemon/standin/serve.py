"""One stand-in server from its options: listens, tells its address, serves every shape until told to stop."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Final

import aiohttp
from aiohttp import web
from structlog.typing import FilteringBoundLogger

from daemon.standin.anthropic_face import add_message_batches
from daemon.standin.openai_face import build_app
from daemon.standin.scenarios import find_scenario
from daemon.standin.world import World
from reconcile.errors import ConfigError
from reconcile.seams import Clock, Dice, Supervisor

#: A webhook's receiver has so long to answer, seconds: Standard Webhooks asks for 15 to 30.
WEBHOOK_TIMEOUT_SECONDS: Final = 15
#: Requests under way at the stop have so long to end, seconds. Arbitrary.
STOP_SECONDS: Final = 1


@dataclasses.dataclass(frozen=True)
class StandinOptions:
    """What a stand-in server is started with. Port 0: any free one."""

    host: str = "127.0.0.1"
    port: int = 0
    scenario: str = "normal"
    webhook_url: str | None = None
    webhook_secret: str | None = dataclasses.field(default=None, repr=False)
    #: 10 makes every job and every delay ten times as fast.
    speed: float = 1.0

    def __post_init__(self) -> None:
        """Raises: ConfigError, RequestInvalid (no such scenario)."""
        if (self.webhook_url is None) != (self.webhook_secret is None):
            raise ConfigError("simulate", "webhook", "only one of them", "a webhook URL and a secret, or neither")
        if not self.speed > 0:
            raise ConfigError("simulate", "speed", str(self.speed), "a number above 0")
        find_scenario(self.scenario, "/scenario")


async def run_standin(
    options: StandinOptions,
    *,
    clock: Clock,
    dice: Dice,
    supervisor: Supervisor,
    log: FilteringBoundLogger,
    stop: asyncio.Event,
    on_ready: Callable[[str], None],
    world: World | None = None,
) -> None:
    """Serve until `stop` is set. `on_ready` gets the bound address, such as `http://127.0.0.1:40123`.

    Whoever wants to know afterwards what happened hands the `world` in; the options' scenario and speed are then its.

    Raises:
        SecretInvalid: the webhook secret is not one.
        OSError: the address cannot be bound.
    """
    if world is None:
        world = World(find_scenario(options.scenario), ids=dice.identifier, speed=options.speed)
    app = build_app(
        world,
        clock,
        supervisor,
        webhook_url=options.webhook_url,
        webhook_secret=options.webhook_secret,
        session_factory=_session,
        log=log,
    )
    add_message_batches(app, world, clock)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=STOP_SECONDS)
    await runner.setup()
    try:
        await web.TCPSite(runner, options.host, options.port).start()
        host, port = runner.addresses[0][:2]
        url = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        log.info("standin_ready", url=url, scenario=options.scenario)
        on_ready(url)
        await stop.wait()
    finally:
        await runner.cleanup()


def _session() -> aiohttp.ClientSession:
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=WEBHOOK_TIMEOUT_SECONDS))
