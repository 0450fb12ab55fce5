"""What an operator can declare wrongly, told at the start by its key; what proves us, and deliveries, of each kind."""

import copy
import tomllib
from typing import Any

import pytest

from daemon.config import parse, warnings_of
from reconcile.errors import ConfigError
from reconcile.model import VerdictKind

#: The example of the interface, word for word.
EXAMPLE = """
[providers.transcode]
kind = "http"
base_url = "https://media.example.com"
headers = { Authorization = { env = "MEDIA_TOKEN", prefix = "Bearer " } }
webhook_secrets = [ { env = "HOOK" } ]
[providers.transcode.create]
request = "POST /v1/transcode"
idempotency = { header = "Idempotency-Key" }
job_id = "$.job_id"
[providers.transcode.status]
request = "GET /v1/jobs/{job_id}"
state = "$.status"
pending = ["queued", "processing"]
blocked = []
succeeded = ["succeeded"]
outcome_in_items = ["completed_with_errors"]
failed = ["failed"]
cancelled = ["cancelled"]
progress = "$.progress_percent"
retry_after = "$.poll_after_seconds"
[providers.transcode.result]
from = "$.result"
[providers.transcode.items]
from = "$.result.items"
id = "$.id"
state = "$.status"
succeeded = ["ok"]
failed = ["error"]
[providers.transcode.cancel]
request = "DELETE /v1/jobs/{job_id}"
[providers.transcode.lookup]
request = "GET /v1/jobs?client_ref={operation_id}"
job_id = "$.jobs[*].job_id"
[providers.transcode.input]
request = "POST /v1/jobs/{job_id}/input"
[providers.transcode.webhook]
scheme = "standard"
event_id = "header:webhook-id"
job_id = "$.data.job_id"
state = "$.data.status"
"""
P = "providers.transcode"
STANDARD = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
ABSENT = object()


def table(path: str = "", value: Any = None) -> dict[str, Any]:
    """The example, with `value` at a dotted path below the provider; ABSENT takes the key away."""
    document = copy.deepcopy(tomllib.loads(EXAMPLE))
    here = document["providers"]["transcode"]
    if path:
        *above, last = path.split(".")
        for name in above:
            here = here.setdefault(name, {})
        here[last] = value
        if value is ABSENT:
            del here[last]
    return document


def parsed(document: Any, **environ: str) -> Any:
    known = {"MEDIA_TOKEN": "canary-media", "HOOK": STANDARD, **environ}
    return parse(document, known, file="f.toml")


def provider(document: Any, **environ: str) -> Any:
    return next(iter(parsed(document, **environ).providers.values()))


def fault(document: Any, **environ: str) -> ConfigError:
    with pytest.raises(ConfigError) as refused:
        parsed(document, **environ)
    assert "canary" not in str(refused.value)
    return refused.value


