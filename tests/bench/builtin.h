/* builtin.h - handlers of the harness's own: what Parallax is compared with (tests/bench/run).
 *
 *     raw/PATH          a file or device as it is, O_DIRECT: the limit
 *     raw/PATH;dsync    a write is complete when it is durable
 *     raw/PATH;map=FILE of it pieces of 1 MiB: the file has their starts, of 8 bytes each
 *     nbd/SOCKET        the export "disk" of an NBD server at a unix socket
 */
#ifndef PLX_BENCH_BUILTIN_H
#define PLX_BENCH_BUILTIN_H

#include "runner.h"

extern struct tcmur_handler raw_handler, nbd_handler;

/* NULL: there is none of that name. */
struct tcmur_handler *builtin_handler(const char *name);

#endif
