"""`reconciled db backup` as a process that kills itself at one step of the copying.

Run as `python -m tests.stories.killed_backup SOURCE TARGET --step copy|mark|check|name --time N`.
"""

import argparse
import os
import signal
from pathlib import Path

from reconcile.store.backup import back_up


def main() -> None:
    """Copy, and die the N-th time that the step is reached."""
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--step", required=True)
    parser.add_argument("--time", type=int, default=1)
    arguments = parser.parse_args()
    left = [arguments.time]

    def hook(step: str) -> None:
        left[0] -= step == arguments.step
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    back_up(arguments.source, arguments.target, made_at=1, hook=hook)


if __name__ == "__main__":
    main()
