/* place.c - see place.h. */
#include "place.h"

#include <fcntl.h>
#include <unistd.h>

struct plx_region place_spans(void)
{
    return (struct plx_region){.spans = 2, .span = {{1 << 20, 32 << 20}, {40 << 20, 8 << 20}}};
}

bool place_make(const char *path)
{
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    bool made = fd >= 0 && !ftruncate(fd, (off_t)PLACE_BYTES);

    if (fd >= 0)
        close(fd);
    return made;
}

int place_open(const char *path, bool read_only, struct plx_region *region, struct plx_fault *fault)
{
    const struct plx_device_open_options options = {.read_only = read_only};
    int code = plx_bytelock_open(path, &region->locks, fault);

    if (code)
        return code;
    region->read_only = read_only;
    code = plx_device_open(path, &options, &region->device, fault);
    if (code)
        plx_bytelock_close(region->locks);
    return code;
}

void place_close(struct plx_region *region)
{
    plx_device_close(region->device);
    plx_bytelock_close(region->locks);
}

/* The places of registries that are open. */
static struct {
    struct plx_registry *reg;
    struct plx_region region;
} opened[16];

int place_registry_open(const char *path, const char *who, struct plx_registry **ret_reg,
                        struct plx_fault *fault)
{
    struct plx_region region = place_spans();
    unsigned i = 0;
    int code;

    while (opened[i].reg)
        PLX_ASSERT(++i < sizeof opened / sizeof opened[0]);
    place_make(path); /* unless it is there */
    code = place_open(path, false, &region, fault);
    if (code)
        return code;
    code = plx_registry_open_region(&region, path, who, ret_reg, fault);
    if (code) {
        place_close(&region);
        return code;
    }
    opened[i].reg = *ret_reg;
    opened[i].region = region;
    return 0;
}

void place_registry_close(struct plx_registry *reg)
{
    unsigned i = 0;

    if (!reg)
        return;
    while (opened[i].reg != reg)
        PLX_ASSERT(++i < sizeof opened / sizeof opened[0]);
    opened[i].reg = NULL;
    plx_registry_close(reg);
    place_close(&opened[i].region);
}
