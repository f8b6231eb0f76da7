-- 0003_collections.sql - who collects garbage in a store, and what was found.
-- handler/registry/collections.c has the rules. Rules of SQL as in 0001_init.sql.

-- number: odd while a collection is under way, so whoever frees blocks in an extent that it got only
-- just now knows whether one came across them. It ends by its instance's own hand or is gone on with
-- by another that has proven that instance dead (INV-5).
CREATE TABLE collections (
    store     INTEGER PRIMARY KEY REFERENCES store(id) ON DELETE CASCADE,
    number    INTEGER NOT NULL CHECK (number >= 0),
    instance  INTEGER NOT NULL,                     -- the last one's
    phase     TEXT NOT NULL CHECK (phase IN ('none', 'mark', 'sweep')),
    begun_ns  INTEGER NOT NULL,
    ended_ns  INTEGER NOT NULL DEFAULT 0,           -- of the last one that ended
    collected INTEGER NOT NULL DEFAULT 0,           -- blocks, by that one
    wanted    INTEGER NOT NULL DEFAULT 0            -- why there should be one: how often something was left
) STRICT;

-- What a collection found and has not swept yet. generation: the extent's, as long as this holds.
-- runs: "FIRST+COUNT " for each run of blocks.
CREATE TABLE garbage (
    store      INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    extent     INTEGER NOT NULL,
    generation INTEGER NOT NULL,
    blocks     INTEGER NOT NULL CHECK (blocks > 0),
    runs       TEXT NOT NULL,
    PRIMARY KEY (store, extent)
) STRICT, WITHOUT ROWID;
