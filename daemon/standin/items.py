"""A batch's items: read from an input file, and rendered as result lines one at a time.

The one idea: a result file is a function of (items, how many ran, which failed), so it is never kept. Each line is
made when it is sent, and the file's size is known beforehand, because all lines of a file differ only in the item's
id and a number of fixed width. The order of the lines is never the order of the input.
"""

import dataclasses
import functools
import json
import math
from collections.abc import Iterator, Sequence
from typing import Final, Literal

#: Requests in one input file; the provider's documented limit. Seeded jobs may be larger, to test what is not.
MAX_REQUESTS: Final = 50_000
#: Faults named in one failed batch. Arbitrary.
MAX_FAULTS: Final = 50

#: Stand for the item's number and id in a line's template; private-use characters, which nothing else brings in.
_NUMBER, _NAME = "\ue000", "\ue001"
#: Digits of an item's number in a line, so that all lines have one width.
_DIGITS: Final = 8
#: Tokens of one answered item, as the usage says.
TOKENS_IN, TOKENS_OUT = 12, 16


@dataclasses.dataclass(frozen=True)
class Fault:
    """What is wrong with an input file; `line` counts from 1, None: with the file as a whole."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


@dataclasses.dataclass(frozen=True)
class BatchInput:
    """An input file as read: the items' ids in the order sent, or the faults that make it unusable."""

    custom_ids: Sequence[str]
    model: str | None
    faults: tuple[Fault, ...] = ()


