-- 0005_store_policies.sql - properties of a store that an operator set: its soft limit.
-- Rules as in 0001_init.sql.

CREATE TABLE store_policies (
    store INTEGER NOT NULL REFERENCES store(id) ON DELETE CASCADE,
    key   TEXT NOT NULL CHECK (length(key) BETWEEN 1 AND 63),
    value TEXT NOT NULL,
    PRIMARY KEY (store, key)
) STRICT, WITHOUT ROWID;
