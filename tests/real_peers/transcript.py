"""What a run tells: one line a thing seen, and one `ok:` a thing that is as it should be."""

import json


class StoryFailedError(Exception):
    """Something is not as it should be; the text says what was found and what was wanted."""


def say(text: str) -> None:
    """One line of the transcript."""
    print(f"  {text}", flush=True)


def show(title: str, body: object) -> None:
    """A body, as JSON."""
    say(f"{title}:")
    for line in json.dumps(body, indent=2, ensure_ascii=False).splitlines():
        say(f"  | {line}")


def check(what: str, found: object, wanted: object) -> None:
    """Tells that something is as it should be. Raises: StoryFailedError where it is not."""
    if found != wanted:
        raise StoryFailedError(f"{what}: found {found!r}, wanted {wanted!r}")
    say(f"ok: {what}: {found!r}")
