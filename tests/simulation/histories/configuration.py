"""The configuration of a random world's daemon, as an operator would write it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from tests.simulation import receiver
from tests.simulation.histories.scripts import CREEDS, Creed
from tests.simulation.world import CALLBACKS, DAEMON, HOOKS_PORT

#: What waits for a person ends by itself after this: short, so that each world comes to its end.
ATTENTION: Final = "5m"
#: Poll numbers small against the deadlines, so that each road is walked in few requests.
POLL: Final[Mapping[str, Any]] = {"base": "2s", "cap": "20s", "sweep": "30s", "error_budget": 6, "deadline": "5m"}
SECRETS: Final = {
    "KEY": "sk-simulated-key",
    "HOOK_STANDARD": "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    "HOOK_HMAC": "a secret of a simulated provider",
    "CI_0": receiver.SECRETS[0],
    "CI_1": receiver.SECRETS[1],
}


def host_of(name: str) -> str:
    """Where a provider is."""
    return f"p-{name}.test"


def hook_of(name: str) -> str:
    """Where a provider's webhooks go."""
    return f"http://{DAEMON}:{HOOKS_PORT}/webhooks/{name}"


def document(state_dir: Path, names: Sequence[str]) -> dict[str, Any]:
    """The configuration file of a daemon with these providers, parsed."""
    providers: dict[str, Any] = {creed.name: _declared(creed) for creed in CREEDS}
    common = {"api_key": {"env": "KEY"}, "poll": POLL, "limits": {"requests_per_second": 50}}
    providers["openai"] = {
        "kind": "openai_batch",
        "base_url": f"https://{host_of('openai')}/v1",
        "webhook_secrets": [{"env": "HOOK_STANDARD"}],
        **common,
    }
    providers["anthropic"] = {
        "kind": "anthropic_batches",
        "base_url": f"https://{host_of('anthropic')}/v1",
        **common,
    }
    return {
        "state_dir": str(state_dir),
        "providers": {name: providers[name] for name in names},
        "attention": {"within": ATTENTION},
        "callbacks": CALLBACKS,
    }


def _declared(creed: Creed) -> dict[str, Any]:
    """One `[providers.NAME]` as an operator would write it."""
    table: dict[str, Any] = {
        "kind": "http",
        "base_url": f"https://{host_of(creed.name)}/v1",
        "headers": {"Authorization": {"env": "KEY", "prefix": "Bearer "}},
        "poll": POLL,
        "limits": {"requests_per_second": 50},
        "create": {"request": "POST /jobs", "job_id": "$.id", "idempotency": "none"},
        "status": {
            "request": "GET /jobs/{job_id}",
            "state": "$.state",
            "pending": ["queued", "running"],
            "failed": ["failed"],
            "cancelled": ["cancelled"],
            "expired": ["expired"],
            "progress": "$.percent",
        },
    }
    if creed.token == "header":
        table["create"]["idempotency"] = {"header": "Idempotency-Key", "quoted": False}
    elif creed.token == "field":
        table["create"]["idempotency"] = {"field": "client_token"}
    if creed.looks_up:
        table["lookup"] = {"request": "GET /jobs?ref={operation_id}", "job_id": "$.jobs[*].id"}
        table["create"]["settle"] = "10s"
    table["create"]["on_absent"] = creed.on_absent
    if creed.results == "items":
        table["status"]["outcome_in_items"] = ["done"]
        table["items"] = {
            "from": "$.result.items", "id": "$.id", "state": "$.state", "succeeded": ["ok"], "failed": ["bad"],
        }  # fmt: skip
    else:
        table["status"]["succeeded"] = ["done"]
        fetched = creed.results == "fetched"
        table["result"] = {"request": "GET /jobs/{job_id}/result"} if fetched else {"from": "$.result"}
    if creed.has_cancel:
        table["cancel"] = {"request": "DELETE /jobs/{job_id}", "repeatable": creed.cancel_is_repeatable}
    if creed.takes_input:
        table["status"]["blocked"] = ["waiting"]
        table["input"] = {"request": "POST /jobs/{job_id}/input"}
    if creed.webhooks:
        table["webhook"] = {"scheme": creed.webhooks, "job_id": "$.job.id", "state": "$.job.state"}
        if creed.webhooks == "hmac-sha256":
            table["webhook"] |= {
                "signature": "header:X-Signature", "timestamp": "header:X-Timestamp", "event_id": "$.event",
            }  # fmt: skip
        secret = "HOOK_STANDARD" if creed.webhooks == "standard" else "HOOK_HMAC"
        table["webhook_secrets"] = [{"env": secret}]
    return table
