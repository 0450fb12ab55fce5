"""Where the proof of a delivery stands: what a contract says and a signature scheme goes by."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class ProofPlace:
    """Where a delivery's proof stands, for schemes that leave that to the sender; header names in lower case."""

    signature: str
    encoding: Literal["hex", "base64"] = "hex"
    #: What the body is signed with, as TIMESTAMP.BODY; None: the body alone is, and no age can be told.
    timestamp: str | None = None
