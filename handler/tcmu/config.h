/* config.h - the cfgstring of a LUN: parallax/STORE/VDI[@SNAPSHOT][;option=value]...
 *
 *     overwrite=in-place|copy   replaces the VDI's own property for this LUN
 *     cache=off|on              on: a write-back cache: writes are durable only after a flush
 *     quiet=TIME|off            blocks that were not overwritten in place for so long get their
 *                               checksums back (vouch.c)
 *
 * SNAPSHOT is a label, a sequence number, or a time such as 20261121T062000.010Z, without ':' and
 * ',' because targetcli allows neither. The parser looks nothing up.
 */
#ifndef PLX_CONFIG_H
#define PLX_CONFIG_H

#include "engine/engine.h"

#define PLX_CFGSTRING_PREFIX "parallax/"
/* The kernel cuts longer strings (at 255), and longer ones spoil tcmu-runner's INQUIRY page 83h. */
#define PLX_CFGSTRING_MAX 254

struct plx_lun_config {
    char store[PLX_STORE_NAME_MAX + 1];
    char vdi[PLX_NAME_MAX + 1];
    char snapshot[PLX_LABEL_MAX + 1]; /* as written; empty: the live VDI */
    int overwrite;                    /* enum plx_overwrite, or -1: the VDI's own */
    bool write_back;
    uint64_t quiet_ns; /* 0: off */
};

#define PLX_QUIET_NS (3600ull * 1000000000u) /* the default of `quiet` */

/* INVALID: the sentence in *fault names the wrong part and says what is allowed. */
int plx_lun_config_parse(const char *cfgstring, struct plx_lun_config *ret_config,
                         struct plx_fault *fault);

#endif
