"""The model behind the peer: a chat-completions server small enough to be told which requests fail.

The peer (ogx) is real, but needs an inference endpoint to pass each line of a batch on to. This one answers at
once, unless the text of the messages holds one of the triggers below. Standard library only, so that it runs in any
Python; prints `port N` once it listens, on 127.0.0.1 only.
"""

import argparse
import json
import re
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

MODEL: Final = "small-model"

#: A request with this text is refused as wrong, the way a provider refuses one line of many.
REFUSED: Final = "FAIL"
#: A request with this text is answered as by a broken server.
BROKEN: Final = "BREAK"
#: A request with this text takes `SLOW_SECONDS`.
SLOW: Final = "SLOW"
#: Long enough that a poll every second or two sees the batch at work; otherwise arbitrary.
SLOW_SECONDS: Final = 4.0
#: A request with this text takes as many seconds as stand in it.
TAKES: Final = re.compile(r"TAKES (\d+(?:\.\d+)?) s")


#: Every question that was asked, in order, from the moment it arrived.
_ASKED: Final[list[str]] = []


class ChatHandler(BaseHTTPRequestHandler):
    """`GET /v1/models` and `POST /v1/chat/completions`, in OpenAI's shapes."""

    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        """Lists the one model, or what was asked so far (no provider has that; the stories do), or 404."""
        if self.path == "/v1/asked":
            self._answer(200, {"asked": list(_ASKED)})
            return
        if self.path != "/v1/models":
            self._answer(404, _error("No such path.", "invalid_request_error"))
            return
        model = {"id": MODEL, "object": "model", "created": 1, "owned_by": "tests"}
        self._answer(200, {"object": "list", "data": [model]})

    def do_POST(self) -> None:
        """Answers one chat completion, as its triggers ask."""
        request = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))))
        if self.path != "/v1/chat/completions":
            self._answer(404, _error("No such path.", "invalid_request_error"))
            return
        text = json.dumps(request.get("messages"))
        _ASKED.append(_question(request))
        if taken := TAKES.search(text):
            time.sleep(float(taken[1]))
        if SLOW in text:
            time.sleep(SLOW_SECONDS)
        if REFUSED in text:
            self._answer(400, _error("This prompt was refused.", "invalid_request_error", "refused_prompt"))
        elif BROKEN in text:
            self._answer(500, _error("The model is out of order.", "server_error"))
        else:
            self._answer(200, _completion(request))

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Says nothing: `port N` is all that is read of this process."""

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        raw = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)


def _completion(request: dict[str, Any]) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": request["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": f"You asked: {_question(request)}"},
            }
        ],
        "usage": {"prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10},
    }


def _question(request: dict[str, Any]) -> str:
    """The last message's text, which is a string or a list of parts."""
    content = request["messages"][-1]["content"]
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


def _error(message: str, kind: str, code: str | None = None) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def main() -> None:
    """Serves until it is ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    arguments = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", arguments.port), ChatHandler)
    print(f"port {server.server_port}", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
