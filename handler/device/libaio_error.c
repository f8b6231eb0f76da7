/* libaio_error.c - what an errno of a file or block device means to the engine and to people. */
#include <errno.h>
#include <string.h>

#include "device/libaio_inside.h"

/* What to do about it, where there is something. */
static const char *advice(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT:
        return "; make room there, or choose another place";
    case EFBIG:
        return "; a limit (ulimit -f) or the file system allows no file of that size";
    default:
        return "";
    }
}

int plx_aio_open_error(const char *path, const char *doing, int error, struct plx_fault *fault)
{
    int code = PLX_ERR_SYSTEM;

    switch (error) {
    case ENOENT:
    case ENOTDIR:
        code = PLX_ERR_NOT_FOUND;
        break;
    case EACCES:
    case EPERM:
        code = PLX_ERR_PERMISSION;
        break;
    case EROFS:
        code = PLX_ERR_READONLY;
        break;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        code = PLX_ERR_NOSPACE;
        break;
    case EEXIST:
        code = PLX_ERR_EXISTS;
        break;
    case ENODEV:
    case ENXIO:
    case EIO:
        code = PLX_ERR_LOST;
        break;
    case ENOMEM:
        code = PLX_ERR_NOMEM;
        break;
    }
    return plx_fault_set(fault, code, "cannot %s %s: %s%s", doing, path, strerror(error),
                         advice(error));
}
