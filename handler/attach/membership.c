/* membership.c - see membership.h. */
#include "attach/membership.h"

#include "registry/clusters.h"
#include "registry/embedded.h"

int plx_membership_check(const struct plx_paths *paths, const struct plx_known *known, bool ask,
                         struct plx_fault *fault)
{
    const struct plx_embedded_options look = {.volume = known->volume[0],
                                              .uuid = known->uuid,
                                              .identity = known->identity,
                                              .who = "parallax store import",
                                              .settings = &paths->settings,
                                              .host = paths->host,
                                              .read_only = true,
                                              .beside = true};
    struct plx_registry *registry;
    int error = plx_embedded_check(&look, fault);

    if (error || !ask || !plx_embedded_is_clustered(&look))
        return error;
    error = plx_embedded_open(&look, &registry, fault);
    if (!error)
        plx_registry_close(registry);
    return error;
}

void plx_membership_let_go(const struct plx_paths *paths, const struct plx_known *known)
{
    const struct plx_embedded_options options = {.volume = known->volume[0],
                                                 .uuid = known->uuid,
                                                 .identity = known->identity,
                                                 .who = "parallax store release",
                                                 .settings = &paths->settings};
    struct plx_registry_store row;
    struct plx_registry *reg;

    if (!plx_embedded_is_clustered(&options) || plx_embedded_open(&options, &reg, NULL))
        return;
    if (!plx_registry_store_get(reg, known->uuid, &row))
        plx_registry_store_let_go(reg, row.id, paths->host);
    plx_registry_close(reg);
}
