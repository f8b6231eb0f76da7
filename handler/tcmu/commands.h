/* commands.h - the commands of the control socket, on live LUNs and on their store.
 *
 * An answer to a request with "vdi" names that disk as well; it has further
 *
 *  command          keys of the request            the answer, or what it does
 *  info             -                              store, luns: the store's open LUNs
 *  snapshot         vdi, label?                    seq, time_ns
 *  label            vdi, label, seq                label, seq
 *  unlabel          vdi, label                     label
 *  flush            vdi                            - (acknowledged writes are durable then)
 *  keyframe         vdi                            - (writes a key frame now)
 *  resize           vdi, size_bytes                size_bytes, exported: the kernel was told
 *  rewind           vdi, seq                       label, seq, time_ns: of the state before
 *  protect          vdi, mode, retention           mode, retention (texts as in registry/policy.h)
 *  thin             vdi, after, upto, before_ns,   one slice (struct plx_thin): upto, snapshots,
 *                   every_ns, dry_run,             blocks, meta_blocks, oldest, gone: indexes of
 *                   rewinds_only, marks            marks that went
 *  resume           vdi                            - (the wall clock is right: witness.h)
 *  stats            vdi?                           counters of the VDI, or of the whole store
 *  move             vdi, offset, length, windows,  struct plx_move, code and message if it failed
 *                   blocks, dry_run
 *  volumes          -                              - (another process made the store larger)
 *  collect, dedup   dry_run, memory, rate          - (begins a job: collector.h)
 *  collect-status,  -                              plx_collector_status()
 *  dedup-status
 *  collect-stop,    -                              - (interrupts the job under way)
 *  dedup-stop
 */
#ifndef PLX_COMMANDS_H
#define PLX_COMMANDS_H

#include <jansson.h>

/* The handle of struct plx_control_options; context is a struct plx_store_home. */
int plx_commands_handle(void *context, json_t *request, json_t **ret_result, char *message,
                        size_t size);

#endif
