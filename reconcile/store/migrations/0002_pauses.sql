-- Providers that are being left alone, so that a restart does not ask them again at once; a row goes when its pause ends.
CREATE TABLE pauses (
    provider TEXT PRIMARY KEY,
    until_at INTEGER NOT NULL,
    reason TEXT NOT NULL,
    failures INTEGER NOT NULL,
    opened_at INTEGER
) STRICT, WITHOUT ROWID;
