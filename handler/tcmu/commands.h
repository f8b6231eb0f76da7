/* commands.h - what the control socket answers about live LUNs.
 *
 *     info      {}                    the store's open LUNs
 *     snapshot  {vdi, label?}         {seq, time_ns}
 *     label     {vdi, label, seq}
 *     unlabel   {vdi, label}
 *     flush     {vdi}                 what was acknowledged is durable
 *     keyframe  {vdi}                 writes one now
 *     resize    {vdi, size_bytes}     {size_bytes, exported: the kernel was told}
 *     rewind    {vdi, seq}            {label, seq, time_ns}: of the state before
 *     protect   {vdi, mode, retention} as in registry/policy.h
 *     thin      {vdi, after, upto, before_ns, every_ns, dry_run}
 *               {upto, snapshots, blocks, meta_blocks, oldest}: struct plx_thin, one slice
 *     resume    {vdi}                 the wall clock is right (witness.h)
 *     stats     {vdi?}                counters of the VDI, or of the whole store
 */
#ifndef PLX_COMMANDS_H
#define PLX_COMMANDS_H

#include <jansson.h>

/* struct plx_control_options' handle; context is a struct plx_store_home. */
int plx_commands_handle(void *context, json_t *request, json_t **ret_result, char *message,
                        size_t size);

#endif
