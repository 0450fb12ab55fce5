"""A provider that is fast, so that it never is what is measured: jobs that run for a time and then end.

    python -m benchmarks.provider PORT [--jobs N] [--ms MS] [--spread MS] [--word WORD]

Job number k ends `ms + spread * k / N` milliseconds after `POST /_begin` (or never, with --ms 0), and is shown
    GET /jobs/job_0000007                   as {"id", "status": "running" | WORD}
    GET /v1/batches/job_0000007             as OpenAI's batch object, by its documents
    GET /v1/batches?limit=100&after=ID      newest first, as there
    GET /_stats                             requests so far by kind; when each end was first shown, minus the end, in ms
    POST /_outage?on=1                      from now on 503 to everything but these, until ?on=0

A raw asyncio protocol: no router, no framework, nothing kept of a job but three numbers.
"""

import argparse
import array
import asyncio
import json
import time
from typing import Final
from urllib.parse import parse_qs, urlsplit

_PAD: Final = (
    '"object":"batch","endpoint":"/v1/responses","model":"gpt-5","input_file_id":"file-of-it",'
    '"completion_window":"24h","created_at":%d,"in_progress_at":%d,"expires_at":%d,"finalizing_at":null,'
    '"output_file_id":null,"error_file_id":null,"completed_at":null,"expired_at":null,"cancelling_at":null,'
    '"cancelled_at":null,"request_counts":{"total":10,"completed":%d,"failed":0},"metadata":null'
)


class Account:
    """All jobs, and what was asked about them."""

    def __init__(self, jobs: int, ms: float, spread: float, word: str) -> None:
        self.jobs = jobs
        self.ms = ms
        self.spread = spread
        self.word = word
        self.began = time.time()
        self.has_begun = False
        self.is_out = False
        self.shown = array.array("d", bytes(8 * jobs))
        self.counts = {"get": 0, "list": 0, "refused": 0}
        #: When requests came, for whoever asks how fast they were: by second of the clock.
        self.per_second: dict[int, int] = {}

    def ended_at(self, number: int) -> float | None:
        """When a job ends or ended."""
        if self.ms <= 0 or not self.has_begun:
            return None
        return self.began + (self.ms + self.spread * number / max(1, self.jobs)) / 1000

    def is_over(self, number: int) -> bool:
        """Whether a job has ended; noted the first time that this is shown."""
        at, now = self.ended_at(number), time.time()
        if at is None or now < at:
            return False
        if not self.shown[number]:
            self.shown[number] = now - at
        return True

    def job(self, number: int) -> bytes:
        """A declared provider's job."""
        status = self.word if self.is_over(number) else "running"
        return b'{"id":"job_%07d","status":"%s"}' % (number, status.encode())

    def batch(self, number: int) -> str:
        """A batch as OpenAI shows it. One that ends has failed its validation: nothing is left behind to fetch."""
        made = int(self.began) - 60
        pad = _PAD % (made, made + 1, made + 86400, 0 if self.ms else 5)
        if not self.is_over(number):
            return f'{{"id":"job_{number:07d}","status":"in_progress","errors":null,"failed_at":null,{pad}}}'
        errors = '{"object":"list","data":[{"code":"invalid_json_line","message":"line 1","param":null,"line":1}]}'
        return f'{{"id":"job_{number:07d}","status":"failed","errors":{errors},"failed_at":{int(time.time())},{pad}}}'

    def page(self, after: str | None, limit: int) -> bytes:
        """A page, newest (highest) first."""
        top = self.jobs if after is None else int(after.removeprefix("job_"))
        numbers = range(top - 1, max(-1, top - 1 - limit), -1)
        data = ",".join(self.batch(number) for number in numbers)
        first, last = (f'"job_{numbers[0]:07d}"', f'"job_{numbers[-1]:07d}"') if numbers else ("null", "null")
        more = "true" if numbers and numbers[-1] > 0 else "false"
        return f'{{"object":"list","data":[{data}],"first_id":{first},"last_id":{last},"has_more":{more}}}'.encode()

    def stats(self) -> bytes:
        """What was asked, and how late ends were seen."""
        late = sorted(value * 1000 for value in self.shown if value)
        return json.dumps(
            {
                **self.counts,
                "ends_shown": len(late),
                "late_ms": {q: late[min(len(late) - 1, int(len(late) * q / 100))] for q in (50, 99, 100)}
                if late
                else {},
                "per_second": self.per_second,
            }
        ).encode()

    def answer(self, method: str, target: str) -> tuple[int, bytes]:
        """Status and body of one request."""
        url = urlsplit(target)
        query = {name: values[-1] for name, values in parse_qs(url.query).items()}
        match url.path:
            case "/_stats":
                return 200, self.stats()
            case "/_begin":
                self.began, self.has_begun = time.time(), True
                return 200, b"{}"
            case "/_outage":
                self.is_out = query.get("on") == "1"
                return 200, b"{}"
        second = int(time.time())
        self.per_second[second] = self.per_second.get(second, 0) + 1
        if self.is_out:
            self.counts["refused"] += 1
            return 503, b'{"error":{"message":"out","type":"server_error"}}'
        if url.path == "/v1/batches" and method == "GET":
            self.counts["list"] += 1
            return 200, self.page(query.get("after"), int(query.get("limit", "20")))
        head, _, name = url.path.rpartition("/")
        if not name.startswith("job_") or not 0 <= int(name[4:]) < self.jobs:
            return 404, b'{"error":{"message":"no such job","type":"invalid_request_error"}}'
        self.counts["get"] += 1
        number = int(name[4:])
        return 200, self.job(number) if head == "/jobs" else self.batch(number).encode()


class Door(asyncio.Protocol):
    """One connection: requests without bodies that matter, answered in order."""

    def __init__(self, account: Account) -> None:
        self._account = account
        self._buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Somebody is there."""
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - TCP
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer each whole head."""
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head, self._buffer = self._buffer[:end], self._buffer[end + 4 :]
            method, target, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
            status, body = self._account.answer(method, target)
            line = b"HTTP/1.1 %d x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % (
                status,
                len(body),
            )
            self._transport.write(line + body)


async def serve(port: int, account: Account) -> None:
    """Until the process is ended."""
    await asyncio.get_running_loop().create_server(lambda: Door(account), "127.0.0.1", port, backlog=1024)
    await asyncio.Event().wait()


def main() -> None:
    """Serve, as the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--jobs", type=int, default=1_000_000)
    parser.add_argument("--ms", type=float, default=0)
    parser.add_argument("--spread", type=float, default=0)
    parser.add_argument("--word", default="succeeded")
    given = parser.parse_args()
    asyncio.run(serve(given.port, Account(given.jobs, given.ms, given.spread, given.word)))


if __name__ == "__main__":
    main()
