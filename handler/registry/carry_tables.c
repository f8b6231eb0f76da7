/* carry_tables.c - the tables of which carry.c carries rows.
 *
 * A row enters only behind what it refers to, and the row that it refers to is of the same store:
 * nothing that is read can hang a label on another store's disk. Triggers of the schema set the
 * order of the last ones: nothing is collected and no intent is entered where something is lost,
 * and no disk where the store is in doubt.
 * No state.
 */
#include "registry/carry_inside.h"

/* CARRY-6: the vdi of a row is this store's. */
#define OF_STORE(vdi) " EXISTS (SELECT 1 FROM vdis v WHERE v.id = " vdi " AND v.store = ?1)"
/* Rows that name a disk, ordered by their key; read in the order of the key's index. */
#define BY_DISK(columns, table, behind, order)                                                     \
    "SELECT " columns " FROM " table " t CROSS JOIN vdis v WHERE v.id = t.vdi AND v.store = ?1"    \
    " AND " behind " ORDER BY " order " LIMIT ?4"
#define REMOVE_BY_DISK(table, key, of)                                                             \
    "DELETE FROM " table " WHERE " key " IN (SELECT " of " FROM vdis v JOIN " table                \
    " t ON t.vdi = v.id WHERE v.store = ?1 LIMIT 500) RETURNING 0"
#define REMOVE(table, key, of, some)                                                               \
    "DELETE FROM " table " WHERE store = ?1 AND " key " IN (SELECT " of " FROM " table             \
    " WHERE store = ?1 LIMIT " some ") RETURNING 0"

