-- Observations that were numbered by SQLite alone: they keep their order.
ALTER TABLE observations RENAME TO early_observations;
DROP INDEX observations_by_operation;
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
INSERT INTO observations (number, observation_id, operation_key, at, road, word, remote_status, verdict, known,
    error_class, request_id, contract_version, raw)
SELECT rowid, observation_id, operation_key, at, road, word, remote_status, verdict, known, error_class, request_id,
    contract_version, raw
FROM early_observations
ORDER BY rowid;
DROP TABLE early_observations;
CREATE INDEX observations_by_operation ON observations (operation_key, at);
