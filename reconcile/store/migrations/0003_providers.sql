-- What is known of providers as such: which kind each is, how its webhooks fare, when its list is swept, what to tell
-- people about it.

CREATE TABLE providers (
    provider TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    -- How the newest ends came to light, oldest first: 1 announced by an event, 0 found by a sweep before any.
    recent_ends TEXT NOT NULL DEFAULT '' CHECK (recent_ends NOT GLOB '*[^01]*')
) STRICT, WITHOUT ROWID;

-- One cursor a listing account: the polls of all its open jobs.
CREATE TABLE sweeps (
    provider TEXT PRIMARY KEY,
    due_at INTEGER NOT NULL,
    fence INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_until INTEGER,
    errors INTEGER NOT NULL DEFAULT 0,
    -- Requests that the last whole sweep came to: list pages, and reads of what they did not show. 0: none yet.
    pages INTEGER NOT NULL DEFAULT 0,
    ended_at INTEGER,
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL))
) STRICT, WITHOUT ROWID;

-- What people are told without being asked anything; a row goes when its cause is gone. The id names reason and subject,
-- so that one cause is told once.
CREATE TABLE notices (
    notice_id TEXT PRIMARY KEY,
    reason TEXT NOT NULL CHECK (reason IN (
        'credentials_refused', 'provider_paused', 'provider_missing', 'provider_moved', 'webhooks_silent',
        'result_expiring', 'callback_exhausted', 'contradiction', 'clock_stepped', 'disk_low')),
    -- What it speaks of: a provider, an operation, or neither.
    provider TEXT,
    operation_key INTEGER REFERENCES operations (key),
    since INTEGER NOT NULL,
    message TEXT NOT NULL,
    evidence TEXT NOT NULL CHECK (evidence LIKE '{%}'),
    acknowledged_at INTEGER,
    acknowledged_by TEXT,
    because TEXT,
    CHECK ((acknowledged_at IS NULL) = (acknowledged_by IS NULL))
) STRICT, WITHOUT ROWID;

-- What events told of one operation: asked where its job is gone, and where an operation is removed.
CREATE INDEX events_by_operation ON events (operation_key) WHERE operation_key IS NOT NULL;
