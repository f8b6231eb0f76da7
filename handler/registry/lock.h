/* lock.h - changes that a VDI's lock covers. Private to handler/registry. */
#ifndef PLX_LOCK_H
#define PLX_LOCK_H

#include "registry/sql.h"

/* ?1, ?2, ?3 of a statement that says: WHERE id = ?1 AND owner = ?2 AND epoch = ?3. */
#define SQL_LOCK(lock) SQL_TEXT((lock)->vdi), SQL_INT((lock)->instance), SQL_INT((lock)->epoch)

/* Runs a batch whose first statement must find the lock held. Refused, it is FENCED when the lock
 * is not held, NOT_FOUND without such a VDI, and `refused` when the statement had another reason
 * of its own, whose text is then the caller's to write. */
int plx_lock_change(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused,
                    const struct plx_sql *batch, size_t count);
/* Why a statement was refused, told after the fact; codes as above. */
int plx_lock_explain(struct plx_registry *reg, const struct plx_registry_lock *lock, int refused);

#endif
