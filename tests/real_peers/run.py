"""Runs `reconciled serve` against a real batch server that nobody here wrote, and tells what happened.

    python -m tests.real_peers.run

The server is `ogx`, which speaks OpenAI's batches and Anthropic's; it is installed into a virtual environment of its
own, git-ignored, on the first run. The stories take both shapes to their end, cancel batches in mid-run, too late and
just as they end, and kill the server under two that run. What ogx says is read by the official SDKs, past the product.

Exit 0 only if every story passed. What cannot run (no Python 3.12, nothing to install from) is said, and counts as
failed: a story that was not told proves nothing.
"""

import argparse
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import anthropic
import openai

from tests.real_peers import peers
from tests.real_peers.cancel_stories import cancelled_in_mid_run, cancelled_just_then, cancelled_too_late
from tests.real_peers.killed_story import killed_in_mid_run
from tests.real_peers.messages_story import message_batch_polled
from tests.real_peers.openai_stories import SECRET, poll_alone, rung
from tests.real_peers.product import running_product
from tests.real_peers.transcript import StoryFailedError
from tests.real_peers.world import World

#: The last one kills the server: whatever another story left running there would run no more.
STORIES: Final[tuple[Callable[[World], None], ...]] = (
    poll_alone,
    rung,
    message_batch_polled,
    cancelled_in_mid_run,
    cancelled_too_late,
    cancelled_just_then,
    killed_in_mid_run,
)


def run(stories: Sequence[Callable[[World], None]], peers_directory: Path, directory: Path) -> int:
    """Tells these stories; the number of those that passed.

    Raises: peers.PeerMissingError, and StoryFailedError where the daemon does not stop as it should.
    """
    print(f"installing {peers.OGX} if it is not there yet", flush=True)
    command = peers.ensure_ogx(peers_directory / "ogx")
    passed = 0
    with peers.running_ogx(command, directory / "ogx") as ogx:
        print(f"{peers.OGX} answers at {ogx.base_url}", flush=True)
        client = openai.OpenAI(base_url=ogx.base_url, api_key="not-a-secret", max_retries=0)
        # Its paths begin with /v1 themselves.
        messages = anthropic.Anthropic(base_url=ogx.base_url.removesuffix("/v1"), api_key="not-a-secret", max_retries=0)
        with running_product(directory / "reconciled", ogx.base_url, SECRET, patience=ogx.patience) as product:
            print(f"reconciled is ready: API {product.api}, webhooks {product.hooks}", flush=True)
            world = World(product, ogx, client, messages, ogx.patience)
            for story in stories:
                passed += _tell(story, world)
            code = peers.stop(product.process)
            if code != 0:
                raise StoryFailedError(f"SIGTERM ended the daemon with {code}, wanted 0:\n{peers.tail(product.log)}")
    return passed


def _tell(story: Callable[[World], None], world: World) -> bool:
    print(f"\n{story.__name__}: {story.__doc__}", flush=True)
    began = time.monotonic()
    try:
        story(world)
    except (StoryFailedError, openai.OpenAIError, anthropic.AnthropicError, OSError, LookupError, TypeError) as error:
        # LookupError, TypeError: a body without a field that the interface promises
        print(f"  FAILED: {type(error).__name__}: {error}", flush=True)
        print(f"  the end of the daemon's log:\n{peers.tail(world.product.log)}", flush=True)
        return False
    print(f"{story.__name__}: passed, {time.monotonic() - began:.0f} s", flush=True)
    return True


def main() -> int:
    """The exit code: 0 only if every story that was asked for was told and passed."""
    parser = argparse.ArgumentParser(description="Runs reconciled against a real batch server.")
    default = Path(__file__).resolve().parents[2] / ".real-peers"
    parser.add_argument("--peers", type=Path, default=default, help="where the peers are installed (%(default)s)")
    parser.add_argument("--keep", type=Path, help="keep all that the run writes in this new directory")
    names = {story.__name__: story for story in STORIES}
    parser.add_argument("--story", action="append", choices=names, help="tell this one only; may be given again")
    arguments = parser.parse_args()
    stories = [story for name, story in names.items() if name in (arguments.story or names)]
    # Asked to stop, it still ends what it started: SystemExit leaves through every `with`.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    # Everything is on this machine: a proxy meant for the outside must not be asked for it.
    for name in ("NO_PROXY", "no_proxy"):
        os.environ[name] = "127.0.0.1,localhost"
    try:
        if arguments.keep is not None:
            arguments.keep.mkdir(parents=True)
            passed = run(stories, arguments.peers.resolve(), arguments.keep.resolve())
        else:
            with tempfile.TemporaryDirectory(prefix="real-peers-") as directory:
                passed = run(stories, arguments.peers.resolve(), Path(directory))
    except (peers.PeerMissingError, StoryFailedError) as error:
        print(f"real peers: failed: {error}", file=sys.stderr)
        return 1
    if passed < len(stories):
        print(f"real peers: {len(stories) - passed} of {len(stories)} stories failed")
        return 1
    print(f"\nreal peers: {passed} stories passed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
