-- 0006_room.sql - events are bounded by their bytes, so that they leave room for the rest.
-- Rules as in 0001_init.sql.

-- One row: how many bytes the rows of events take, about, and how many they may. The driver sets the
-- limit when it opens a registry: an eighth of the space where that is bounded.
CREATE TABLE room (
    id          INTEGER PRIMARY KEY CHECK (id = 1),
    event_bytes INTEGER NOT NULL,
    event_limit INTEGER NOT NULL
) STRICT;
INSERT INTO room (id, event_bytes, event_limit)
    SELECT 1, coalesce(sum(32 + length(CAST(who AS BLOB)) + length(CAST(what AS BLOB))
        + length(CAST(subject AS BLOB)) + length(CAST(detail AS BLOB))), 0), 8388608 FROM events;

-- Two go for one that comes: above the limit they get fewer.
DROP TRIGGER events_bounded;
CREATE TRIGGER events_bounded AFTER INSERT ON events BEGIN
    UPDATE room SET event_bytes = event_bytes
        + 32 + length(CAST(NEW.who AS BLOB)) + length(CAST(NEW.what AS BLOB))
        + length(CAST(NEW.subject AS BLOB)) + length(CAST(NEW.detail AS BLOB));
    DELETE FROM events WHERE id IN (SELECT id FROM events
        WHERE (SELECT event_bytes > event_limit FROM room) ORDER BY id LIMIT 2);
END;
CREATE TRIGGER events_gone AFTER DELETE ON events BEGIN
    UPDATE room SET event_bytes = event_bytes
        - 32 - length(CAST(OLD.who AS BLOB)) - length(CAST(OLD.what AS BLOB))
        - length(CAST(OLD.subject AS BLOB)) - length(CAST(OLD.detail AS BLOB));
END;
