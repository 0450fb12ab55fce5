-- What events told of one operation: asked where its job is gone, and where an operation is removed.
CREATE INDEX events_by_operation ON events (operation_key) WHERE operation_key IS NOT NULL;
