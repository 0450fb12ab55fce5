"""How each room is made of what they all stand on; assembly.py puts them together."""

import asyncio
from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from aiohttp.abc import AbstractResolver

from daemon.config import Config
from daemon.peers import contracts_of
from daemon.process_numbers import own_numbers
from daemon.relay import Relay
from daemon.runtime import SystemResolver
from daemon.standing import Standing
from daemon.version import version
from handlers.access import Token
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
from reconcile.ingest import Ingest
from reconcile.notary import Notary
from reconcile.outbox import Outbox
from reconcile.pace_keeper import PaceKeeper
from reconcile.paces import Paces
from reconcile.peer import Peer
from reconcile.redact import Redactor
from reconcile.registry import KINDS, provider_for
from reconcile.report import Reporter
from reconcile.restored import Restored
from reconcile.retention import Retention
from reconcile.seams import Clock, Dice, Meters, Supervisor
from reconcile.start import Starter
from reconcile.store.schema import Opener
from reconcile.store.store import Store
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


@dataclass(frozen=True, slots=True)
class Ground:
    """What every room stands on."""

    config: Config
    seams: Seams
    store: Store
    files: Files
    peers: Mapping[str, Peer]
    callbacks: Callbacks
    redactor: Redactor


def reporter_to(seams: Seams, changes: Changes, paces: Paces, relay: Relay) -> Reporter:
    """What is told of each commit; made before the file is opened, which tells it."""
    return Reporter(
        changes=changes,
        meters=seams.meters,
        clock=seams.clock,
        log=seams.log,
        on_due=relay,
        on_change=paces.take,
        on_delivery=relay.delivery_waits,
    )


def client_on(ground: Ground) -> Client:
    """All outgoing requests to providers."""
    seams = ground.seams
    return Client(
        connector=seams.connector,
        clock=seams.clock,
        dice=seams.dice,
        files=ground.files,
        redactor=ground.redactor,
        meters=seams.meters,
        max_answer=ground.config.caps.answer,
        log=seams.log,
    )


def ingest_on(ground: Ground, reporter: Reporter, paces: Paces) -> Ingest:
    """The one road by which evidence comes in."""
    return Ingest(
        store=ground.store,
        contracts=contracts_of(ground.peers),
        reporter=reporter,
        clock=ground.seams.clock,
        dice=ground.seams.dice,
        redactor=ground.redactor,
        pace=paces,
    )


def collector_on(ground: Ground, client: Client) -> Collector:
    """Results, fetched and checked."""
    sizes = ground.config.caps
    caps = Caps(result=sizes.result, line=sizes.line, answer=sizes.answer)
    return Collector(client=client, store=ground.store, files=ground.files, clock=ground.seams.clock, caps=caps)


def pace_keeper_on(ground: Ground, stands: Standing, paces: Paces) -> PaceKeeper:
    """How often jobs and lists are read, over restarts."""
    seams = ground.seams
    return PaceKeeper(
        served=stands.served, paces=paces, store=ground.store, clock=seams.clock, dice=seams.dice, log=seams.log
    )


def sweeper_on(
    ground: Ground,
    stands: Standing,
    paces: Paces,
    pace_keeper: PaceKeeper,
    client: Client,
    ingest: Ingest,
    *,
    owner: str,
) -> Sweeper:
    """Whole accounts, read by their lists."""
    return Sweeper(
        owner=owner,
        peers=ground.peers,
        served=stands.served,
        paces=paces,
        cursors=pace_keeper.cursors,
        store=ground.store,
        client=client,
        ingest=ingest,
        clock=ground.seams.clock,
        dice=ground.seams.dice,
        log=ground.seams.log,
    )


