-- REPLACE removes a row without asking the DELETE trigger.
CREATE TRIGGER history_is_never_replaced BEFORE INSERT ON history
WHEN EXISTS (SELECT 1 FROM history WHERE position = NEW.position)
    OR EXISTS (SELECT 1 FROM history WHERE operation_key = NEW.operation_key AND seq = NEW.seq)
BEGIN
    SELECT RAISE(ABORT, 'history is append-only');
END;
