-- What consumers hold on to: completions in the order they came, each claimed once, and callbacks that outlive a restart.

-- The ends, in the order of their history positions: what the completions feed reads.
CREATE INDEX history_ends ON history (position) WHERE kind = 'move' AND to_state IN (
    'succeeded', 'completed_with_errors', 'failed', 'cancelled', 'timed_out', 'abandoned');

-- Completions that a consumer has taken: once each.
CREATE TABLE completion_claims (
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    consumer TEXT NOT NULL,
    claimed_at INTEGER NOT NULL,
    -- Who asked, as history would name it.
    actor TEXT NOT NULL,
    -- The Idempotency-Key under which it was taken: whoever lost the answer gets it again by the same one.
    claim_key TEXT,
    PRIMARY KEY (operation_key, consumer)
) STRICT, WITHOUT ROWID;

-- The outbox: what is told to a callback, written with the move that it tells of and never changed but for how it fares.
CREATE TABLE deliveries (
    -- The webhook-id of every attempt.
    delivery_id TEXT PRIMARY KEY,
    operation_key INTEGER NOT NULL REFERENCES operations (key),
    -- Its name in the configuration, whose secrets sign it.
    callback TEXT NOT NULL,
    url TEXT NOT NULL,
    type TEXT NOT NULL CHECK (type IN ('operation.done', 'operation.needs_attention')),
    -- Frozen: every attempt sends these bytes.
    body BLOB NOT NULL,
    created_at INTEGER NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('waiting', 'delivered', 'exhausted')),
    -- Those of which it is known what they came to.
    attempts INTEGER NOT NULL DEFAULT 0,
    -- The next attempt, or the end of the one under way; none where nothing more is tried by itself.
    due_at INTEGER,
    -- An attempt is under way, or was when the process died.
    is_taken INTEGER NOT NULL DEFAULT 0 CHECK (is_taken IN (0, 1)),
    last_at INTEGER,
    last_status INTEGER,
    last_error TEXT,
    CHECK ((due_at IS NOT NULL) = (state = 'waiting')),
    CHECK (is_taken = 0 OR state = 'waiting')
) STRICT;
CREATE INDEX deliveries_due ON deliveries (callback, due_at) WHERE state = 'waiting';
CREATE INDEX deliveries_fates ON deliveries (callback, state);
CREATE INDEX deliveries_by_operation ON deliveries (operation_key);
CREATE TRIGGER deliveries_are_frozen
BEFORE UPDATE OF delivery_id, operation_key, callback, url, type, body, created_at ON deliveries
BEGIN
    SELECT RAISE(ABORT, 'a delivery is never changed but for how it fares');
END;
