/* lock.h - changes that only the holder of a VDI's lock may make. Private to handler/registry. */
#ifndef PLX_LOCK_H
#define PLX_LOCK_H

#include "registry/sql.h"

/* ?1, ?2, ?3 of a statement that says: WHERE id = ?1 AND owner = ?2 AND epoch = ?3. */
#define SQL_LOCK(lock) SQL_TEXT((lock)->vdi), SQL_INT((lock)->instance), SQL_INT((lock)->epoch)

/* Runs a batch whose first statement must find the lock held. When the batch is refused:
 *
 *   NOT_FOUND   there is no such VDI
 *   FENCED      the lock is not held (any more)
 *   refused     the lock is held, so the statement's other condition failed; the caller writes the
 *               text */
int plx_lock_change(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused,
                    const struct plx_sql *batch, size_t count);
/* Finds out, after the fact, why such a statement was refused; codes as above. */
int plx_lock_explain(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused);

#endif
