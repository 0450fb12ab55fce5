-- A schedule without the state's own deadline: it is taken from where the operation keeps all of them.
ALTER TABLE schedule RENAME TO early_schedule;
DROP INDEX schedule_due;
DROP INDEX schedule_leased;
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
INSERT INTO schedule (key, provider, priority, due_at, deadline_at, polls, errors, gone_reads, gone_since, mark_at,
    marks_on_claim, fence, lease_owner, lease_until, ring, last_read_at, reads)
SELECT s.key, s.provider, s.priority, s.due_at,
    CASE
        WHEN o.state IN ('create_pending', 'create_unknown') THEN json_extract(o.living, '$.deadlines.create')
        WHEN o.state IN ('accepted', 'observing', 'input_given') THEN json_extract(o.living, '$.deadlines.result')
        WHEN o.state IN ('cancel_requested', 'cancelling') THEN json_extract(o.living, '$.deadlines.cancel')
        WHEN o.state = 'result_collecting' THEN json_extract(o.living, '$.deadlines.collect')
        -- The earlier of the two.
        WHEN o.state = 'blocked' THEN (
            SELECT min(value) FROM json_each(o.living, '$.deadlines') WHERE json_each.key IN ('input', 'result'))
        ELSE json_extract(o.living, '$.deadlines.attention')
    END,
    s.polls, s.errors, s.gone_reads, s.gone_since, s.mark_at, s.marks_on_claim, s.fence, s.lease_owner, s.lease_until,
    s.ring, s.last_read_at, s.reads
FROM early_schedule s JOIN operations o ON o.key = s.key
ORDER BY s.key;
DROP TABLE early_schedule;
CREATE INDEX schedule_due ON schedule (provider, priority, due_at) WHERE lease_owner IS NULL;
CREATE INDEX schedule_overdue ON schedule (provider, deadline_at)
    WHERE lease_owner IS NULL AND deadline_at IS NOT NULL;
CREATE INDEX schedule_leased ON schedule (lease_until) WHERE lease_owner IS NOT NULL;
