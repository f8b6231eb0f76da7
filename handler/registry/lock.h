/* lock.h - changes that only the holder of a VDI's lock may make. Private to handler/registry. */
#ifndef PLX_LOCK_H
#define PLX_LOCK_H

#include "registry/sql.h"

/* ?1, ?2, ?3 of a statement that says: WHERE id = ?1 AND owner = ?2 AND epoch = ?3. */
#define SQL_LOCK(lock) SQL_TEXT((lock)->vdi), SQL_INT((lock)->instance), SQL_INT((lock)->epoch)

/* Runs a batch whose first statement must find the lock held. When the batch is refused, the result
 * is NOT_FOUND if there is no such VDI, FENCED if the lock is not held, and `refused` if the
 * statement had another condition, about which the caller then writes the text. */
int plx_lock_change(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused,
                    const struct plx_sql *batch, size_t count);
/* Finds out, after the fact, why such a statement was refused; codes as above. */
int plx_lock_explain(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused);

#endif