class NumberedIds(Sequence[str]):
    """Ids `item-00000000`, `item-00000001`, … of a seeded job: any number of them, none of them kept."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> str:  # type: ignore[override]  # no slices: nobody takes one
        if not 0 <= index < self._count:
            raise IndexError(index)
        return f"item-{index:0{_DIGITS}d}"


def read_input(data: bytes, endpoint: str) -> BatchInput:
    """What the provider's validation makes of an input file for a batch on `endpoint`.

    The codes are those that its users report: empty_file, too_many_tasks, invalid_json_line, duplicate_custom_id,
    url_mismatch, model_mismatch, missing_required_parameter; the texts are ours.
    """
    lines = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line.strip()]
    if not lines:
        return BatchInput((), None, (Fault("empty_file", "The input file is empty."),))
    if len(lines) > MAX_REQUESTS:
        text = f"The input file holds {len(lines)} requests; at most {MAX_REQUESTS} are allowed."
        return BatchInput((), None, (Fault("too_many_tasks", text),))
    seen: dict[str, None] = {}
    faults: list[Fault] = []
    model: str | None = None
    for number, line in lines:
        found = _read_line(line, number, endpoint, seen, model)
        if isinstance(found, Fault):
            faults.append(found)
            if len(faults) == MAX_FAULTS:
                break
            continue
        custom_id, line_model = found
        seen[custom_id] = None
        model = model or line_model
    return BatchInput(tuple(seen), model, tuple(faults))


def _read_line(
    line: bytes, number: int, endpoint: str, seen: dict[str, None], model: str | None
) -> Fault | tuple[str, str | None]:
    try:
        request = json.loads(line)
    except (ValueError, RecursionError):  # ValueError: no JSON, no UTF-8, an integer of thousands of digits
        return Fault("invalid_json_line", "This line is not parseable as valid JSON.", number)
    if not isinstance(request, dict):
        return Fault("invalid_json_line", "This line is not a JSON object.", number)
    for key, kind in (("custom_id", str), ("method", str), ("url", str), ("body", dict)):
        if not isinstance(request.get(key), kind) or not request[key]:
            return Fault("missing_required_parameter", f"Missing or invalid required parameter: '{key}'.", number, key)
    custom_id, body_model = request["custom_id"], request["body"].get("model")
    if not custom_id.isascii() and custom_id != custom_id.encode("utf-8", "replace").decode():
        return Fault("invalid_json_line", "This line is not valid Unicode.", number)
    if custom_id in seen:
        return Fault("duplicate_custom_id", f"The custom_id '{custom_id}' was used before.", number, "custom_id")
    if request["method"] != "POST" or request["url"] != endpoint:
        text = f"The request is for {request['method']} {request['url']}; the batch is for POST {endpoint}."
        return Fault("url_mismatch", text, number, "url")
    line_model = body_model if isinstance(body_model, str) else None
    if model is not None and line_model is not None and line_model != model:
        return Fault("model_mismatch", f"The model '{line_model}' differs from '{model}' before.", number, "body.model")
    return custom_id, line_model


def failed_of(run: int, failing_share: float) -> int:
    """How many of the first `run` items fail. Rounded up: a share means at least one."""
    return -(-run * _per_mille(failing_share) // 1000)


def _per_mille(share: float) -> int:
    return round(share * 1000)


def _failed_index(rank: int, per_mille: int) -> int:
    """The index of the failed item that has `rank` failed ones before it."""
    return rank * 1000 // per_mille


def _succeeded_index(rank: int, per_mille: int) -> int:
    """The index of the succeeded item that has `rank` succeeded ones before it."""
    return -(-1000 * (rank + 1) // (1000 - per_mille)) - 1


def is_failed(index: int, failing_share: float) -> bool:
    """Whether the item with this index fails when it runs."""
    per_mille = _per_mille(failing_share)
    return per_mille > 0 and _failed_index(-(-index * per_mille // 1000), per_mille) == index


def shuffled(count: int) -> Iterator[int]:
    """Each number below `count` once, scattered, and for two or more never in rising order."""
    if count < 1:
        return
    stride = max(1, int(count * 0.618))  # golden ratio: neighbours land far apart
    while math.gcd(stride, count) != 1:
        stride -= 1
    position = count // 2
    for _ in range(count):
        yield position
        position = (position + stride) % count


@dataclasses.dataclass(frozen=True)
class ResultLines:
    """The lines of one result file, with their number and total size, none of them kept."""

    #: "output": the items that succeeded; "error": those that failed and those that never ran.
    kind: Literal["output", "error"]
    custom_ids: Sequence[str]
    #: How many ran; they are the first ones of the input.
    run: int
    failing_share: float
    unrun_code: str
    endpoint: str
    model: str
    job_id: str
    at_seconds: int
    #: Characters that each answer is longer by.
    longer_answers: int = 0

    @property
    def count(self) -> int:
        """How many lines there are."""
        return self.run - self._failed if self.kind == "output" else self._failed + self._unrun

    @functools.cached_property
    def _failed(self) -> int:
        return failed_of(self.run, self.failing_share)

    @property
    def _unrun(self) -> int:
        return len(self.custom_ids) - self.run

    @functools.cached_property
    def _answered(self) -> str:
        if self.kind == "error":
            return _template(_failure_line(self.job_id))
        # The model is a stranger's word in our template: without its non-ASCII letters it cannot hold a placeholder.
        model = self.model.encode("ascii", "ignore").decode()
        text = f"answer to {_NAME} – ünï{'.' * self.longer_answers}"
        return _template(_success_line(self.endpoint, model, self.job_id, self.at_seconds, text))

    @functools.cached_property
    def _never_run(self) -> str:
        return _template(_unrun_line(self.job_id, self.unrun_code))

    def _index(self, rank: int) -> int:
        per_mille = _per_mille(self.failing_share)
        if self.kind == "output":
            return _succeeded_index(rank, per_mille)
        return _failed_index(rank, per_mille) if rank < self._failed else self.run + rank - self._failed

    def __iter__(self) -> Iterator[bytes]:
        for rank in shuffled(self.count):
            index = self._index(rank)
            template = self._answered if index < self.run else self._never_run
            yield (template % {"number": index, "name": _quoted(self.custom_ids[index])}).encode()

    @functools.cached_property
    def size(self) -> int:
        """Bytes of all lines together."""
        unrun = 0 if self.kind == "output" else self._unrun
        answered = self.count - unrun
        fixed = answered * _width(self._answered) + unrun * _width(self._never_run)
        names_answered, names_unrun = (
            _width(template, "x") - _width(template) for template in (self._answered, self._never_run)
        )
        if isinstance(self.custom_ids, NumberedIds):
            each = len(self.custom_ids[0]) if self.custom_ids else 0
            return fixed + each * (answered * names_answered + unrun * names_unrun)
        names = 0
        for rank in range(self.count):
            index = self._index(rank)
            names += len(_quoted(self.custom_ids[index]).encode()) * (
                names_answered if index < self.run else names_unrun
            )
        return fixed + names


def _quoted(text: str) -> str:
    """As it stands between the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _template(line: dict[str, object]) -> str:
    text = json.dumps(line, ensure_ascii=False, separators=(",", ":")).replace("%", "%%")
    return text.replace(_NUMBER, f"%(number)0{_DIGITS}d").replace(_NAME, "%(name)s") + "\n"


