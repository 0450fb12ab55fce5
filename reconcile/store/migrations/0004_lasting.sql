-- What makes the record last: signed checkpoints over all chains, what was pruned, ids that outlive their events.

-- One signature over the newest head of each chain that moved since the checkpoint before.
CREATE TABLE checkpoints (
    number INTEGER PRIMARY KEY,
    at INTEGER NOT NULL,
    -- The last history position that it covers.
    position INTEGER NOT NULL,
    -- The hash of the checkpoint before.
    previous TEXT NOT NULL,
    heads INTEGER NOT NULL,
    pruned INTEGER NOT NULL,
    -- Of the Merkle tree (RFC 9162) over its heads and over what was pruned.
    root TEXT NOT NULL,
    hash TEXT NOT NULL,
    public_key TEXT NOT NULL,
    signature TEXT NOT NULL
) STRICT;
CREATE INDEX checkpoints_by_position ON checkpoints (position, number);
CREATE TRIGGER checkpoints_are_never_changed BEFORE UPDATE ON checkpoints
BEGIN
    SELECT RAISE(ABORT, 'a signed checkpoint is never changed');
END;
CREATE TRIGGER checkpoints_are_never_replaced BEFORE INSERT ON checkpoints
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE number >= NEW.number)
BEGIN
    SELECT RAISE(ABORT, 'a signed checkpoint is never changed');
END;
CREATE TRIGGER checkpoints_are_never_removed BEFORE DELETE ON checkpoints
BEGIN
    SELECT RAISE(ABORT, 'a signed checkpoint is never changed');
END;

-- The leaves of each checkpoint. Those of a number that is not signed yet are being gathered; a later try goes on.
CREATE TABLE heads (
    checkpoint INTEGER NOT NULL,
    operation_id TEXT NOT NULL,
    seq INTEGER NOT NULL,
    head TEXT NOT NULL,
    PRIMARY KEY (checkpoint, operation_id)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER signed_heads_are_never_changed BEFORE UPDATE ON heads
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE number = OLD.checkpoint OR number = NEW.checkpoint)
BEGIN
    SELECT RAISE(ABORT, 'a signed head is never changed');
END;
CREATE TRIGGER signed_heads_are_never_joined BEFORE INSERT ON heads
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE number = NEW.checkpoint)
BEGIN
    SELECT RAISE(ABORT, 'a signed head is never changed');
END;
CREATE TRIGGER signed_heads_are_never_removed BEFORE DELETE ON heads
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE number = OLD.checkpoint)
BEGIN
    SELECT RAISE(ABORT, 'a signed head is never changed');
END;

