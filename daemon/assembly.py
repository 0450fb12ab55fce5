"""The rooms of one process put together, the same in production and in a simulated world: only the seams differ."""

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver

from daemon import own_secrets
from daemon.alarm import Alarm
from daemon.config import Config
from daemon.measuring import measured_by, own_numbers
from daemon.peers import contracts_of, peers_of
from daemon.runtime import SystemResolver
from daemon.standing import Standing, held_against
from handlers.access import Token
from handlers.announcement import announce_by
from handlers.api.app import build_local_app
from handlers.api.deps import LocalDeps
from handlers.webhooks import PublicDeps, build_public_app
from reconcile.callback import Callbacks
from reconcile.changes import Changes
from reconcile.checkpoint import AuditKey
from reconcile.client import Client
from reconcile.collect import Caps, Collector
from reconcile.courier import Courier
from reconcile.desk import Desk
from reconcile.files import Files
from reconcile.ingest import Ingest, judge_by
from reconcile.notary import Notary
from reconcile.outbox import Outbox
from reconcile.pace_keeper import PaceKeeper
from reconcile.paces import Paces
from reconcile.peer import Peer, served_by
from reconcile.redact import Redactor
from reconcile.registry import KINDS, provider_for
from reconcile.report import Reporter
from reconcile.restored import Restored
from reconcile.retention import Retention
from reconcile.seams import Clock, Dice, Meters, Supervisor
from reconcile.start import Starter
from reconcile.store.events import HasRead
from reconcile.store.schema import Opener, newest
from reconcile.store.store import Store, open_store
from reconcile.store.writer import Hooks
from reconcile.sweep import Sweeper
from reconcile.upkeep import Upkeep
from reconcile.watchman import Watchman
from reconcile.worker import Worker


@dataclass(slots=True)
class Seams:
    """Everything that differs between production and a simulated world."""

    clock: Clock
    dice: Dice
    supervisor: Supervisor
    meters: Meters
    opener: Opener
    connector: Callable[[], aiohttp.BaseConnector]
    log: Any
    hooks: Hooks = field(default_factory=Hooks)
    file_hook: Callable[[str, Path], None] | None = None
    #: Looks up the names of callbacks, whose addresses are judged before they are connected to.
    resolver: Callable[[], AbstractResolver] = SystemResolver


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


def version() -> str:
    """The version of the installed distribution."""
    try:
        return metadata.version("reconciled")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"


