/* ring_way.c - see ring_way.h. */
#include "ring_way.h"

#include <stdio.h>
#include <string.h>

#include "attach/host_ring.h"

const char *plx_ring_way(const struct plx_paths *paths, const struct plx_name *name,
                         const struct plx_vdi_info *info, const char *verb, const char *option,
                         char ret_text[PLX_RING_WAY])
{
    const struct plx_fault *problem = NULL;
    struct plx_host_ring ring = {0};
    char id[PLX_UUID_TEXT];
    bool own = plx_host_ring_open(paths, name->store, PLX_RING_LOOK, NULL, &ring, NULL) == 0;

    plx_uuid_text(&info->mark.ring, id);
    own = own && strcmp(id, ring.way.ring) == 0;
    if (own && !plx_ring_members_alone(&ring.members))
        problem = plx_host_ring_problem(&ring);
    if (!own)
        snprintf(ret_text, PLX_RING_WAY, "this host does not have that ring, %s", id);
    else if (problem)
        snprintf(ret_text, PLX_RING_WAY,
                 "this host's ring cannot be used (%.200s); 'parallax ring check %s' says more",
                 ring.away ? "it belongs to another host by now" : problem->text, name->store);
    else
        snprintf(ret_text, PLX_RING_WAY, "'parallax %s %s/%.80s%s' brings them to the store", verb,
                 name->store, name->vdi, option);
    plx_host_ring_close(&ring);
    return ret_text;
}