def worker_on(
    ground: Ground,
    pace_keeper: PaceKeeper,
    sweeper: Sweeper,
    client: Client,
    ingest: Ingest,
    collector: Collector,
    *,
    owner: str,
    on_pause: Callable[[], None],
) -> Worker:
    """What is due, done."""
    return Worker(
        owner=owner,
        peers=ground.peers,
        store=ground.store,
        client=client,
        ingest=ingest,
        collector=collector,
        files=ground.files,
        pace_keeper=pace_keeper,
        sweeper=sweeper,
        clock=ground.seams.clock,
        supervisor=ground.seams.supervisor,
        log=ground.seams.log,
        on_pause=on_pause,
    )


def outbox_on(ground: Ground) -> Outbox:
    """What callbacks are told."""
    seams = ground.seams
    return Outbox(
        deliveries=ground.store.deliveries,
        callbacks=ground.callbacks,
        courier=Courier(connector=seams.connector, resolver=seams.resolver, clock=seams.clock),
        clock=seams.clock,
        dice=seams.dice,
        supervisor=seams.supervisor,
        meters=seams.meters,
        log=seams.log,
    )


def watchman_on(ground: Ground, stands: Standing, paces: Paces, *, on_step: Callable[[], None]) -> Watchman:
    """What stands in the inbox without being asked for."""
    return Watchman(
        store=ground.store,
        peers=ground.peers,
        files=ground.files,
        clock=ground.seams.clock,
        supervisor=ground.seams.supervisor,
        served=stands.served if stands.absent() else None,
        sources=(paces.silent,),
        on_step=on_step,
        log=ground.seams.log,
    )


def upkeep_on(ground: Ground, collector: Collector, key: AuditKey) -> Upkeep:
    """Checkpoints, pruning and tidying."""
    clock, log = ground.seams.clock, ground.seams.log
    return Upkeep(
        store=ground.store,
        files=ground.files,
        collector=collector,
        notary=Notary(record=ground.store.record, key=key, clock=clock, log=log),
        retention=_retention(ground),
        clock=clock,
        log=log,
    )


def _retention(ground: Ground) -> Retention:
    terms = {name: peer.provider.contract.webhook for name, peer in ground.peers.items()}
    known = [webhook.retries_ms for kind in KINDS if (webhook := provider_for(kind).contract.webhook) is not None]
    return Retention(
        record=ground.store.record,
        files=ground.files,
        clock=ground.seams.clock,
        finished_ms=ground.config.finished_ms,
        retries_ms={name: webhook.retries_ms for name, webhook in terms.items() if webhook is not None},
        longest_retry_ms=max(known, default=0),
        log=ground.seams.log,
    )


def restored_on(ground: Ground, ingest: Ingest) -> Restored:
    """What the first start of a backup does."""
    return Restored(
        store=ground.store,
        ingest=ingest,
        peers=ground.peers,
        files=ground.files,
        clock=ground.seams.clock,
        supervisor=ground.seams.supervisor,
        log=ground.seams.log,
    )


def public_app(ground: Ground, ingest: Ingest) -> web.Application:
    """The webhook receiver."""
    configured = ground.config.providers.values()
    deps = PublicDeps(
        peers=ground.peers,
        has_open=ground.store.has_open,
        keys={p.name: p.webhook_keys for p in configured if p.provider.contract.webhook is not None},
        ingest=ingest,
        clock=ground.seams.clock,
        meters=ground.seams.meters,
        log=ground.seams.log,
        max_body=ground.config.max_body,
    )
    return build_public_app(deps)


def local_app(
    ground: Ground,
    ingest: Ingest,
    changes: Changes,
    stopping: asyncio.Event,
    *,
    tokens: Sequence[Token],
    hosts: Container[str],
) -> web.Application:
    """The local API."""
    config, seams, store, files = ground.config, ground.seams, ground.store, ground.files
    deps = LocalDeps(
        store=store,
        changes=changes,
        desk=Desk(ingest=ingest, peers=ground.peers, files=files, dice=seams.dice),
        starter=Starter(
            store=store,
            files=files,
            clock=seams.clock,
            dice=seams.dice,
            max_input=config.caps.input,
            max_line=config.caps.line,
            callbacks=ground.callbacks,
        ),
        callbacks=ground.callbacks,
        files=files,
        peers=ground.peers,
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
