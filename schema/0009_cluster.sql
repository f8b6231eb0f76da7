-- 0009_cluster.sql - registries of several stores on the nodes of a cluster. Rules as in 0001_init.sql.

-- Which cluster these nodes are: one row; none in a store's own registry. line: a random number, new
-- whenever the registry was restored.
CREATE TABLE cluster (
    id         INTEGER PRIMARY KEY CHECK (id = 1),
    uuid       TEXT NOT NULL CHECK (length(uuid) = 36),
    line       INTEGER NOT NULL CHECK (line > 0),
    created_ns INTEGER NOT NULL
) STRICT;

-- identity: of the copy of the store that these rows are of; NULL, in a store's own registry: of the
-- one that they lie in. state: whether the rows are complete and count (handler/registry/carry.h).
ALTER TABLE store ADD COLUMN identity TEXT CHECK (length(identity) = 36);
ALTER TABLE store ADD COLUMN state TEXT NOT NULL DEFAULT 'normal' CHECK (state IN ('normal', 'arriving', 'leaving'));
-- host: which host has the store, among those that have the nodes; NULL: none, or this is a store's own
-- registry. Two copies with one identity may lie on two hosts, and these rows are of one of them.
ALTER TABLE store ADD COLUMN host TEXT CHECK (length(host) = 36);

CREATE TRIGGER arriving_instance BEFORE INSERT ON instances
WHEN EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND state = 'arriving')
BEGIN
    SELECT RAISE(ABORT, 'the store is on its way into the cluster, and is not opened meanwhile; if nobody is at it, ''parallax cluster init'' goes on with it');
END;
CREATE TRIGGER leaving_instance BEFORE INSERT ON instances
WHEN EXISTS (SELECT 1 FROM store WHERE id = NEW.store AND state = 'leaving')
BEGIN
    SELECT RAISE(ABORT, 'the store is on its way out of the cluster, and is not opened meanwhile; if nobody is at it, ''parallax cluster leave'' goes on with it');
END;
