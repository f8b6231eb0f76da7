/* error.h - error codes: 0 is success, every failure is a negative code from error.def.
 *
 * Callers test classes, not codes, where they can. A struct plx_fault carries what a person needs:
 *
 *     if (device->read_only)
 *         return plx_fault_set(fault, PLX_ERR_READONLY, "%s: read-only", device->name);
 *
 * Nothing here allocates or locks; any thread may call it.
 */
#ifndef PLX_ERROR_H
#define PLX_ERROR_H

#include <stdbool.h>
#include <stdint.h>

enum plx_error_class {
    PLX_CLASS_OK,
    PLX_CLASS_INVALID,
    PLX_CLASS_NOMEM,
    PLX_CLASS_IO,
    PLX_CLASS_CORRUPT,
    PLX_CLASS_NOSPACE,
    PLX_CLASS_FENCED,
    PLX_CLASS_BUSY,
};

enum plx_error {
    PLX_OK = 0,
#define PLX_ERROR(name, number, class, key, asc, ascq, text) PLX_ERR_##name = -(number),
#include "error.def"
#undef PLX_ERROR
};

struct plx_sense {
    uint8_t key, asc, ascq;
};

/* A failure explained to a person. The function that notices the failure fills it in. Corruption
 * and I/O errors say where. */
struct plx_fault {
    int code;
    /* Long, because some texts name two paths and two hosts, and say what to do at the end. */
    char text[512];
};

enum plx_error_class plx_error_class(int code);
/* Whether something on the store is damaged, or the device cannot read it. */
static inline bool plx_error_is_unreadable(int code)
{
    return code == PLX_ERR_CORRUPT || code == PLX_ERR_IO_READ;
}
/* Whether the device or file below the store is full; free blocks in the store do not help. */
static inline bool plx_error_is_full_below(int code)
{
    return code == PLX_ERR_VOLUME_FULL || code == PLX_ERR_FILE_LIMIT;
}
/* Whether the error only means that the place is not writable; a reader can go on. */
static inline bool plx_error_is_unwritable(int code)
{
    return code == PLX_ERR_PERMISSION || code == PLX_ERR_READONLY || code == PLX_ERR_NOSPACE ||
           plx_error_is_full_below(code);
}
struct plx_sense plx_error_sense(int code);
const char *plx_error_name(int code); /* "NOSPACE"; never NULL */
int plx_error_code(const char *name); /* the code of that name; SYSTEM for others */
const char *plx_error_text(int code); /* "no space left in the store"; never NULL */

/* Fills in the fault, unless fault is NULL, and returns its code. */
int plx_fault_set(struct plx_fault *fault, int code, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* For programming errors only. Bytes from a store, a configuration or an initiator must never fail
 * it. */
#define PLX_ASSERT(condition)                                                                      \
    do {                                                                                           \
        if (__builtin_expect(!(condition), 0))                                                     \
            plx_assert_failed(#condition, __FILE__, __LINE__);                                     \
    } while (0)
_Noreturn void plx_assert_failed(const char *condition, const char *file, int line);

#endif
