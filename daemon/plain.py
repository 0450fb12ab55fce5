"""Plain words for our own short ones, as a person reads them; `--json` and the log keep the words themselves."""

import re
from collections.abc import Mapping
from typing import Final

#: What a request came to, by its error class.
_ERRORS: Final[Mapping[str, str]] = {
    "address_refused": "its name leads to an address that may not be called",
    "another_job": "the answer speaks of another job",
    "answer_too_large": "the answer is too large",
    "bad_encoding": "the answer's encoding is broken",
    "callback_moved": "its URL does not lie under the configured callback any more",
    "bad_url": "the address cannot be used",
    "connect": "no connection",
    "connect_timeout": "no connection in time",
    "cut": "the answer was cut off",
    "dns": "its name is not known",
    "empty_result": "the result is empty",
    "html_page": "a web page came instead",
    "no_job_id": "the answer names no job",
    "no_result_named": "it names no result",
    "nothing_to_send": "there is nothing to send",
    "our_disk": "our own disk",
    "our_fault": "a fault of ours",
    "our_file": "our own file cannot be read",
    "page_too_large": "a page of the list holds more than was asked for",
    "redirect_not_followed": "a redirect, which is not followed",
    "reset": "the connection was lost",
    "result_too_large": "the result is too large",
    "results_dropped": "it has dropped the result",
    "timeout": "no answer in time",
    "tls": "its certificate or TLS is not right",
    "unreadable": "an answer that cannot be read",
    # why a provider is left alone
    "create_not_accepted": "it does not accept creates",
    "credentials_refused": "it refuses the key",
    "rate_limited": "it asks for fewer requests",
    "unavailable": "it says that it is unavailable",
}
#: Why a person is asked or told.
_REASONS: Final[Mapping[str, str]] = {
    "callback_exhausted": "a callback was never taken",
    "cancellation_unconfirmed": "the cancel was never confirmed",
    "clock_stepped": "the clock was set",
    "contract_violation": "more than one job stands for it",
    "contradiction": "evidence speaks against its end",
    "create_not_accepted": "creates are not accepted",
    "create_unresolved": "it is not known whether there is a job",
    "credentials_refused": "the key is refused",
    "disk_low": "the disk is nearly full",
    "errors": "the job cannot be read",
    "gone": "the job is not known there any more",
    "input_required": "the job waits for input",
    "input_unknown": "the input may not have arrived",
    "provider_missing": "its provider is not in the configuration",
    "provider_moved": "its provider is at another address",
    "provider_paused": "the provider is left alone",
    "refused": "the cancel was refused",
    "result_expiring": "the result will soon be dropped",
    "result_timed_out": "no end was seen in time",
    "result_unavailable": "the result cannot be fetched",
    "result_validation_failed": "the result is not as it should be",
    "webhooks_silent": "webhooks fail to come",
}
#: Where our sentences put an error class: in brackets, alone or before a count, or at the end of "the last ...".
_PLACES: Final = re.compile(r"(?<=\()[a-z_]+[0-9]*(?=[,)])|(?<=the last came to )\w+|(?<=the last with )\w+")
_STATUS: Final = re.compile(r"http_([0-9]{3})")


def error(word: str) -> str:
    """What an error class means; a word that is not ours stays as it is."""
    if status := _STATUS.fullmatch(word):
        return f"HTTP {status[1]}"
    return _ERRORS.get(word, word)


def reason(word: str) -> str:
    """Why a person is asked or told."""
    return _REASONS.get(word, word)


def sentence(text: str) -> str:
    """One of our sentences with the error classes in it told in plain words."""
    return _PLACES.sub(lambda found: error(found[0]), text)
