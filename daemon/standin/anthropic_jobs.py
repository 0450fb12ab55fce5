"""A Message Batch: what the Anthropic shape adds to a job, and its result lines, made one at a time.

The provider tells less than others: no counts before the end, and one word, "ended", for every way to end. Its results
are one stream with a line for each request, whatever became of it, never in the order of the requests.
"""

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final, Literal

from daemon.standin.items import TOKENS_IN, TOKENS_OUT, failed_of, is_failed, shuffled
from daemon.standin.jobs import Counts, Job

#: Results are kept so long after the batch was created, then the batch is archived: 29 days, from copies of the
#: provider's guide.
KEPT_MS: Final = 29 * 24 * 3600 * 1000

Outcome = Literal["succeeded", "errored", "canceled", "expired"]
#: This provider's word for each status of other jobs; one that no document names stays as it is.
_WORDS: Final = {
    "validating": "in_progress",
    "finalizing": "in_progress",
    "cancelling": "canceling",
    "completed": "ended",
    "failed": "ended",
    "expired": "ended",
    "cancelled": "ended",
}


@dataclasses.dataclass(slots=True, kw_only=True)
class MessageBatch(Job):
    """A job as the Anthropic calls make it: its requests came with the create call."""

    has_webhook: ClassVar[bool] = False

    #: The model each request asks for.
    models: Sequence[str]
    #: What is wrong with a request's params, by its index: the provider looks at them only when their turn comes.
    invalid: Mapping[int, str] = dataclasses.field(default_factory=dict)

    # `super()` does not work in a class with slots that dataclasses make anew, so `Job` is named.

    def status(self, now_ms: int) -> str:
        """The provider's word at `now_ms`."""
        word = Job.status(self, now_ms)
        return _WORDS.get(word, word)

    def reached(self, now_ms: int) -> list[tuple[str, int]]:
        """The statuses it has been in by `now_ms`, each with the moment it began, in order."""
        found: list[tuple[str, int]] = []
        for word, at_ms in Job.reached(self, now_ms):
            ours = _WORDS.get(word, word)
            if not found or found[-1][0] != ours:
                found.append((ours, at_ms))
        return found

    def outcome(self, index: int) -> Outcome:
        """What one request has come to by the end."""
        if index >= self.runs and self.ends != "failed":
            return "canceled" if self.ends == "cancelled" else "expired"
        is_errored = self.ends == "failed" or index in self.invalid or is_failed(index, self.scenario.failing_share)
        return "errored" if is_errored else "succeeded"

    def tallies(self) -> dict[str, int]:
        """The requests by what they came to; all of them are "processing" until the whole batch has ended."""
        found = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        if not self.ended:
            found["processing"] = len(self.custom_ids)
            return found
        total, run, share = len(self.custom_ids), self.runs, self.scenario.failing_share
        if self.ends == "failed":
            return found | {"errored": total}
        errored = failed_of(run, share) + sum(index < run and not is_failed(index, share) for index in self.invalid)
        return found | {
            "succeeded": run - errored,
            "errored": errored,
            "canceled" if self.ends == "cancelled" else "expired": total - run,
        }

    def counts(self, now_ms: int) -> Counts:  # noqa: ARG002  one signature for all jobs
        """The same in the words of other jobs."""
        tallies = self.tallies()
        return Counts(len(self.custom_ids), tallies["succeeded"], tallies["errored"])

    def archived_ms(self, now_ms: int) -> int | None:
        """When the results went, if they are gone by `now_ms`."""
        at_ms = self.created_ms + KEPT_MS
        return at_ms if self.ended and now_ms >= at_ms else None

    def result_lines(self) -> Iterator[bytes]:
        """One line for each request; only for a batch that has ended."""
        for index in shuffled(len(self.custom_ids)):
            line = {"custom_id": self.custom_ids[index], "result": self._result(index)}
            yield json.dumps(line, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"

    def _result(self, index: int) -> dict[str, object]:
        outcome = self.outcome(index)
        if outcome == "succeeded":
            return {"type": outcome, "message": self._message(index)}
        if outcome == "errored":
            return {"type": outcome, "error": self._error(index)}
        return {"type": outcome}

    def _message(self, index: int) -> dict[str, object]:
        return {
            "id": f"msg_{self._tail(index)}",
            "type": "message",
            "role": "assistant",
            "model": self.models[index],
            "content": [{"type": "text", "text": f"answer to {self.custom_ids[index]} – ünï"}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": TOKENS_IN, "output_tokens": TOKENS_OUT},
        }

    def _error(self, index: int) -> dict[str, object]:
        if self.ends == "failed":
            error = {"type": "api_error", "message": "Internal server error"}
        else:
            text = self.invalid.get(index, "The request could not be answered.")
            error = {"type": "invalid_request_error", "message": text}
        return {"type": "error", "error": error, "request_id": f"req_{self._tail(index)}"}

    def _tail(self, index: int) -> str:
        # The batch's id is in the line's, so that no two lines of one account share an id.
        return f"{self.id.removeprefix('msgbatch_')}{index:08d}"