def _width(template: str, name: str = "") -> int:
    return len((template % {"number": 0, "name": name}).encode())


def _line(job_id: str, response: object, error: object) -> dict[str, object]:
    # The job's id is in the line's, so that no two lines of one account share an id.
    tail = job_id.removeprefix("batch_")
    return {"id": f"batch_req_{tail}{_NUMBER}", "custom_id": _NAME, "response": response, "error": error}


def _success_line(endpoint: str, model: str, job_id: str, at_seconds: int, text: str) -> dict[str, object]:
    body = _BODIES[endpoint](model, at_seconds, f"{job_id.removeprefix('batch_')}{_NUMBER}", text)
    return _line(job_id, {"status_code": 200, "request_id": f"req_{_NUMBER}", "body": body}, None)


def _failure_line(job_id: str) -> dict[str, object]:
    error = {"message": "Unknown parameter.", "type": "invalid_request_error", "param": None, "code": "invalid_value"}
    return _line(job_id, {"status_code": 400, "request_id": f"req_{_NUMBER}", "body": {"error": error}}, None)


def _unrun_line(job_id: str, code: str) -> dict[str, object]:
    return _line(job_id, None, {"code": code, "message": "This request could not be run before the batch ended."})


def _response_body(model: str, at_seconds: int, name: str, text: str) -> dict[str, object]:
    content = {"type": "output_text", "text": text, "annotations": []}
    message: dict[str, object] = {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "content": [content],
    }
    return {
        "id": f"resp_{name}",
        "object": "response",
        "created_at": at_seconds,
        "status": "completed",
        "model": model,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "output": [message],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "metadata": {},
        "usage": {
            "input_tokens": TOKENS_IN,
            "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
            "output_tokens": TOKENS_OUT,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": TOKENS_IN + TOKENS_OUT,
        },
    }


def _chat_body(model: str, at_seconds: int, name: str, text: str) -> dict[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": text, "refusal": None, "annotations": []}
    return {
        "id": f"chatcmpl-{name}",
        "object": "chat.completion",
        "created": at_seconds,
        "model": model,
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": TOKENS_IN,
            "completion_tokens": TOKENS_OUT,
            "total_tokens": TOKENS_IN + TOKENS_OUT,
        },
    }


def _completion_body(model: str, at_seconds: int, name: str, text: str) -> dict[str, object]:
    return {
        "id": f"cmpl-{name}",
        "object": "text_completion",
        "created": at_seconds,
        "model": model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": "stop"}],
        "usage": {
            "prompt_tokens": TOKENS_IN,
            "completion_tokens": TOKENS_OUT,
            "total_tokens": TOKENS_IN + TOKENS_OUT,
        },
    }


def _embedding_body(model: str, at_seconds: int, name: str, text: str) -> dict[str, object]:  # noqa: ARG001 one shape of maker
    return {
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": [0.25, -0.5, 0.125]}],
        "model": model,
        "usage": {"prompt_tokens": TOKENS_IN, "total_tokens": TOKENS_IN},
    }


#: What a succeeded item's body looks like on each endpoint.
_BODIES: Final = {
    "/v1/responses": _response_body,
    "/v1/chat/completions": _chat_body,
    "/v1/completions": _completion_body,
    "/v1/embeddings": _embedding_body,
}

#: The endpoints whose items the stand-in can answer; the provider itself has four more.
ENDPOINTS: Final = tuple(_BODIES)
