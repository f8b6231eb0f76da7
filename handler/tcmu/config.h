/* config.h - the cfgstring of a LUN: parallax/STORE/VDI[@SNAPSHOT][;option=value]...
 *
 *     overwrite=in-place|copy   instead of the VDI's own property
 *     cache=off|on              on: writes are acknowledged before they are durable, until a flush
 *     quiet=TIME|off            what was not overwritten in place for so long gets its checksum
 * back
 *
 * SNAPSHOT is a label, a sequence number or a time as 20261121T062000.010Z (targetcli allows
 * neither ':' nor ','). Pure functions: nothing is looked up.
 */
#ifndef PLX_CONFIG_H
#define PLX_CONFIG_H

#include "engine/engine.h"

#define PLX_CFGSTRING_PREFIX "parallax/"
/* Longer ones are cut by the kernel (255) or spoil tcmu-runner's INQUIRY page 83h (254). */
#define PLX_CFGSTRING_MAX 254

struct plx_lun_config {
    char store[PLX_STORE_NAME_MAX + 1];
    char vdi[PLX_NAME_MAX + 1];
    char snapshot[PLX_LABEL_MAX + 1]; /* as written; empty: the live VDI */
    int overwrite;                    /* enum plx_overwrite, or -1: the VDI's own */
    bool write_back;
    uint64_t quiet_ns; /* 0: off */
};

#define PLX_QUIET_NS (3600ull * 1000000000u) /* unless something else is said */

/* INVALID, and a sentence that names the part and says what is allowed. */
int plx_lun_config_parse(const char *cfgstring, struct plx_lun_config *ret_config,
                         struct plx_fault *fault);

#endif
