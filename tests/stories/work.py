"""What a client of a story asks for: the start body of a batch, in the words of each of the stand-in's shapes."""

from collections.abc import Callable
from typing import Any, Final

ITEMS: Final = 5
#: The names of the two providers in a story's configuration; the first is also in the path of its webhooks.
STANDIN: Final = "standin"
MESSAGES: Final = "messages"


def batch(scenario: str | None, items: int) -> dict[str, Any]:
    """A batch in OpenAI's shape. Its metadata names the scenario; None: the server's own."""
    lines = [
        {
            "custom_id": f"item-{n}",
            "method": "POST",
            "url": "/v1/responses",
            "body": {"model": "example-model", "input": f"question {n}"},
        }
        for n in range(items)
    ]
    request: dict[str, Any] = {"endpoint": "/v1/responses"}
    if scenario is not None:
        request["metadata"] = {"standin_scenario": scenario}
    return {"provider": STANDIN, "request": request, "items": lines}


def message_batch(scenario: str | None, items: int) -> dict[str, Any]:
    """A batch in Anthropic's shape, which has no metadata: the first request's `user_id` names the scenario."""
    requests: list[dict[str, Any]] = [
        {
            "custom_id": f"item-{n}",
            "params": {
                "model": "example-model",
                "max_tokens": 64,
                "messages": [{"role": "user", "content": f"question {n}"}],
            },
        }
        for n in range(items)
    ]
    if scenario is not None:
        requests[0]["params"]["metadata"] = {"user_id": f"standin_scenario={scenario}"}
    return {"provider": MESSAGES, "request": {}, "items": requests}


WORK: Final[dict[str, Callable[[str | None, int], dict[str, Any]]]] = {STANDIN: batch, MESSAGES: message_batch}
