"""What the provider tests share: the fixtures and their expectations, a sample start a kind, answers as words."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from daemon.config import parse
from daemon.provider_config import ProviderConfig
from reconcile.evidence import (
    Accepted,
    CollectFailed,
    CreateNotAccepted,
    CreateRejected,
    CreateUnknown,
    Evidence,
    FinishedAtOnce,
    JobGone,
    JobRead,
    ReadFailed,
    ResultIsFailure,
)
from reconcile.model import JsonObject, Operation, Schedule
from reconcile.provider import HttpResponse, Provider, Step
from reconcile.registry import provider_for
from reconcile.schedule import retry_after_ms
from reconcile.states import State

FIXTURES = Path(__file__).parent.parent / "fixtures"
EXPECT: dict[str, Any] = json.loads((FIXTURES / "EXPECT.json").read_text())
JSON_HEADERS = {"content-type": ("application/json",)}


@dataclass(frozen=True)
class Sample:
    """A start that the kind takes, and the steps before its create as they would stand in the row."""

    request: JsonObject
    items: list[JsonObject] | None
    steps: dict[str, str] = field(default_factory=dict)


#: One for each registered kind: a kind without a sample fails the conformance tests.
SAMPLES: dict[str, Sample] = {
    "http": Sample(request={"source": "https://media.example.com/in.mov", "preset": "web"}, items=None),
    "openai_batch": Sample(
        request={"endpoint": "/v1/responses", "metadata": {"team": "search"}},
        items=[
            {"custom_id": f"job-0001:{n}", "url": "/v1/responses", "body": {"model": "example-model", "input": f"i{n}"}}
            for n in range(4)
        ],
        steps={"upload": "file-fxIn7Qm2Zt9"},
    ),
    "anthropic_batches": Sample(
        request={},
        items=[
            {
                "custom_id": f"job-0010_{n}",
                "params": {
                    "model": "example-model",
                    "max_tokens": 64,
                    "messages": [{"role": "user", "content": f"item {n}"}],
                },
            }
            for n in range(4)
        ],
    ),
}


#: What EXPECT.json's `about` declares of generic/, and the requests that it leaves open.
GENERIC: dict[str, Any] = {
    "kind": "http",
    "base_url": "https://api.example.com",
    "create": {"request": "POST /jobs", "idempotency": {"header": "Idempotency-Key"}, "job_id": "$.id"},
    "status": {
        "request": "GET /jobs/{job_id}",
        "state": "$.status",
        "pending": ["queued", "running"],
        "succeeded": ["succeeded"],
        "failed": ["failed"],
    },
    "result": {"from": "$.result"},
    "cancel": {"request": "DELETE /jobs/{job_id}"},
    "input": {"request": "POST /jobs/{job_id}/input"},
    "lookup": {"request": "GET /jobs?ref={operation_id}", "job_id": "$.jobs[*].id"},
    "webhook": {"scheme": "standard", "event_id": "$.event", "job_id": "$.job.id", "state": "$.job.status"},
    "webhook_secrets": [{"env": "HOOK"}],
}


def configured(table: Any, **environ: str) -> ProviderConfig:
    """A provider as the configuration makes it; the environment holds a webhook secret."""
    known = {"HOOK": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", **environ}
    return parse({"providers": {"p": table}}, known, file="test").providers["p"]


def provider_of(kind: str) -> Provider:
    """The kind's adapter; what a declared provider is, its configuration says."""
    return configured(GENERIC).provider if kind == "http" else provider_for(kind)


def expected(section: str, kind: str, *roles: str) -> list[tuple[str, Any]]:
    """The entries of one kind, in a section of EXPECT.json; of `files` only those with one of the roles."""
    return [
        (name, entry)
        for name, entry in EXPECT[section].items()
        if entry.get("kind") == kind and (not roles or entry["role"] in roles)
    ]


def fixture_bytes(name: str) -> bytes:
    return (FIXTURES / name).read_bytes()


def lines(name: str) -> Iterator[bytes]:
    return (line for line in fixture_bytes(name).split(b"\n") if line)


def answer(body: bytes | JsonObject, status: int = 200) -> HttpResponse:
    """An answer with that body."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    return HttpResponse(status, JSON_HEADERS, raw)


def http_fixture(name: str, *, now_ms: int = 0) -> HttpResponse:
    """A `{status, headers, body}` file as it would arrive."""
    given = json.loads(fixture_bytes(name))
    headers = {key: (value,) for key, value in given["headers"].items()}
    body = given["body"]
    raw = b"" if body is None else body.encode() if isinstance(body, str) else json.dumps(body).encode()
    return HttpResponse(given["status"], headers, raw, retry_after_ms(headers, now_ms=now_ms))


def operation(kind: str, **changes: Any) -> Operation:
    """The row of the kind's sample start."""
    given: dict[str, Any] = {
        "operation_id": "op_01JDSAMPLE",
        "provider": "sample",
        "type": "job",
        "state": State.CREATE_PENDING,
        "token": "token-of-the-sample",
        "trace_id": "0af7651916cd43dd8448eb211c80319c",
        "fingerprint": "0" * 64,
        "request": dict(SAMPLES[kind].request),
        "created_at": 1_795_953_600_000,
        "schedule": Schedule(due_at=0),
        "input_ref": "spool/op_01JDSAMPLE",
        "input_items": 4,
    }
    return Operation(**(given | changes))


def create_step(provider: Provider) -> Step:
    """The sample's create, all steps before it done."""
    kind = provider.contract.kind
    return provider.submit(operation(kind, steps=SAMPLES[kind].steps))


def create_word(evidence: Evidence) -> str:
    match evidence:
        case Accepted():
            return "accepted"
        case FinishedAtOnce():
            return "accepted_with_result"
        case CreateRejected():
            return "rejected"
        case CreateNotAccepted():
            return "not_accepted"
        case CreateUnknown():
            return "unknown"
        case _:
            return type(evidence).__name__


def poll_word(read: JobRead | JobGone | ReadFailed) -> str:
    return {JobRead: "read", JobGone: "gone", ReadFailed: "error"}[type(read)]


def result_word(read: CollectFailed | ResultIsFailure) -> str:
    return {CollectFailed: "error", ResultIsFailure: "failed"}[type(read)]
