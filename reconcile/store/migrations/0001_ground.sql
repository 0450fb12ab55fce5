-- The ground: operations and their schedule, history, evidence, events, items, client keys.
-- Runs whole, in one transaction, together with its user_version.

-- What is known of an operation. `living` holds, as JSON, what changes often and is never searched.
CREATE TABLE operations (
    key INTEGER PRIMARY KEY,
    operation_id TEXT NOT NULL UNIQUE,
    provider TEXT NOT NULL,
    type TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN (
        'create_pending', 'create_unknown', 'accepted', 'observing', 'blocked', 'input_given', 'cancel_requested',
        'cancelling', 'result_collecting', 'create_unresolved', 'contract_violation', 'observation_failed',
        'result_timed_out', 'cancellation_unconfirmed', 'result_unavailable', 'result_validation_failed',
        'succeeded', 'completed_with_errors', 'failed', 'cancelled', 'timed_out', 'abandoned')),
    remote_job_id TEXT,
    remote_status TEXT,
    created_at INTEGER NOT NULL,
    started_at INTEGER,
    completed_at INTEGER,
    token TEXT NOT NULL UNIQUE,
    trace_id TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    contract_version INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    head TEXT NOT NULL,
    living TEXT NOT NULL CHECK (living LIKE '{%}'),
    CHECK ((completed_at IS NOT NULL) = (state IN (
        'succeeded', 'completed_with_errors', 'failed', 'cancelled', 'timed_out', 'abandoned')))
) STRICT;
-- N5: one job, one operation, unless the operation ended without the job's own end.
CREATE UNIQUE INDEX operations_hold_jobs ON operations (provider, remote_job_id)
    WHERE remote_job_id IS NOT NULL AND state NOT IN ('timed_out', 'abandoned');
-- Events look for their job here, given-up operations included.
CREATE INDEX operations_by_job ON operations (provider, remote_job_id) WHERE remote_job_id IS NOT NULL;
CREATE INDEX operations_by_state ON operations (state);

-- What was asked for, written once: apart, because a row that changes often should not drag it along.
CREATE TABLE starts (
    operation_key INTEGER PRIMARY KEY REFERENCES operations (key),
    request TEXT NOT NULL CHECK (request LIKE '{%}'),
    expect TEXT NOT NULL CHECK (expect LIKE '{%}')
) STRICT;

-- The narrow half of the row; it goes when the operation has ended.
CREATE TABLE schedule (
    key INTEGER PRIMARY KEY REFERENCES operations (key),
    provider TEXT NOT NULL,
    priority INTEGER NOT NULL,
    due_at INTEGER NOT NULL,
    -- The state's own deadline: it fires even while the provider is paused and nothing may be sent.
    deadline_at INTEGER,
    polls INTEGER NOT NULL DEFAULT 0,
    errors INTEGER NOT NULL DEFAULT 0,
    gone_reads INTEGER NOT NULL DEFAULT 0,
    gone_since INTEGER,
    mark_at INTEGER,
    marks_on_claim INTEGER NOT NULL DEFAULT 0,
    fence INTEGER NOT NULL DEFAULT 0,
    lease_owner TEXT,
    lease_until INTEGER,
    ring TEXT,
    last_read_at INTEGER,
    reads INTEGER NOT NULL DEFAULT 0,
    CHECK ((lease_owner IS NULL) = (lease_until IS NULL))
) STRICT;
-- The cost of a claim follows the number of due rows, not of stored ones.
CREATE INDEX schedule_due ON schedule (provider, priority, due_at) WHERE lease_owner IS NULL;
CREATE INDEX schedule_overdue ON schedule (provider, deadline_at)
    WHERE lease_owner IS NULL AND deadline_at IS NOT NULL;
CREATE INDEX schedule_leased ON schedule (lease_until) WHERE lease_owner IS NOT NULL;

-- Append-only, hash-chained per operation, numbered over all without gaps in commit order.
CREATE TABLE history (
    position INTEGER PRIMARY KEY AUTOINCREMENT,
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    seq INTEGER NOT NULL,
    at INTEGER NOT NULL,
    actor TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('move', 'fact', 'refused', 'contradiction')),
    from_state TEXT,
    to_state TEXT,
    cause TEXT NOT NULL,
    remote_job_id TEXT,
    reason TEXT NOT NULL,
    facts TEXT NOT NULL CHECK (facts LIKE '{%}'),
    hash TEXT NOT NULL,
    UNIQUE (operation_key, seq)
) STRICT;
CREATE TRIGGER history_is_never_changed BEFORE UPDATE ON history
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;
-- REPLACE removes a row without asking the DELETE trigger.
CREATE TRIGGER history_is_never_replaced BEFORE INSERT ON history
WHEN EXISTS (SELECT 1 FROM history WHERE position = NEW.position)
    OR EXISTS (SELECT 1 FROM history WHERE operation_key = NEW.operation_key AND seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;
CREATE TRIGGER history_is_never_removed BEFORE DELETE ON history
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;

-- Every request that told something new, and every one with an effect; the credential's name, never its value.
CREATE TABLE requests (
    request_id TEXT PRIMARY KEY,
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    purpose TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    sent_at INTEGER NOT NULL,
    ended_at INTEGER NOT NULL,
    status INTEGER,
    error_class TEXT,
    remote_request_id TEXT,
    credential TEXT
) STRICT, WITHOUT ROWID;
CREATE INDEX requests_by_operation ON requests (operation_key, sent_at);

-- Each fact that told something new, with the bytes it was read from.
CREATE TABLE observations (
    number INTEGER PRIMARY KEY,
    observation_id TEXT NOT NULL UNIQUE,
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    at INTEGER NOT NULL,
    road TEXT NOT NULL,
    word TEXT,
    remote_status TEXT,
    verdict TEXT,
    known INTEGER NOT NULL,
    error_class TEXT,
    request_id TEXT,
    contract_version INTEGER NOT NULL,
    raw BLOB
) STRICT;
CREATE INDEX observations_by_operation ON observations (operation_key, at);

-- Verified deliveries. The same id with other content is a row of its own.
CREATE TABLE events (
    key INTEGER PRIMARY KEY,
    provider TEXT NOT NULL,
    event_id TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    remote_job_id TEXT,
    word TEXT,
    verdict TEXT,
    operation_key INTEGER REFERENCES operations (key),
    disposition TEXT NOT NULL CHECK (disposition IN ('rings', 'kept', 'unmatched', 'unreadable', 'contradiction')),
    duplicates INTEGER NOT NULL DEFAULT 0,
    body BLOB NOT NULL,
    UNIQUE (provider, event_id, body_sha256)
) STRICT;
CREATE INDEX events_unmatched ON events (provider, remote_job_id) WHERE operation_key IS NULL;

-- Attempt 0 holds the submitted ids and where each line stands in the input; an attempt above it is one collection.
CREATE TABLE items (
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    attempt INTEGER NOT NULL,
    item_id TEXT NOT NULL,
    line INTEGER NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN ('submitted', 'succeeded', 'failed', 'cancelled', 'expired', 'missing')),
    reason TEXT NOT NULL,
    file INTEGER,
    start INTEGER,
    length INTEGER,
    PRIMARY KEY (operation_key, attempt, item_id, line)
) STRICT, WITHOUT ROWID;
CREATE INDEX items_not_succeeded ON items (operation_key, attempt, outcome, item_id)
    WHERE attempt > 0 AND outcome <> 'succeeded';

-- A client's idempotency key and the content it stands for (G5).
CREATE TABLE client_keys (
    client_key TEXT PRIMARY KEY,
    content TEXT NOT NULL,
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    created_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
