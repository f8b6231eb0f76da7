-- 0008_origins.sql - clones whose origin is not known. Rules as in 0001_init.sql.

-- All of the VDI goes, and not only snapshots of it. What others need of it stays all the same.
ALTER TABLE intents ADD COLUMN whole INTEGER NOT NULL DEFAULT 0 CHECK (whole IN (0, 1));

-- Such a clone may need snapshots of any other disk (HOLDS-9).
CREATE TRIGGER origin_intent BEFORE INSERT ON intents
WHEN NEW.whole = 0 AND EXISTS (SELECT 1 FROM vdis v, vdis c WHERE v.id = NEW.vdi AND c.store = v.store AND c.id <> v.id
             AND c.parent IS NOT NULL AND NOT EXISTS (SELECT 1 FROM vdis o WHERE o.id = c.parent)
             AND (c.state = 'live' OR EXISTS (SELECT 1 FROM vdis d WHERE d.parent = c.id)))
BEGIN
    SELECT RAISE(ABORT, 'the origin of a clone is not known any more, and neither is whose snapshots it needs: no snapshot of another virtual disk goes while the clone is there (''parallax store check'' names it)');
END;
