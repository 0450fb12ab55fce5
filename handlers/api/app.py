"""The local API put together: its middlewares and a route table a person can read."""

from aiohttp import web

from handlers import access, problem
from handlers.api.consumers import Consumers
from handlers.api.deps import LocalDeps
from handlers.api.inbox import Inbox
from handlers.api.metrics import MetricsRoute
from handlers.api.operations import Operations
from handlers.api.results import Results
from handlers.api.status import StatusRoutes
from handlers.api.streams import Streams
from handlers.api.wishes import Wishes


def build_local_app(deps: LocalDeps) -> web.Application:
    """Status and control, for holders of the token."""
    app = web.Application(
        middlewares=[problem.middleware(deps.log, deps.dice, access.gate(deps.tokens, deps.hosts))],
        client_max_size=deps.max_start_body,
    )
    operations, results, status = Operations(deps), Results(deps), StatusRoutes(deps)
    wishes, inbox, streams, consumers = Wishes(deps), Inbox(deps), Streams(deps), Consumers(deps)
    one = "/v1/operations/{operation_id}"
    app.add_routes(
        [
            web.post("/v1/operations", operations.start),
            web.get("/v1/operations", operations.list),
            web.get(one, operations.get),
            web.get(f"{one}/history", operations.history),
            web.get(f"{one}/observations", operations.observations),
            web.get(f"{one}/events", streams.one),
            web.get("/v1/events", streams.all),
            web.get("/v1/wait", consumers.wait),
            web.get("/v1/completions", consumers.completions),
            web.post(f"{one}/claim", consumers.claim),
            web.get(f"{one}/items", results.items),
            web.get(f"{one}/items/{{item_id}}", results.item),
            web.get(f"{one}/result", results.result),
            web.post(f"{one}/cancel", wishes.cancel),
            web.post(f"{one}/input", wishes.give_input),
            web.post(f"{one}/decisions", wishes.decide),
            web.get("/v1/inbox", inbox.entries),
            web.post("/v1/inbox/{entry_id}/decisions", inbox.decide),
            web.get("/v1/status", status.status),
            web.get("/healthz", status.healthz),
            web.get("/readyz", status.readyz),
            web.get("/metrics", MetricsRoute(deps).metrics),
        ]
    )
    return app
