-- 0001_init.sql - the registry's first schema. schema/README.md tells who writes what.
--
-- Plain SQLite 3.40, runnable by rqlite as it stands: no BEGIN, no functions of time or chance;
-- times (nanoseconds since 1970, UTC) and ids are parameters. request_id is the random number of
-- the call that last changed a row: a driver that lost an answer sends the same call again, and
-- the statement recognises its own work instead of doing it twice.

CREATE TABLE migrations (
    number      INTEGER PRIMARY KEY,
    applied_ns  INTEGER NOT NULL
) STRICT;

CREATE TABLE store (
    id            INTEGER PRIMARY KEY AUTOINCREMENT,
    uuid          TEXT NOT NULL UNIQUE CHECK (length(uuid) = 36),
    name          TEXT NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 63),
    extent_blocks INTEGER NOT NULL CHECK (extent_blocks > 0),
    created_ns    INTEGER NOT NULL
) STRICT;

-- Extents are numbered through the volumes of a store. Below `touched` every extent of a volume
-- has a row in extents; from there on none has, and all are unused: a fresh petabyte costs nothing.
CREATE TABLE volumes (
    store        INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    idx          INTEGER NOT NULL CHECK (idx BETWEEN 0 AND 63),
    uuid         TEXT NOT NULL UNIQUE CHECK (length(uuid) = 36),
    path         TEXT NOT NULL CHECK (length(path) > 0),
    first_extent INTEGER NOT NULL CHECK (first_extent >= 0),
    extents      INTEGER NOT NULL CHECK (extents > 0),
    touched      INTEGER NOT NULL DEFAULT 0 CHECK (touched BETWEEN 0 AND extents),
    PRIMARY KEY (store, idx)
) STRICT, WITHOUT ROWID;

CREATE TABLE hosts (
    uuid    TEXT PRIMARY KEY CHECK (length(uuid) = 36),
    name    TEXT NOT NULL,
    seen_ns INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- One opening of a store by one process. The row outlives the process while it owns anything:
-- locks end by release or takeover, never by a timer (INV-5); the references below enforce it.
CREATE TABLE instances (
    id         INTEGER PRIMARY KEY CHECK (id > 0),
    store      INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    host       TEXT REFERENCES hosts(uuid),    -- NULL: unknown (rebuilt registry)
    boot       TEXT NOT NULL DEFAULT '',       -- the kernel's boot id
    pid        INTEGER NOT NULL DEFAULT 0,
    role       TEXT NOT NULL,
    started_ns INTEGER NOT NULL
) STRICT;
CREATE INDEX instances_store ON instances(store);

CREATE TABLE extents (
    store       INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    no          INTEGER NOT NULL CHECK (no >= 0),
    type        TEXT NOT NULL DEFAULT 'unused'
                CHECK (type IN ('unused', 'system', 'data', 'meta')),
    owner       INTEGER REFERENCES instances(id),
    sealed      INTEGER NOT NULL DEFAULT 0 CHECK (sealed IN (0, 1)),
    generation  INTEGER NOT NULL DEFAULT 0 CHECK (generation >= 0), -- raised at each claim
    free_blocks INTEGER NOT NULL DEFAULT 0 CHECK (free_blocks >= 0), -- a hint
    request_id  INTEGER,
    PRIMARY KEY (store, no),
    CHECK (sealed = 0 OR owner IS NULL),
    CHECK (type <> 'unused' OR (owner IS NULL AND sealed = 0)),
    CHECK (type <> 'system' OR (owner IS NULL AND sealed = 0))
) STRICT, WITHOUT ROWID;
CREATE INDEX extents_free ON extents(store, type, no) WHERE owner IS NULL AND sealed = 0;
CREATE INDEX extents_owner ON extents(owner) WHERE owner IS NOT NULL;
CREATE INDEX extents_request ON extents(request_id) WHERE request_id IS NOT NULL;

CREATE TABLE vdis (
    id          TEXT PRIMARY KEY CHECK (length(id) = 36),
    store       INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    slot        INTEGER NOT NULL CHECK (slot >= 0), -- where its record lies in the store
    name        TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 255),
    size_bytes  INTEGER NOT NULL CHECK (size_bytes > 0),
    sector_size INTEGER NOT NULL CHECK (sector_size IN (512, 4096)),
    owner       INTEGER REFERENCES instances(id),
    epoch       INTEGER NOT NULL DEFAULT 0 CHECK (epoch >= 0), -- raised at each lock
    state       TEXT NOT NULL DEFAULT 'live' CHECK (state IN ('live', 'deleted')),
    parent      TEXT,  -- no reference: a rebuilt registry may not know it any more
    parent_seq  INTEGER NOT NULL DEFAULT 0 CHECK (parent_seq >= 0),
    created_ns  INTEGER NOT NULL,
    request_id  INTEGER,
    UNIQUE (store, slot)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX vdis_name ON vdis(store, name) WHERE state = 'live';
CREATE INDEX vdis_owner ON vdis(owner) WHERE owner IS NOT NULL;
CREATE INDEX vdis_parent ON vdis(parent) WHERE parent IS NOT NULL;

CREATE TABLE labels (
    vdi        TEXT NOT NULL REFERENCES vdis(id) ON DELETE CASCADE,
    name       TEXT NOT NULL CHECK (length(name) BETWEEN 1 AND 127),
    seq        INTEGER NOT NULL CHECK (seq > 0),
    time_ns    INTEGER NOT NULL,
    request_id INTEGER,
    PRIMARY KEY (vdi, name)
) STRICT, WITHOUT ROWID;

CREATE TABLE policies (
    vdi   TEXT NOT NULL REFERENCES vdis(id) ON DELETE CASCADE,
    key   TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 63),
    value TEXT NOT NULL,
    PRIMARY KEY (vdi, key)
) STRICT, WITHOUT ROWID;

-- Audit: who did what to what, written in the transaction that did it. It outlives its subjects
-- and is bounded.
CREATE TABLE events (
    id      INTEGER PRIMARY KEY AUTOINCREMENT,
    time_ns INTEGER NOT NULL,
    who     TEXT NOT NULL,
    what    TEXT NOT NULL,
    subject TEXT NOT NULL,
    detail  TEXT NOT NULL
) STRICT;
CREATE TRIGGER events_bounded AFTER INSERT ON events BEGIN
    DELETE FROM events WHERE id <= NEW.id - 100000;
END;

-- rqlite's transactions cannot ask how a statement fared. Inserting changes() here aborts one
-- whose conditional statement found nothing to change. Always empty.
CREATE TABLE guard (
    changed INTEGER NOT NULL CHECK (changed = 1)
) STRICT;
