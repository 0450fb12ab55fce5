-- Events that were kept without what they were judged to mean: nobody can say it any more (NULL).
ALTER TABLE events RENAME TO early_events;
DROP INDEX events_unmatched;
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
INSERT INTO events (key, provider, event_id, body_sha256, received_at, remote_job_id, word, verdict, operation_key,
    disposition, duplicates, body)
SELECT key, provider, event_id, body_sha256, received_at, remote_job_id, word, NULL, operation_key, disposition,
    duplicates, body
FROM early_events
ORDER BY key;
DROP TABLE early_events;
CREATE INDEX events_unmatched ON events (provider, remote_job_id) WHERE operation_key IS NULL;