def test_the_example_of_the_interface_is_taken_as_it_is() -> None:
    made = provider(table())
    contract = made.provider.contract
    assert made.credentials == {"Authorization": "Bearer canary-media"}
    assert made.credential_name == "env:MEDIA_TOKEN"
    assert {word: meant.kind for word, meant in contract.words.items()} == {
        "queued": VerdictKind.PENDING,
        "processing": VerdictKind.PENDING,
        "succeeded": VerdictKind.DONE,
        "completed_with_errors": VerdictKind.DONE_UNKNOWN_OUTCOME,
        "failed": VerdictKind.FAILED,
        "cancelled": VerdictKind.CANCELLED,
    }
    assert (contract.idempotency, contract.takes_input) == ("replays", True)
    assert (contract.webhook.scheme, contract.lookup.is_sure, contract.lookup.page_size) == ("standard", True, None)
    assert "canary" not in repr(made)


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        ("create", ABSENT, "a table"),
        ("status", ABSENT, "a table"),
        ("create.request", ABSENT, "a string"),
        ("create.request", "POST v1/transcode", "METHOD and a path"),
        ("create.request", "GET /v1/transcode", "METHOD and a path"),
        ("create.request", "POST /v1/{job_id}", "METHOD and a path"),
        ("create.idempotency", ABSENT, "header"),
        ("create.idempotency", "header", "header"),
        ("create.idempotency.header", "Idempotency Key", "a header's name"),
        ("create.idempotency.header", "X\r\nEvil", "none of them a control character"),
        ("create.idempotency.kept", "1", "a duration"),
        ("create.job_id", "job_id", "a JSONPath"),
        ("create.job_id", ABSENT, "a string"),
        ("create.reference", "client_ref", "header"),
        ("status.request", "GET /v1/jobs", "METHOD and a path"),
        ("status.request", "GET /v1/jobs/{id}", "METHOD and a path"),
        ("status.state", "$..status", "a JSONPath"),
        ("status.state", [], "a JSONPath"),
        ("status.pending", "queued", "a list of strings"),
        ("status.pending", [], "the words of a job"),
        ("status.progress", "progress", "a JSONPath"),
        ("result.from", "$.a[?@.b]", "a JSONPath"),
        ("items.id", ABSENT, "a string"),
        ("items.succeeded", ABSENT, "the words of an item"),
        ("items.hosts", ["storage.example"], "none without url"),
        ("items", ABSENT, "none without a table of items"),
        ("cancel.request", "GET /v1/jobs/{job_id}", "METHOD and a path"),
        ("lookup.request", "GET /v1/jobs", "something that the job bears"),
        ("lookup.request", "GET /v1/by-ref/{operation_id}", "something that the job bears"),
        ("lookup.job_id", "jobs", "a JSONPath"),
        ("input.request", "DELETE /v1/jobs/{job_id}", "METHOD and a path"),
        ("webhook.scheme", "sha1", "one of standard, hmac-sha256, ed25519, shared-header"),
        ("webhook.event_id", "header:", 'a header as "header:NAME"'),
        ("webhook.event_id", "header:a b", 'a header as "header:NAME"'),
        ("webhook.job_id", ABSENT, "a string"),
        ("webhook.signature", "header:X", "one of event_id, job_id, scheme, state"),
        ("headers.X-Nothing", 5, "a secret as"),
        ("headers.Host", "x", "neither ours nor the connection's"),
        ("headers.Bad Name", "x", "neither ours nor the connection's"),
        ("headers.X-Api-Key", "canary", "a secret as"),
        ("headers.authorization", {"env": "MEDIA_TOKEN"}, "a header that is named nowhere else"),
        ("headers.X-A", {"env": "MEDIA_TOKEN", "prefix": "a\nb"}, "printable ASCII"),
        ("headers.X-A", {"env": "GONE"}, "the environment variable GONE to be set"),
        ("headers.X-A", "a\nb", "none of them a control character"),
        ("surprise", 1, "one of"),
        ("status.surprise", 1, "one of"),
        ("jwks_url", "https://x.example/keys", "webhook_secrets"),
        ("webhook_token", {"env": "HOOK"}, "webhook_secrets"),
        ("unsafe", ["everything"], "unsigned_webhooks"),
        ("unsafe", ["unsigned_webhooks"], "either of them"),
    ],
)
def test_each_fault_names_its_key(path: str, value: Any, expected: str) -> None:
    error = fault(table(path, value))
    told_at = {"items": "status.outcome_in_items", "headers.Bad Name": 'headers."Bad Name"'}.get(path, path)
    assert error.key_path.startswith(f"{P}.{told_at}")
    assert expected in str(error), str(error)


def test_a_word_that_stands_twice_is_refused_where_it_stands_the_second_time() -> None:
    error = fault(table("status.failed", ["failed", "queued"]))
    assert (error.key_path, error.found) == (f"{P}.status.failed[1]", "'queued'")
    assert fault(table("status.pending", ["queued", "queued"])).key_path == f"{P}.status.pending[1]"
    assert fault(table("items.failed", ["ok"])).key_path == f"{P}.items.failed[0]"


def test_where_a_result_is_can_be_said_once_only() -> None:
    assert fault(table("result.request", "GET /v1/jobs/{job_id}/result")).key_path == f"{P}.result.from"
    assert fault(table("items.url", "$.items_url")).key_path == f"{P}.items.from"


def test_no_prefix_and_no_secret_of_a_header_shows() -> None:
    assert fault(table("headers.X-Token", "canary-inline")).found == "a value of another shape"


@pytest.mark.parametrize("kind", ["openai_batch", "anthropic_batches"])
def test_every_kind_takes_headers_beside_or_in_place_of_a_key(kind: str) -> None:
    base = {"kind": kind, "base_url": "https://api.example.com/v1"}
    document = {"providers": {"p": {**base, "headers": {"X-Org": "acme", "X-Key": {"env": "HOOK"}}}}}
    made = provider(document)
    assert made.credentials == {"X-Org": "acme", "X-Key": STANDARD}
    both = provider({"providers": {"p": {**base, "api_key": {"env": "HOOK"}, "headers": {"X-Org": "acme"}}}})
    assert len(both.credentials) == 2
    assert both.credential_name == "env:HOOK"


# ---- how deliveries are proven ---------------------------------------------------------------------------------


def hooked(scheme: str, **more: Any) -> dict[str, Any]:
    """The example with another scheme, and no secrets unless they are given."""
    document = table("webhook_secrets", ABSENT)
    here = document["providers"]["transcode"]
    extra = {} if scheme == "standard" else {"signature": "header:X-Sig"}
    here["webhook"] = {"scheme": scheme, "job_id": "$.id", **extra, **more.pop("webhook", {})}
    return {"providers": {"transcode": {**here, **more}}}