const struct plx_carried plx_carried_tables[] = {
    {.name = "volumes",
     .columns = 7,
     .keys = 2,
     .rows = CARRY_ROWS,
     .select = "SELECT idx, part, uuid, path, first_extent, extents, touched FROM volumes"
               " WHERE store = ?1 AND (idx, part) > (?2, ?3) ORDER BY idx, part LIMIT ?4",
     .insert = "INSERT INTO volumes (store, idx, part, uuid, path, first_extent, extents, touched)"
               " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
     .remove = REMOVE("volumes", "(idx, part)", "idx, part", "500")},
    {.name = "store_policies",
     .columns = 2,
     .keys = 1,
     .text = {true},
     .rows = CARRY_ROWS,
     .select = "SELECT key, value FROM store_policies WHERE store = ?1 AND key > ?2"
               " ORDER BY key LIMIT ?4",
     .insert = "INSERT INTO store_policies (store, key, value) VALUES (?1, ?2, ?3)",
     .remove = REMOVE("store_policies", "key", "key", "500")},
    {.name = "collections", /* before `lost` */
     .columns = 7,
     .keys = 1,
     .rows = CARRY_ROWS,
     .select = "SELECT number, instance, phase, begun_ns, ended_ns, collected, wanted"
               " FROM collections WHERE store = ?1 AND number > ?2 ORDER BY number LIMIT ?4",
     .insert = "INSERT INTO collections (store, number, instance, phase, begun_ns, ended_ns,"
               " collected, wanted) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)",
     .remove = "DELETE FROM collections WHERE store = ?1 RETURNING 0"},
    {.name = "extents",
     .columns = 6,
     .keys = 1,
     .rows = CARRY_ROWS,
     .select = "SELECT no, type, sealed, generation, free_blocks, states FROM extents"
               " WHERE store = ?1 AND no > ?2 ORDER BY no LIMIT ?4",
     .insert = "INSERT INTO extents (store, no, type, sealed, generation, free_blocks, states)"
               " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)",
     .remove = REMOVE("extents", "no", "no", "2000")},
    {.name = "garbage", /* a row has up to some 2.5 MB */
     .columns = 4,
     .keys = 1,
     .rows = 4,
     .select = "SELECT extent, generation, blocks, runs FROM garbage"
               " WHERE store = ?1 AND extent > ?2 ORDER BY extent LIMIT ?4",
     .insert = "INSERT INTO garbage (store, extent, generation, blocks, runs)"
               " VALUES (?1, ?2, ?3, ?4, ?5)",
     .remove = REMOVE("garbage", "extent", "extent", "20")},
    {.name = "vdis",
     .columns = 12,
     .keys = 1,
     .rows = CARRY_ROWS,
     .select = "SELECT slot, id, name, size_bytes, sector_size, epoch, state, parent, parent_seq,"
               " created_ns, written_epoch, written_state FROM vdis"
               " WHERE store = ?1 AND slot > ?2 ORDER BY slot LIMIT ?4",
     .insert = "INSERT INTO vdis (store, slot, id, name, size_bytes, sector_size, epoch, state,"
               " parent, parent_seq, created_ns, written_epoch, written_state)"
               " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13)",
     .remove = REMOVE("vdis", "slot", "slot", "500")},
    {.name = "policies",
     .columns = 3,
     .keys = 2,
     .text = {true, true},
     .rows = CARRY_ROWS,
     .select =
         BY_DISK("t.vdi, t.key, t.value", "policies", "(t.vdi, t.key) > (?2, ?3)", "t.vdi, t.key"),
     .insert = "INSERT INTO policies (vdi, key, value) SELECT ?2, ?3, ?4 WHERE" OF_STORE("?2"),
     .remove = REMOVE_BY_DISK("policies", "(vdi, key)", "t.vdi, t.key")},
    {.name = "labels",
     .columns = 4,
     .keys = 2,
     .text = {true, true},
     .rows = CARRY_ROWS,
     .select = BY_DISK("t.vdi, t.name, t.seq, t.time_ns", "labels", "(t.vdi, t.name) > (?2, ?3)",
                       "t.vdi, t.name"),
     .insert = "INSERT INTO labels (vdi, name, seq, time_ns) SELECT ?2, ?3, ?4, ?5"
               " WHERE" OF_STORE("?2"),
     .remove = REMOVE_BY_DISK("labels", "(vdi, name)", "t.vdi, t.name")},
    {.name = "intents", /* before `lost`, behind all of `vdis` */
     .columns = 4,
     .keys = 1,
     .text = {true},
     .rows = CARRY_ROWS,
     .select = BY_DISK("t.vdi, t.instance, t.epoch, t.whole", "intents", "t.vdi > ?2", "t.vdi"),
     .insert = "INSERT INTO intents (vdi, instance, epoch, whole) SELECT ?2, ?3, ?4, ?5"
               " WHERE" OF_STORE("?2"),
     .remove = REMOVE_BY_DISK("intents", "vdi", "t.vdi")},
    {.name = "lost",
     .columns = 4,
     .keys = 2,
     .text = {false, true},
     .rows = CARRY_ROWS,
     .select = "SELECT slot, what, vdi, why FROM lost WHERE store = ?1"
               " AND (slot, what) > (?2, ?3) ORDER BY slot, what LIMIT ?4",
     .insert = "INSERT INTO lost (store, slot, what, vdi, why) SELECT ?1, ?2, ?3, ?4, ?5"
               " WHERE ?4 IS NULL OR" OF_STORE("?4"),
     .remove = REMOVE("lost", "(slot, what)", "slot, what", "500")},
    /* Its row is there, and gets its doubt last. */
    {.name = "store",
     .columns = 5,
     .keys = 1,
     .text = {true},
     .rows = 1,
     .select = "SELECT uuid, name, extent_blocks, created_ns, doubt FROM store"
               " WHERE id = ?1 AND uuid > ?2 LIMIT ?4",
     .insert = "UPDATE store SET doubt = ?6 WHERE id = ?1 AND uuid = ?2 AND name = ?3"
               " AND extent_blocks = ?4 AND created_ns = ?5"},
};
const size_t plx_carried_count = SQL_COUNT(plx_carried_tables);