async def assemble(config: Config, seams: Seams, *, local_hosts: Container[str]) -> Daemon:
    """Open the store and put the rooms together; only under the lock of `config.state_dir`.

    Raises: SchemaTooNew, StoreBusy, ConfigError, OSError.
    """
    redactor = Redactor(config.secrets)
    peers = peers_of(config)
    files = Files(config.state_dir, seams.supervisor, seams.file_hook)
    changes, stopping = Changes(), asyncio.Event()
    alarm = Alarm()
    paces = Paces.of({name: peer.provider.contract for name, peer in peers.items()}, served_by(peers.values()))
    callbacks = Callbacks(config.callbacks.values())
    reporter = Reporter(
        changes=changes,
        meters=seams.meters,
        clock=seams.clock,
        log=seams.log,
        on_due=alarm,
        on_change=paces.take,
        on_delivery=alarm.delivery_waits,
    )
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
    client = Client(
        connector=seams.connector,
        clock=seams.clock,
        dice=seams.dice,
        files=files,
        redactor=redactor,
        meters=seams.meters,
        max_answer=config.caps.answer,
        log=seams.log,
    )
    ingest = Ingest(
        store=store,
        contracts=contracts_of(peers),
        reporter=reporter,
        clock=seams.clock,
        dice=seams.dice,
        redactor=redactor,
    )
    collector = Collector(client=client, store=store, files=files, clock=seams.clock, caps=_caps(config))
    owner = seams.dice.identifier("boot_")
    pace_keeper = PaceKeeper(
        served=stands.served, paces=paces, store=store, clock=seams.clock, dice=seams.dice, log=seams.log
    )
    sweeper = Sweeper(
        owner=owner,
        peers=peers,
        served=stands.served,
        paces=paces,
        cursors=pace_keeper.cursors,
        store=store,
        client=client,
        ingest=ingest,
        clock=seams.clock,
        dice=seams.dice,
        log=seams.log,
    )
    worker = Worker(
        owner=owner,
        peers=peers,
        store=store,
        client=client,
        ingest=ingest,
        collector=collector,
        files=files,
        pace_keeper=pace_keeper,
        sweeper=sweeper,
        clock=seams.clock,
        supervisor=seams.supervisor,
        log=seams.log,
        on_pause=alarm.pause_changed,
    )
    alarm.wake = worker.wake
    outbox = _outbox(seams, store, callbacks)
    alarm.deliver = outbox.wake
    alarm.steps = (worker.clock_stepped, outbox.clock_stepped)
    watchman = _watchman(seams, store, peers, files, stands, paces, on_step=alarm.clock_stepped)
    alarm.look = watchman.wake
    return Daemon(
        store=store,
        peers=peers,
        paces=paces,
        pace_keeper=pace_keeper,
        sweeper=sweeper,
        worker=worker,
        outbox=outbox,
        watchman=watchman,
        upkeep=_upkeep(seams, store, files, collector, audit_key, _retention(config, seams, store, files, peers)),
        restored=_restored(seams, store, ingest, peers, files),
        client=client,
        ingest=ingest,
        changes=changes,
        public=_public(config, seams, peers, ingest, store),
        local=_local(
            config, seams, store, ingest, changes, files, peers, callbacks, stopping, tokens=tokens, hosts=local_hosts
        ),
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


def _caps(config: Config) -> Caps:
    return Caps(result=config.caps.result, line=config.caps.line)


def _upkeep(
    seams: Seams, store: Store, files: Files, collector: Collector, key: AuditKey, retention: Retention
) -> Upkeep:
    return Upkeep(
        store=store,
        files=files,
        collector=collector,
        notary=Notary(record=store.record, key=key, clock=seams.clock, log=seams.log),
        retention=retention,
        clock=seams.clock,
        log=seams.log,
    )


def _restored(seams: Seams, store: Store, ingest: Ingest, peers: Mapping[str, Peer], files: Files) -> Restored:
    return Restored(
        store=store,
        ingest=ingest,
        peers=peers,
        files=files,
        clock=seams.clock,
        supervisor=seams.supervisor,
        log=seams.log,
    )


def _public(config: Config, seams: Seams, peers: Mapping[str, Peer], ingest: Ingest, store: Store) -> web.Application:
    deps = PublicDeps(
        peers=peers,
        has_open=store.has_open,
        keys={p.name: p.webhook_keys for p in config.providers.values() if p.provider.contract.webhook is not None},
        ingest=ingest,
        clock=seams.clock,
        meters=seams.meters,
        log=seams.log,
        max_body=config.max_body,
    )
    return build_public_app(deps)


def _local(
    config: Config,
    seams: Seams,
    store: Store,
    ingest: Ingest,
    changes: Changes,
    files: Files,
    peers: Mapping[str, Peer],
    callbacks: Callbacks,
    stopping: asyncio.Event,
    *,
    tokens: Sequence[Token],
    hosts: Container[str],
) -> web.Application:
    deps = LocalDeps(
        store=store,
        changes=changes,
        desk=Desk(ingest=ingest, peers=peers, files=files, dice=seams.dice),
        starter=Starter(
            store=store,
            files=files,
            clock=seams.clock,
            dice=seams.dice,
            max_input=config.caps.input,
            max_line=config.caps.line,
            callbacks=callbacks,
        ),
        callbacks=callbacks,
        files=files,
        peers=peers,
        clock=seams.clock,
        dice=seams.dice,
        meters=seams.meters,
        log=seams.log,
        tokens=tokens,
        hosts=hosts,
        version=version(),
        started_at=seams.clock.now(),
        max_start_body=config.caps.start_body,
        is_ready=lambda: store.is_writable and not stopping.is_set(),
        process=own_numbers,
    )
    return build_local_app(deps)


def _watchman(
    seams: Seams,
    store: Store,
    peers: Mapping[str, Peer],
    files: Files,
    stands: Standing,
    paces: Paces,
    *,
    on_step: Callable[[], None],
) -> Watchman:
    return Watchman(
        store=store,
        peers=peers,
        files=files,
        clock=seams.clock,
        supervisor=seams.supervisor,
        served=stands.served if stands.absent() else None,
        sources=(paces.silent,),
        on_step=on_step,
        log=seams.log,
    )


def _outbox(seams: Seams, store: Store, callbacks: Callbacks) -> Outbox:
    return Outbox(
        deliveries=store.deliveries,
        callbacks=callbacks,
        courier=Courier(connector=seams.connector, resolver=seams.resolver, clock=seams.clock),
        clock=seams.clock,
        dice=seams.dice,
        supervisor=seams.supervisor,
        meters=seams.meters,
        log=seams.log,
    )


def _retention(config: Config, seams: Seams, store: Store, files: Files, peers: Mapping[str, Peer]) -> Retention:
    terms = {name: peer.provider.contract.webhook for name, peer in peers.items()}
    known = [webhook.retries_ms for kind in KINDS if (webhook := provider_for(kind).contract.webhook) is not None]
    return Retention(
        record=store.record,
        files=files,
        clock=seams.clock,
        finished_ms=config.finished_ms,
        retries_ms={name: webhook.retries_ms for name, webhook in terms.items() if webhook is not None},
        longest_retry_ms=max(known, default=0),
        log=seams.log,
    )