@pytest.mark.parametrize(
    ("scheme", "proof"),
    [
        ("standard", {"webhook_secrets": [{"env": "HOOK"}]}),
        ("hmac-sha256", {"webhook_secrets": [{"env": "HOOK"}, {"env": "MEDIA_TOKEN"}]}),
        ("ed25519", {"webhook_secrets": [{"env": "PUBLIC"}]}),
        ("shared-header", {"webhook_token": {"env": "HOOK", "prefix": "Bearer "}}),
        ("shared-header", {"webhook_token": [{"env": "HOOK"}, {"env": "MEDIA_TOKEN"}]}),
    ],
)
def test_each_scheme_has_its_own_proof(scheme: str, proof: dict[str, Any]) -> None:
    made = provider(hooked(scheme, **proof), PUBLIC="d" * 64)
    assert made.provider.contract.webhook.scheme == scheme
    (given,) = proof.values()
    assert len(made.webhook_keys) == (len(given) if isinstance(given, list) else 1)
    bare = provider(hooked(scheme))
    assert (bare.provider.contract.webhook, bare.webhook_keys) == (None, ())


@pytest.mark.parametrize(
    ("scheme", "key", "value"),
    [
        ("standard", "webhook_token", {"env": "HOOK"}),
        ("hmac-sha256", "webhook_token", {"env": "HOOK"}),
        ("shared-header", "webhook_secrets", [{"env": "HOOK"}]),
        ("ed25519", "webhook_secrets", [{"env": "HOOK"}]),
        ("ed25519", "webhook_secrets", [{"env": "EMPTY"}]),
        ("standard", "webhook_secrets", [{"env": "SHORT"}]),
        ("hmac-sha256", "jwks_url", "https://x.example/keys"),
        ("hmac-sha256", "webhook_secrets", [{"env": "EMPTY"}]),
        ("shared-header", "webhook_token", {"env": "EMPTY"}),
        ("shared-header", "webhook_token", "canary-inline"),
    ],
)
def test_a_proof_that_the_scheme_does_not_use_is_refused(scheme: str, key: str, value: Any) -> None:
    """S10: an empty secret for whichever scheme; a short one where the scheme promises more."""
    error = fault(hooked(scheme, **{key: value}), EMPTY="", SHORT="whsec_c2hvcnQ=")
    assert error.key_path.startswith(f"{P}.{key}")


@pytest.mark.parametrize("key", ["signature", "encoding", "timestamp"])
def test_a_key_of_another_scheme_is_unknown(key: str) -> None:
    value = "hex" if key == "encoding" else "header:X-Other"
    assert fault(hooked("standard", webhook={key: value})).key_path == f"{P}.webhook.{key}"
    if key != "signature":
        assert fault(hooked("shared-header", webhook={key: value})).key_path == f"{P}.webhook.{key}"
    assert provider(hooked("hmac-sha256", webhook={key: value}))


def test_a_short_secret_of_a_scheme_that_promises_nothing_is_told() -> None:
    config = parsed(hooked("hmac-sha256", webhook_secrets=[{"env": "SHORT"}]), SHORT="short")
    assert [(event, told["key"]) for event, told in warnings_of(config)] == [("short_secret", "webhook_secrets[0]")]
    long = parsed(hooked("hmac-sha256", webhook_secrets=[{"env": "LONG"}]), LONG="x" * 24)
    assert list(warnings_of(long)) == []


def test_deliveries_that_nothing_proves_are_let_in_by_a_word_and_told() -> None:
    config = parsed(hooked("hmac-sha256", unsafe=["unsigned_webhooks"]))
    made = config.providers["transcode"]
    assert (made.provider.contract.webhook.scheme, made.webhook_keys) == ("unsigned", ())
    assert [event for event, _ in warnings_of(config)] == ["unsigned_webhooks"]
    batches = {"kind": "anthropic_batches", "base_url": "https://a.example/v1", "unsafe": ["unsigned_webhooks"]}
    assert "has no webhooks" in str(fault({"providers": {"p": batches}}))
    openai = {"kind": "openai_batch", "base_url": "https://a.example/v1", "unsafe": ["unsigned_webhooks"]}
    assert provider({"providers": {"p": openai}}).provider.contract.webhook.scheme == "unsigned"


def test_without_a_declared_webhook_there_is_nothing_to_prove() -> None:
    document = table("webhook", ABSENT)
    assert "as long as no table `webhook`" in str(fault(document))


def test_a_job_id_of_the_status_body_may_stand_elsewhere() -> None:
    made = provider(table("status.job_id", "$.job.id"))
    assert made.provider.declaration.status.job_id.text == "$.job.id"


def test_a_look_up_may_be_left_to_a_reference_of_the_operators_own() -> None:
    """`reference = "none"`: whoever starts operations puts something there by other means."""
    none = provider(table("create.reference", "none"))
    assert none.provider.declaration.create.reference is None
    header = provider(table("create.reference", {"header": "X-Ref"}))
    assert header.provider.declaration.create.reference.name == "x-ref"
    path = table("lookup.request", "GET /v1/by-ref/{operation_id}")
    path["providers"]["transcode"]["create"]["reference"] = {"field": "ref"}
    assert provider(path).provider.declaration.create.reference.name == "ref"
    by_token = provider(table("lookup.request", "GET /v1/jobs?key={token}"))
    assert by_token.provider.declaration.create.reference is None
