"""The API's next steps as commands: its sentences name calls, and whoever types `reconciled` makes none.

Each is found by its method and path alone, so that the sentence around it may be worded anew. `--json` keeps the call.
"""

import re
from typing import Final

_ID: Final = r"(?P<id>[\w-]+)"
_HERE: Final = rf"/v1/operations/{_ID}"
#: A call, and the command that does the same; the more special ones come first.
_COMMANDS: Final = tuple(
    (re.compile(call + r"(?![\w/?-])"), command)
    for call, command in (
        (rf"GET {_HERE}\?wait=(?P<seconds>\d+)", r"`reconciled wait \g<id> --max \g<seconds>s`"),
        (rf"POST {_HERE}/input", r"`reconciled input \g<id> FILE`"),
        (rf"POST {_HERE}/cancel", r"`reconciled cancel \g<id> --reason R`"),
        (rf"POST {_HERE}/claim", r"`reconciled claim \g<id> --consumer C`"),
        (rf"POST {_HERE}/decisions", r"`reconciled decide \g<id> DECISION --reason R`"),
        (rf"GET {_HERE}/items\?outcome=(?P<word>\w+)", r"`reconciled items \g<id> --outcome \g<word>`"),
        (rf"GET {_HERE}/(?P<part>history|items|result)", r"`reconciled \g<part> \g<id>`"),
        (rf"GET {_HERE}", r"`reconciled show \g<id>`"),
        (r"GET /v1/operations\?open=true", "`reconciled list --open`"),
        (r"GET /v1/(?:operations|completions)", "`reconciled list`"),
        (r"GET /v1/inbox", "`reconciled inbox`"),
        (r"GET /v1/status", "`reconciled status`"),
        # A field of the body, as `show` names it.
        ("`attention`", '"you may decide": `reconciled decide ID DECISION --reason R`'),
    )
)


def as_commands(sentence: str) -> str:
    """The same sentence with commands in the place of calls; a call that no command makes stays as it is."""
    for call, command in _COMMANDS:
        sentence = call.sub(command, sentence)
    return sentence
