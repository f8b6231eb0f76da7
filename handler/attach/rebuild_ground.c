/* rebuild_ground.c - what the parts of a rebuilding stand on: errors, what was lost, and a registry
 * that may be damaged where it is read (REBUILD-5). */
#include <stdarg.h>
#include <stdio.h>

#include "attach/rebuild_inside.h"

int plx_rebuilding_no_memory(struct rebuild *r)
{
    return plx_fault_set(r->fault, PLX_ERR_NOMEM, "out of memory");
}

int plx_rebuilding_registry_fault(struct rebuild *r, struct plx_registry *registry, int error)
{
    return error ? plx_registry_fault(registry, error, r->fault) : 0;
}

void plx_rebuilding_tell_lost(struct rebuild *r, const char *format, ...)
{
    char text[512];
    va_list args;

    if (!r->options->lost)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    plx_known_name_advice(r->known.name, text, sizeof text);
    r->options->lost(r->options->context, text);
}

void plx_rebuilding_tell_unread(struct rebuild *r, const char *what)
{
    r->rebuilt.unread++;
    plx_rebuilding_tell_lost(r, "what the old registry knew of %s cannot be read", what);
    if (r->options->unread)
        r->options->unread(r->options->context, what);
}

int plx_rebuilding_read_old(struct rebuild *r, int error, const char *what)
{
    bool unread = error && error != PLX_ERR_NOT_FOUND;

    if (unread && !r->damaged)
        return plx_registry_fault(r->old, error, r->fault);
    r->damaged = false;
    r->unread = unread;
    if (unread && what)
        plx_rebuilding_tell_unread(r, what);
    return error ? PLX_ERR_NOT_FOUND : 0;
}

int plx_rebuilding_add_lost(struct rebuild *r, uint32_t slot, const char *vdi, const char *why)
{
    struct plx_registry_lost lost = {.slot = slot, .labels = vdi != NULL};

    snprintf(lost.vdi, sizeof lost.vdi, "%s", vdi ? vdi : "");
    snprintf(lost.why, sizeof lost.why, "%s", why);
    return plx_rebuilding_registry_fault(r, r->file, plx_registry_lost_add(r->file, r->row, &lost));
}

int plx_rebuilding_enter_lost(struct rebuild *r, uint32_t slot, const char *why, const char *more)
{
    int error = plx_rebuilding_add_lost(r, slot, NULL, why);

    if (error)
        return error == PLX_ERR_EXISTS ? 0 : error;
    r->rebuilt.lost_records++;
    plx_rebuilding_tell_lost(r, "%s%s", why, more);
    return 0;
}

int plx_rebuilding_lose_record(struct rebuild *r, uint32_t slot, const struct plx_registry_vdi *old,
                               const char *why)
{
    char text[256];

    snprintf(text, sizeof text, "%s%.64s%s%.160s", old ? "virtual disk " : "", old ? old->name : "",
             old ? ": " : "", why);
    return plx_rebuilding_enter_lost(r, slot, text,
                                     old ? "" : ": a virtual disk, or one that was deleted");
}
