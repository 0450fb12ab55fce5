"""A stranger's words inside a sentence of ours: quoted, short, on one line, and with no way out of the quotes (S50)."""

import re
from typing import Final

#: Characters of a stranger's text in one sentence. 300: arbitrary; the whole text stands in a field of its own.
MOST: Final = 300
#: What ends a line, hides, or reorders what a person reads: controls, surrogates, separators, marks without a width.
_UNSEEN: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\ud800-\udfff\u2028\u2029\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]+"
    "|[\U000e0000-\U000e007f]+"
)


def quoted(text: str, *, most: int = MOST) -> str:
    """`text` as data: within single quotes, and none inside."""
    plain = _UNSEEN.sub(" ", text[: 4 * most]).strip().replace("'", "\u2019")
    return f"'{plain[: most - 1]}…'" if len(plain) > most or len(text) > 4 * most else f"'{plain}'"
