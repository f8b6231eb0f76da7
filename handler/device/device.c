/* device.c - opens a volume: picks the driver for its name, locks it. What drivers share:
 * device_io.c.
 *
 * Which openings exclude each other, by the lock on PLX_BYTE_USED:
 *
 *  opening              lock       beside another opening
 *  ordinary             shared     fine; BUSY beside an exclusive one
 *  exclusive            exclusive  BUSY, until nobody else has the volume open
 *  exclusive, where     shared     BUSY if another is open already; later ones are not kept out
 *  nothing can be written
 *  beside               none       fine: this process has another opening of the volume
 *
 * DEVICE-1  A request enters a driver only if it lies within the device and is a multiple of its
 *     logical block (plx_io_check). A breach is a bug of the engine, not damage of the store, so it
 *     aborts the process.
 * DEVICE-2  An open volume is locked (bytelock.h) until its driver's close() has closed it. So
 *     nobody formats a volume that is in use.
 * DEVICE-3  A name with a password in it is refused before anything else is done with it. So no
 *     name of an open device holds a secret, wherever it is kept or printed (CREDENTIALS-1).
 * DEVICE-4  Only the call that made a file removes it again, and only while nobody else can have
 *     begun to use it. After waiting for a lock in vain the file stays, since the other process may
 *     have made a store in it.
 *
 * Threads: none of its own; a device belongs to the thread that calls it.
 */
#include "device/drivers.h"

#include <string.h>
#include <unistd.h>

#include "device/bytelock.h"
#include "device/credentials.h"
#include "device/patience.h"

#define LOCK_WAIT_MS 5000u

static int cannot_lock(const struct plx_device *device, int error, struct plx_fault *fault)
{
    return error ? plx_fault_set(fault, error, "%s: cannot be locked: %s", device->name,
                                 plx_error_text(error))
                 : 0;
}

/* A process that can only read cannot take an exclusive lock (SYSTEM). It takes a shared one and is
 * BUSY if others have the volume open. It keeps no later opening out, which is good enough for
 * reading. */
static int try_lock(struct plx_device *device, const struct plx_device_open_options *options)
{
    enum plx_bytelock_mode mode = options->exclusive ? PLX_BYTE_EXCLUSIVE : PLX_BYTE_SHARED;
    int error = device->used->ops->set(device->used, PLX_BYTE_USED, mode);

    if (error != PLX_ERR_SYSTEM || !options->exclusive || !options->read_only)
        return error;
    error = device->used->ops->set(device->used, PLX_BYTE_USED, PLX_BYTE_SHARED);
    return error ? error : plx_device_others(device) ? PLX_ERR_BUSY : 0;
}

/* DEVICE-2. Locks the volume, shared or exclusive, waiting as long as the caller's patience lasts.
 */
static int lock_volume(struct plx_device *device, const struct plx_device_open_options *options,
                       struct plx_fault *fault)
{
    unsigned wait_ms = LOCK_WAIT_MS;
    const struct plx_patience some = {plx_patience_fixed, &wait_ms};
    const struct plx_patience *patience = options->patience ? options->patience : &some;
    uint64_t since_ns = plx_patience_begin();
    struct plx_fault why;
    int error = plx_bytelock_open(device->name, &device->used, fault);

    if (error)
        return error;
    plx_fault_set(&why, PLX_ERR_BUSY,
                  options->exclusive
                      ? "%s is in use: a handler, or another command, has it open; stop that first"
                      : "%s is just being formatted, or its store's registry rebuilt; try again "
                        "when that has ended",
                  device->name);
    do
        error = try_lock(device, options);
    while (error == PLX_ERR_BUSY && plx_patience_waits(patience, since_ns, &why));
    if (error == PLX_ERR_BUSY)
        return plx_fault_set(fault, error, "%s", why.text);
    return cannot_lock(device, error, fault);
}

static int open_driver(const char *name, const struct plx_device_open_options *options,
                       struct plx_device **ret_device, struct plx_fault *fault)
{
    if (strncmp(name, "iscsi://", 8) == 0)
        return plx_iscsi_open(name, options, ret_device, fault);
    return plx_libaio_open(name, options, ret_device, fault);
}

int plx_device_open(const char *name, const struct plx_device_open_options *options,
                    struct plx_device **ret_device, struct plx_fault *fault)
{
    static const struct plx_device_open_options defaults;
    struct plx_device *device;
    int error = plx_url_refuse_password(name, fault); /* DEVICE-3 */

    if (error)
        return error;
    if (!options)
        options = &defaults;
    if (name[0] == '\0')
        return plx_fault_set(fault, PLX_ERR_INVALID, "a volume needs a path or an iscsi:// URL");
    if (strlen(name) >= sizeof((struct plx_device *)0)->name)
        return plx_fault_set(fault, PLX_ERR_INVALID, "volume name longer than %zu bytes: %.60s...",
                             sizeof((struct plx_device *)0)->name - 1, name);
    error = open_driver(name, options, &device, fault);
    if (!error && !options->beside)
        error = lock_volume(device, options, fault);
    else if (error)
        return error;
    if (error) {
        if (device->made && error != PLX_ERR_BUSY) /* DEVICE-4 */
            unlink(name);
        device->ops->close(device);
        return error;
    }
    *ret_device = device;
    return 0;
}

void plx_device_close(struct plx_device *device)
{
    if (device)
        device->ops->close(device);
}

int plx_device_share(struct plx_device *device, struct plx_fault *fault)
{
    return cannot_lock(device, device->used->ops->set(device->used, PLX_BYTE_USED, PLX_BYTE_SHARED),
                       fault);
}

bool plx_device_others(struct plx_device *device)
{
    bool busy = false;

    return device->used && device->used->ops->probe(device->used, PLX_BYTE_USED, &busy) == 0 &&
           busy;
}
