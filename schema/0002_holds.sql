-- 0002_holds.sql - who reads an instant, and whose history is being let go.
-- handler/registry/holds.c has the protocol between the two. Rules as in 0001_init.sql.

-- One opening of an instant; id is the request_id of the call that entered it. It goes with its
-- instance, whose row goes by its own hand or when it is proven dead, never by a timer (INV-5).
CREATE TABLE holds (
    id       INTEGER PRIMARY KEY CHECK (id > 0),
    vdi      TEXT NOT NULL REFERENCES vdis(id) ON DELETE CASCADE,
    seq      INTEGER NOT NULL CHECK (seq > 0),
    instance INTEGER NOT NULL REFERENCES instances(id) ON DELETE CASCADE,
    since_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX holds_vdi ON holds(vdi, seq);
CREATE INDEX holds_instance ON holds(instance);

-- Snapshots of this VDI are being let go. It counts while the VDI's lock is the one it was entered
-- under: the same owner in the same epoch.
CREATE TABLE intents (
    vdi      TEXT PRIMARY KEY REFERENCES vdis(id) ON DELETE CASCADE,
    instance INTEGER NOT NULL,
    epoch    INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
