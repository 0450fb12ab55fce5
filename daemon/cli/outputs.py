"""A file that a command writes: there as a whole, or not at all."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO


@contextmanager
def writing(output: Path) -> Iterator[IO[bytes]]:
    """A file that bears the name of `output` once the body has gone well: half a result must not look like one.

    Raises: OSError.
    """
    if output.exists() and not output.is_file():  # a pipe or a device is written to, not replaced
        with output.open("wb") as file:
            yield file
        return
    with tempfile.NamedTemporaryFile(dir=output.parent, prefix=".reconciled-", delete=False) as part:
        try:
            yield part.file
            part.flush()
            Path(part.name).rename(output)
        finally:
            Path(part.name).unlink(missing_ok=True)
