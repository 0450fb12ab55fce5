"""`reconciled` without a log, to see what that costs: `python -m benchmarks.silent serve --config FILE`."""

import logging
import sys
from typing import Any

import structlog

from daemon import cli
from daemon.cli import processes


def make_quiet_log(*_: Any, **__: Any) -> Any:
    """A logger that drops whatever is below CRITICAL before it is made into a line."""
    return structlog.wrap_logger(
        structlog.PrintLogger(sys.stderr), wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL)
    )


if __name__ == "__main__":
    vars(processes)["make_log"] = make_quiet_log
    sys.exit(cli.main())
