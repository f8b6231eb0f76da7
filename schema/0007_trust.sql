-- 0007_trust.sql - what is not known, or not believed. Rules as in 0001_init.sql.

-- What a rebuild could not read: a record, or the labels of a disk (handler/registry/lost.h).
CREATE TABLE lost (
    store INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    slot  INTEGER NOT NULL CHECK (slot >= 0),
    what  TEXT NOT NULL CHECK (what IN ('record', 'labels')),
    vdi   TEXT REFERENCES vdis(id) ON DELETE CASCADE,
    why   TEXT NOT NULL,
    PRIMARY KEY (store, slot, what),
    CHECK ((what = 'labels') = (vdi IS NOT NULL))
) STRICT, WITHOUT ROWID;

-- What was made durable last of a disk's record: its epoch, and how many states it has had (0: not
-- known). Written in the statement that gives the lock up, by who closed the disk.
ALTER TABLE vdis ADD COLUMN written_epoch INTEGER NOT NULL DEFAULT 0 CHECK (written_epoch >= 0);
ALTER TABLE vdis ADD COLUMN written_state INTEGER NOT NULL DEFAULT 0 CHECK (written_state >= 0);

-- How many states an extent's header pages had when it was given up last (0: not known); of an
-- owner's, when one of his disks was closed last. Never smaller while it has the same header.
ALTER TABLE extents ADD COLUMN states INTEGER NOT NULL DEFAULT 0 CHECK (states >= 0);

-- What was seen on the store that this registry cannot have known: it lost writes. NULL: nothing.
-- Only a rebuild ends it.
ALTER TABLE store ADD COLUMN doubt TEXT;

CREATE TRIGGER lost_insert_collection BEFORE INSERT ON collections
WHEN NEW.number % 2 = 1 AND EXISTS (SELECT 1 FROM lost WHERE store = NEW.store AND what = 'record')
BEGIN
    SELECT RAISE(ABORT, 'a record of a virtual disk cannot be read, and what it uses is not known: nothing is collected until ''parallax vdi forget --lost'' gives it up');
END;
CREATE TRIGGER lost_update_collection BEFORE UPDATE OF number ON collections
WHEN NEW.number % 2 = 1 AND EXISTS (SELECT 1 FROM lost WHERE store = NEW.store AND what = 'record')
BEGIN
    SELECT RAISE(ABORT, 'a record of a virtual disk cannot be read, and what it uses is not known: nothing is collected until ''parallax vdi forget --lost'' gives it up');
END;
CREATE TRIGGER lost_intent BEFORE INSERT ON intents
WHEN EXISTS (SELECT 1 FROM lost, vdis WHERE vdis.id = NEW.vdi AND lost.store = vdis.store
             AND (lost.what = 'record' OR lost.vdi = NEW.vdi))
BEGIN
    SELECT RAISE(ABORT, 'not all records or labels of the store could be read: no snapshot goes until ''parallax vdi forget --lost'' gives them up');
END;

CREATE TRIGGER doubt_extent BEFORE UPDATE OF owner ON extents
WHEN NEW.owner IS NOT NULL AND NEW.owner IS NOT OLD.owner AND EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND doubt IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the registry has lost writes (''parallax store info'' says what was seen), so nothing new is opened for writing until ''parallax store rebuild-registry'' has made it anew from the store');
END;
CREATE TRIGGER doubt_vdi BEFORE INSERT ON vdis
WHEN EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND doubt IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the registry has lost writes (''parallax store info'' says what was seen), so nothing new is opened for writing until ''parallax store rebuild-registry'' has made it anew from the store');
END;
CREATE TRIGGER doubt_lock BEFORE UPDATE OF owner ON vdis
WHEN NEW.owner IS NOT NULL AND NEW.owner IS NOT OLD.owner AND EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND doubt IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the registry has lost writes (''parallax store info'' says what was seen), so nothing new is opened for writing until ''parallax store rebuild-registry'' has made it anew from the store');
END;
CREATE TRIGGER doubt_intent BEFORE INSERT ON intents
WHEN EXISTS (SELECT 1 FROM store WHERE id = (SELECT store FROM vdis WHERE id = NEW.vdi) AND doubt IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the registry has lost writes (''parallax store info'' says what was seen), so nothing new is opened for writing until ''parallax store rebuild-registry'' has made it anew from the store');
END;
CREATE TRIGGER doubt_insert_collection BEFORE INSERT ON collections
WHEN NEW.number % 2 = 1 AND EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND doubt IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the registry has lost writes (''parallax store info'' says what was seen), so nothing new is opened for writing until ''parallax store rebuild-registry'' has made it anew from the store');
END;
CREATE TRIGGER doubt_update_collection BEFORE UPDATE OF number ON collections
WHEN NEW.number % 2 = 1 AND EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND doubt IS NOT NULL)
BEGIN
    SELECT RAISE(ABORT, 'the registry has lost writes (''parallax store info'' says what was seen), so nothing new is opened for writing until ''parallax store rebuild-registry'' has made it anew from the store');
END;
