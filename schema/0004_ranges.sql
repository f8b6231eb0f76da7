-- 0004_ranges.sql - volumes that became larger after others had followed them, and who adds space.
-- Rules as in 0001_init.sql.

-- A row is a range of extents that lie one after the other on a volume: part 0 where the volume
-- begins, which has its identity and path, then one for each time that it became larger without
-- being the last one. The numbering goes on without gaps. Columns that were there before mean what
-- they meant, so that a handler of before goes on.
CREATE TABLE ranges (
    store        INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    idx          INTEGER NOT NULL CHECK (idx BETWEEN 0 AND 63),
    part         INTEGER NOT NULL DEFAULT 0 CHECK (part BETWEEN 0 AND 63),
    uuid         TEXT UNIQUE CHECK (length(uuid) = 36),
    path         TEXT CHECK (length(path) > 0),
    first_extent INTEGER NOT NULL CHECK (first_extent >= 0),
    extents      INTEGER NOT NULL CHECK (extents > 0),
    touched      INTEGER NOT NULL DEFAULT 0 CHECK (touched BETWEEN 0 AND extents),
    PRIMARY KEY (store, idx, part),
    UNIQUE (store, first_extent),
    CHECK ((part = 0) = (uuid IS NOT NULL)),
    CHECK ((part = 0) = (path IS NOT NULL))
) STRICT, WITHOUT ROWID;
INSERT INTO ranges (store, idx, uuid, path, first_extent, extents, touched)
    SELECT store, idx, uuid, path, first_extent, extents, touched FROM volumes;
DROP TABLE volumes;
ALTER TABLE ranges RENAME TO volumes;

-- A store that grows: by whom (NULL: nobody, any more), and the path of the volume that is being
-- added, from before the store counts it until the registry knows it as well.
CREATE TABLE growth (
    store    INTEGER PRIMARY KEY REFERENCES store(id) ON DELETE CASCADE,
    instance INTEGER REFERENCES instances(id) ON DELETE SET NULL,
    path     TEXT CHECK (length(path) > 0)
) STRICT;
CREATE INDEX growth_instance ON growth(instance);
