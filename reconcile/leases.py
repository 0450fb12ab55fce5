"""How long an owner holds what it leased, and how long it waits where the store took nothing."""

from typing import Final

#: How long a lease lasts, of a row or of a sweep, and the age at which it is renewed, ms. 60 s and 20 s: a lease
#: survives two missed renewals, and a dead owner's work waits no longer than a minute.
LEASE_MS: Final = 60_000
RENEW_MS: Final = 20_000
#: Wait after the store refused a write, ms. 1 s: arbitrary; a full disk does not clear faster.
STORE_BUSY_MS: Final = 1_000
