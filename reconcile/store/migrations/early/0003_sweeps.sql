-- Sweeps whose `pages` said in the file itself that it counted list pages alone.
ALTER TABLE sweeps RENAME TO early_sweeps;
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
INSERT INTO sweeps (provider, due_at, fence, lease_owner, lease_until, errors, pages, ended_at)
SELECT provider, due_at, fence, lease_owner, lease_until, errors, pages, ended_at FROM early_sweeps;
DROP TABLE early_sweeps;
