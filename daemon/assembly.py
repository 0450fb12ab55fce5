"""The rooms of one process put together, the same in production and in a simulated world: only the seams differ."""

import asyncio
from collections.abc import Container, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any

from aiohttp import web

from daemon import own_secrets, rooms
from daemon.config import Config
from daemon.peers import contracts_of, peers_of
from daemon.process_numbers import begin, measured_by
from daemon.relay import Relay
from daemon.rooms import Ground, Seams
from daemon.standing import Standing, held_against
from handlers.access import Token
from handlers.announcement import announce_by
from reconcile.callback import Callbacks
from reconcile.changes import Changes
from reconcile.checkpoint import AuditKey
from reconcile.client import Client
from reconcile.files import Files
from reconcile.ingest import Ingest, judge_by
from reconcile.outbox import Outbox
from reconcile.pace_keeper import PaceKeeper
from reconcile.paces import Paces
from reconcile.peer import Peer, served_by
from reconcile.redact import Redactor
from reconcile.restored import Restored
from reconcile.seams import Clock, Dice, Supervisor
from reconcile.store.events import HasRead
from reconcile.store.schema import newest
from reconcile.store.store import Store, open_store
from reconcile.sweep import Sweeper
from reconcile.upkeep import Upkeep
from reconcile.watchman import Watchman
from reconcile.worker import Worker


@dataclass(slots=True)
class Daemon:
    """An assembled daemon, not yet listening."""

    store: Store
    peers: Mapping[str, Peer]
    paces: Paces
    pace_keeper: PaceKeeper
    sweeper: Sweeper
    worker: Worker
    outbox: Outbox
    watchman: Watchman
    upkeep: Upkeep
    restored: Restored
    client: Client
    ingest: Ingest
    changes: Changes
    public: web.Application
    local: web.Application
    #: Set as soon as the daemon stops: from then on it is not ready.
    stopping: asyncio.Event
    token: str
    #: Of the key that signs checkpoints: who checks them needs it from a second place than the file.
    audit_public_key: str
    standing: Standing
    clock: Clock
    supervisor: Supervisor
    log: Any

    async def recover(self) -> None:
        """What every start does under the lock, before it listens; the writer must be running.

        Raises: StoreError, OSError.
        """
        await self.store.release_all()
        await self.restored.make_up()  # first of all: nothing may be sent, rung or tidied before
        await self.store.know_providers(self.standing.kinds)
        await self._rouse()
        await self.pace_keeper.recall()
        await self.worker.recall_pauses()
        await self.outbox.recover()
        await self.watchman.cut_waits()  # the last process may have written them by a clock that was ahead
        await self.upkeep.look()

    async def _rouse(self) -> None:
        """Make due what the configuration of this start concerns, and say so."""
        roused = await self.store.rouse(self.standing.served, self.clock.now())
        for name, count in roused.back.items():
            self.log.info("provider_back", provider=name, operations=count)
        for (name, absence), count in self.standing.absent().items():
            self.log.warning(absence.value, provider=name, operations=count)


async def assemble(config: Config, seams: Seams, *, local_hosts: Container[str]) -> Daemon:
    """Open the store and put the rooms together; only under the lock of `config.state_dir`.

    Raises: SchemaTooNew, StoreBusy, ConfigError, OSError.
    """
    peers = peers_of(config)
    files = Files(config.state_dir, seams.supervisor, seams.file_hook)
    changes, stopping = Changes(), asyncio.Event()
    relay = Relay()
    paces = Paces.of({name: peer.provider.contract for name, peer in peers.items()}, served_by(peers.values()))
    callbacks = Callbacks(config.callbacks.values())
    begin(seams.meters, peers, callbacks.names)
    reporter = rooms.reporter_to(seams, changes, paces, relay)
    store = await open_store(
        str(config.state_dir / "reconciled.db"),
        opener=seams.opener,
        judge=judge_by(contracts_of(peers), paces),
        has_read=HasRead(name for name, peer in peers.items() if not peer.provider.contract.has_read),
        on_done=reporter,
        announce=announce_by(contracts_of(peers), callbacks),
        hooks=seams.hooks,
        measured=measured_by(seams.meters, seams.clock),
    )
    if store.found_schema not in (0, newest()):
        seams.log.info("upgraded", from_schema=store.found_schema, to_schema=newest())
    async with AsyncExitStack() as undo:
        undo.push_async_callback(store.close)
        tokens, audit_key = _move_in(config, files, seams.dice)
        stands = await held_against(store, config, peers)
        undo.pop_all()
    redactor = Redactor((*config.secrets, *(token.value for token in tokens)))  # also the one that we made
    ground = Ground(config, seams, store, files, peers, callbacks, redactor)
    client, ingest = rooms.client_on(ground), rooms.ingest_on(ground, reporter, paces)
    collector = rooms.collector_on(ground, client)
    owner = seams.dice.identifier("boot_")
    pace_keeper = rooms.pace_keeper_on(ground, stands, paces)
    sweeper = rooms.sweeper_on(ground, stands, paces, pace_keeper, client, ingest, owner=owner)
    worker = rooms.worker_on(
        ground, pace_keeper, sweeper, client, ingest, collector, owner=owner, on_pause=relay.pause_changed
    )
    relay.wake = worker.wake
    outbox = rooms.outbox_on(ground)
    relay.deliver = outbox.wake
    relay.steps = (worker.clock_stepped, outbox.clock_stepped)
    watchman = rooms.watchman_on(ground, stands, paces, on_step=relay.clock_stepped)
    relay.look = watchman.wake
    return Daemon(
        store=store,
        peers=peers,
        paces=paces,
        pace_keeper=pace_keeper,
        sweeper=sweeper,
        worker=worker,
        outbox=outbox,
        watchman=watchman,
        upkeep=rooms.upkeep_on(ground, collector, audit_key),
        restored=rooms.restored_on(ground, ingest),
        client=client,
        ingest=ingest,
        changes=changes,
        public=rooms.public_app(ground, ingest),
        local=rooms.local_app(ground, ingest, changes, stopping, tokens=tokens, hosts=local_hosts),
        stopping=stopping,
        token=tokens[0].value,
        audit_public_key=audit_key.public_key,
        standing=stands,
        clock=seams.clock,
        supervisor=seams.supervisor,
        log=seams.log,
    )


def _move_in(config: Config, files: Files, dice: Dice) -> tuple[Sequence[Token], AuditKey]:
    """Folders and secrets of our own, only once the file was taken: a newer release's is left alone, and all by it."""
    files.prepare()
    return own_secrets.api_tokens(config, files, dice), own_secrets.audit_key(config, files, dice)
