"""A process that upgrades one file and kills itself on the way: `python -m tests.upgrade.victim FILE STATEMENT`.

It dies before the statement of that number (from 1) that SQLite is about to run within the upgrade. Its cache is so
small that the pages of the unfinished transaction already stand in the journal by then.
"""

import os
import signal
import sqlite3
import sys

from reconcile.store import schema


def main(path: str, last: int) -> None:
    """Upgrade, unless the end comes first; say how many statements it took. 0: it does not come."""
    seen = 0

    def count(sql: str) -> None:
        nonlocal seen
        seen += seen > 0 or sql.startswith(("ALTER", "CREATE"))
        if seen and seen == last:
            os.kill(os.getpid(), signal.SIGKILL)

    connection = sqlite3.connect(path, isolation_level=None)
    connection.set_trace_callback(count)
    settings = [setting for setting in schema.WRITER_PRAGMAS if "cache_size" not in setting]
    schema.WRITER_PRAGMAS = (*settings, "PRAGMA cache_size = 1")  # type: ignore[assignment, misc]
    schema.prepare_writer(connection)
    print(seen)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