-- What is left of a chain that was pruned: its last head, so that pruning can be told from deletion.
CREATE TABLE pruned (
    operation_id TEXT PRIMARY KEY,
    seq INTEGER NOT NULL,
    head TEXT NOT NULL,
    pruned_at INTEGER NOT NULL,
    -- The checkpoint that had signed that head before.
    behind INTEGER NOT NULL REFERENCES checkpoints (number),
    -- The checkpoint that signs the pruning; none yet where it is null or not there.
    checkpoint INTEGER,
    -- Where it stood among the others: a cursor that names it still leads on.
    operation_key INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX pruned_by_checkpoint ON pruned (checkpoint, operation_id);
CREATE TRIGGER pruned_heads_are_never_changed BEFORE UPDATE ON pruned
WHEN EXISTS (SELECT 1 FROM checkpoints WHERE number = OLD.checkpoint OR number = NEW.checkpoint)
    OR (NEW.operation_id, NEW.seq, NEW.head, NEW.pruned_at, NEW.behind, NEW.operation_key)
        IS NOT (OLD.operation_id, OLD.seq, OLD.head, OLD.pruned_at, OLD.behind, OLD.operation_key)
BEGIN
    SELECT RAISE(ABORT, 'a pruned head is never changed');
END;
CREATE TRIGGER pruned_heads_are_never_replaced BEFORE INSERT ON pruned
WHEN EXISTS (SELECT 1 FROM pruned WHERE operation_id = NEW.operation_id)
BEGIN
    SELECT RAISE(ABORT, 'a pruned head is never changed');
END;
CREATE TRIGGER pruned_heads_are_never_removed BEFORE DELETE ON pruned
BEGIN
    SELECT RAISE(ABORT, 'a pruned head is never changed');
END;

-- N44: only what has ended goes, and only behind a checkpoint that signed its last head.
CREATE TRIGGER only_what_is_signed_is_pruned BEFORE INSERT ON pruned
WHEN NOT EXISTS (SELECT 1 FROM operations o JOIN heads h ON h.checkpoint = NEW.behind
        AND h.operation_id = o.operation_id AND h.seq = o.seq AND h.head = o.head
    WHERE o.operation_id = NEW.operation_id AND o.seq = NEW.seq AND o.head = NEW.head
        AND o.completed_at IS NOT NULL) OR NEW.checkpoint IS NOT NULL
BEGIN
    SELECT RAISE(ABORT, 'only an ended operation whose last head is signed is pruned');
END;
CREATE TRIGGER operations_are_never_removed BEFORE DELETE ON operations
WHEN NOT EXISTS (SELECT 1 FROM pruned WHERE operation_id = OLD.operation_id)
BEGIN
    SELECT RAISE(ABORT, 'an operation is only pruned');
END;
-- A chain goes whole, after its head was kept.
DROP TRIGGER history_is_never_removed;
CREATE TRIGGER history_is_never_removed BEFORE DELETE ON history
WHEN NOT EXISTS (SELECT 1 FROM operations o JOIN pruned p ON p.operation_id = o.operation_id
    WHERE o.key = OLD.operation_key)
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;

-- 1 from the moment at which its pruning began: what hangs on it goes in slices, and half of it is shown to nobody.
ALTER TABLE operations ADD COLUMN leaving INTEGER NOT NULL DEFAULT 0
    CHECK (leaving = 0 OR (leaving = 1 AND completed_at IS NOT NULL));
CREATE INDEX operations_leaving ON operations (key) WHERE leaving = 1;
-- What everybody but the pruning sees.
CREATE VIEW present AS SELECT * FROM operations WHERE leaving = 0;
-- Where each operation stands among the others, pruned or not.
CREATE VIEW places AS
    SELECT operation_id, key FROM operations UNION ALL SELECT operation_id, operation_key FROM pruned;
-- One that leaves holds no job any more.
DROP INDEX operations_hold_jobs;
CREATE UNIQUE INDEX operations_hold_jobs ON operations (provider, remote_job_id)
    WHERE remote_job_id IS NOT NULL AND state NOT IN ('timed_out', 'abandoned') AND leaving = 0;
-- With `leaving`, so that counting by state reads nothing but the index.
DROP INDEX operations_by_state;
CREATE INDEX operations_by_state ON operations (state, leaving);
-- What may be pruned is found in the order in which it ended.
CREATE INDEX operations_by_end ON operations (completed_at) WHERE completed_at IS NOT NULL;
-- What else hangs on an operation: without these each one that goes would be looked for in all of them.
CREATE INDEX client_keys_by_operation ON client_keys (operation_key);
CREATE INDEX notices_by_operation ON notices (operation_key) WHERE operation_key IS NOT NULL;
-- A list page's request stands under one operation and is named by the observations of others.
CREATE INDEX observations_by_page ON observations (request_id) WHERE road = 'list';

-- Ids of deliveries whose event was pruned: a late repeat is still one.
CREATE TABLE event_ids (
    provider TEXT NOT NULL,
    event_id TEXT NOT NULL,
    body_sha256 TEXT NOT NULL,
    received_at INTEGER NOT NULL,
    PRIMARY KEY (provider, event_id, body_sha256)
) STRICT, WITHOUT ROWID;
CREATE INDEX event_ids_by_age ON event_ids (provider, received_at);
-- How many of each provider's deliveries were pruned.
CREATE TABLE pruned_events (
    provider TEXT PRIMARY KEY,
    events INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    unmatched INTEGER NOT NULL,
    last_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
-- Deliveries that no operation was found for, by age.
CREATE INDEX events_by_age ON events (received_at) WHERE operation_key IS NULL;

-- One row in a copy that `db backup` made, until its first start has seen it: what the original sent since is not known.
CREATE TABLE backup (
    made_at INTEGER NOT NULL
) STRICT;
