/* iscsi_open.c - opens a LUN behind an iscsi:// URL: logs in, measures the LUN, sets up polling. */
#include "device/iscsi_inside.h"

#include <errno.h>
#include <iscsi/iscsi.h>
#include <iscsi/scsi-lowlevel.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

/* ---- Opening ------------------------------------------------------------------------------- */

/* Where user and password come from, for the message when the login is refused. */
struct login {
    const char *target;
    unsigned line;   /* the line of the credentials file; 0: none */
    bool by_setting; /* from libiscsi's environment variables */
};

/* The user that a URL names; URLs with a password do not get here (DEVICE-3). */
static void url_user(const char *url, char ret_user[PLX_CREDENTIAL_MAX + 1])
{
    const char *from = url + strlen("iscsi://");
    size_t length = strcspn(from, "@/");

    snprintf(ret_user, PLX_CREDENTIAL_MAX + 1, "%.*s", from[length] == '@' ? (int)length : 0, from);
}

/* ISCSI-6. The parsed URL holds what libiscsi has found in its environment variables. */
static int identify(struct iscsi_device *device, const char *url, const struct iscsi_url *parsed,
                    struct login *ret_login, struct plx_fault *fault)
{
    struct plx_credentials found;
    char user[PLX_CREDENTIAL_MAX + 1];
    struct plx_credentials_wanted wanted = {parsed->target, parsed->portal, user};
    int error;

    url_user(url, user);
    error = plx_credentials_find(&wanted, &found, fault);
    if (!error && found.line) {
        iscsi_set_initiator_username_pwd(device->iscsi, found.user, found.password);
        iscsi_set_target_username_pwd(device->iscsi, found.target_user, found.target_password);
    } else if (!error) {
        iscsi_set_initiator_username_pwd(device->iscsi, parsed->user, parsed->passwd);
        iscsi_set_target_username_pwd(device->iscsi, parsed->target_user, parsed->target_passwd);
    }
    *ret_login = (struct login){parsed->target, found.line, *parsed->user};
    plx_credentials_wipe(&found);
    return error;
}

/* The message when the portal or the target does not let us in. libiscsi's own words for a portal
 * that does not answer tell users nothing, so portal.c asks again. */
static int cannot_reach(const struct iscsi_device *device, const char *portal,
                        struct plx_fault *fault)
{
    const char *name = device->base.name, *why = plx_portal_fault(portal);
    const char *said = iscsi_get_error(device->iscsi);

    if (why)
        return plx_fault_set(fault, PLX_ERR_LOST,
                             "cannot reach %s: nothing answers at %.80s (%s); check address, port "
                             "and network, and that the target runs",
                             name, portal, why);
    return plx_fault_set(fault, PLX_ERR_LOST,
                         "cannot reach %s: %.*s; the portal answers: check the target's name, the "
                         "LUN, and that this initiator may log in",
                         name, (int)strcspn(said, "\n"), said);
}

/* The message for a failed login. Only libiscsi's text tells a refused login from a target that is
 * not there. */
static int cannot_connect(const struct iscsi_device *device, const char *portal,
                          const struct login *login, struct plx_fault *fault)
{
    const char *why = iscsi_get_error(device->iscsi), *name = device->base.name;
    const char *path = plx_credentials_path();

    if (!strstr(why, "Authentication") && !strstr(why, "CHAP"))
        return cannot_reach(device, portal, fault);
    if (login->line)
        return plx_fault_set(fault, PLX_ERR_PERMISSION,
                             "%.90s: no login with line %u of %.60s; check its users and "
                             "passwords: %s",
                             name, login->line, path, why);
    if (login->by_setting)
        return plx_fault_set(fault, PLX_ERR_PERMISSION,
                             "%.90s: no login with LIBISCSI_CHAP_USERNAME and its password; check "
                             "them, or put a line '%.60s USER PASSWORD' into %.60s",
                             name, login->target, path);
    return plx_fault_set(fault, PLX_ERR_PERMISSION,
                         "%.90s asks for a user and a password (CHAP); put a line '%.80s USER "
                         "PASSWORD' into %.60s",
                         name, login->target, path);
}

static int log_in(struct iscsi_device *device, const char *url, const struct iscsi_url *parsed,
                  struct plx_fault *fault)
{
    struct login login;
    int error = identify(device, url, parsed, &login, fault);

    if (error)
        return error;
    device->lun = parsed->lun;
    iscsi_set_session_type(device->iscsi, ISCSI_SESSION_NORMAL);
    iscsi_set_header_digest(device->iscsi, ISCSI_HEADER_DIGEST_NONE_CRC32C);
    iscsi_set_targetname(device->iscsi, parsed->target);
    iscsi_set_timeout(device->iscsi, CONNECT_TIMEOUT_S);
    iscsi_set_tcp_user_timeout(device->iscsi, COMMAND_TIMEOUT_S * 1000);
    if (iscsi_full_connect_sync(device->iscsi, parsed->portal, device->lun) != 0)
        return cannot_connect(device, parsed->portal, &login, fault);
    iscsi_set_timeout(device->iscsi, COMMAND_TIMEOUT_S);
    iscsi_set_reconnect_max_retries(device->iscsi, RECONNECTS_MAX);
    return 0;
}

static int connect_lun(struct iscsi_device *device, const char *url, struct plx_fault *fault)
{
    char initiator[sizeof INITIATOR + 64] = INITIATOR;
    struct iscsi_url *parsed;
    int error;

    gethostname(initiator + sizeof INITIATOR - 1, 64);
    initiator[sizeof initiator - 1] = '\0';
    device->iscsi = iscsi_create_context(initiator);
    if (!device->iscsi)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening %s", device->base.name);
    parsed = iscsi_parse_full_url(device->iscsi, url);
    if (!parsed)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "%s is no iSCSI URL; it has the form "
                             "iscsi://host[:port]/target-name/lun",
                             device->base.name);
    error = log_in(device, url, parsed, fault);
    explicit_bzero(parsed->passwd, sizeof parsed->passwd);
    explicit_bzero(parsed->target_passwd, sizeof parsed->target_passwd);
    iscsi_destroy_url(parsed);
    return error;
}

static int read_capacity(struct iscsi_device *device, struct plx_fault *fault)
{
    struct scsi_task *task = iscsi_readcapacity16_sync(device->iscsi, device->lun);
    struct scsi_readcapacity16 *capacity = NULL;
    int result = 0;

    if (task && task->status == SCSI_STATUS_GOOD)
        capacity = scsi_datain_unmarshall(task);
    if (!capacity) {
        result = plx_fault_set(fault, PLX_ERR_LOST, "cannot read the size of %s: %s",
                               device->base.name, iscsi_get_error(device->iscsi));
    } else if (capacity->block_length != 512 && capacity->block_length != 4096) {
        result = plx_fault_set(fault, PLX_ERR_UNSUPPORTED,
                               "%s has logical blocks of %u bytes; 512 and 4096 are supported",
                               device->base.name, capacity->block_length);
    } else {
        device->base.block_size = capacity->block_length;
        device->base.bytes = (capacity->returned_lba + 1) * capacity->block_length;
    }
    if (task)
        scsi_free_scsi_task(task);
    return result;
}

/* Whether the target has a write-back cache: yes, unless it says that the cache is off. */
static bool read_write_cache(struct iscsi_device *device)
{
    struct scsi_task *task = iscsi_modesense6_sync(
        device->iscsi, device->lun, 1, SCSI_MODESENSE_PC_CURRENT, SCSI_MODEPAGE_CACHING, 0, 255);
    struct scsi_mode_sense *mode = NULL;
    struct scsi_mode_page *page = NULL;
    bool is_volatile = true;

    if (task && task->status == SCSI_STATUS_GOOD)
        mode = scsi_datain_unmarshall(task);
    if (mode)
        page = scsi_modesense_get_page(mode, SCSI_MODEPAGE_CACHING, 0);
    if (page)
        is_volatile = page->caching.wce;
    if (task)
        scsi_free_scsi_task(task);
    return is_volatile;
}

static uint32_t read_transfer_max(struct iscsi_device *device)
{
    struct scsi_task *task =
        iscsi_inquiry_sync(device->iscsi, device->lun, 1, SCSI_INQUIRY_PAGECODE_BLOCK_LIMITS, 64);
    struct scsi_inquiry_block_limits *limits = NULL;
    uint64_t bytes = TRANSFER_MAX;

    if (task && task->status == SCSI_STATUS_GOOD)
        limits = scsi_datain_unmarshall(task);
    if (limits && limits->max_xfer_len)
        bytes = (uint64_t)limits->max_xfer_len * device->base.block_size;
    if (task)
        scsi_free_scsi_task(task);
    return bytes < TRANSFER_MAX ? (uint32_t)bytes : TRANSFER_MAX;
}

static int set_up_polling(struct iscsi_device *device, struct plx_fault *fault)
{
    struct itimerspec second = {.it_interval = {.tv_sec = 1}, .it_value = {.tv_sec = 1}};
    struct epoll_event event = {.events = EPOLLIN};

    device->transfers = calloc(device->depth, sizeof *device->transfers);
    if (!device->transfers)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening %s", device->base.name);
    for (unsigned i = device->depth; i-- > 0;) {
        device->transfers[i].device = device;
        device->transfers[i].next = device->free;
        device->free = &device->transfers[i];
    }
    device->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    device->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
    if (device->epoll_fd < 0 || device->timer_fd < 0 ||
        timerfd_settime(device->timer_fd, 0, &second, NULL) != 0 ||
        epoll_ctl(device->epoll_fd, EPOLL_CTL_ADD, device->timer_fd, &event) != 0)
        return plx_fault_set(fault, PLX_ERR_SYSTEM, "cannot poll %s: %s", device->base.name,
                             strerror(errno));
    plx_iscsi_watch(device, true);
    return 0;
}

/* libiscsi writes to sockets that may have been reset. SIGPIPE must not end the process then. */
static void survive_sigpipe(void)
{
    struct sigaction now, ignore = {.sa_handler = SIG_IGN};

    if (sigaction(SIGPIPE, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        sigaction(SIGPIPE, &ignore, NULL);
}

int plx_iscsi_open(const char *url, const struct plx_device_open_options *options,
                   struct plx_device **ret_device, struct plx_fault *fault)
{
    struct iscsi_device *device = calloc(1, sizeof *device);
    int result;

    if (!device)
        return plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory opening a volume");
    device->base.ops = &plx_iscsi_ops;
    device->base.read_only = options->read_only;
    device->depth = options->queue_depth ? options->queue_depth : PLX_DEVICE_QUEUE_DEPTH;
    device->epoll_fd = device->timer_fd = device->watched.fd = -1;
    snprintf(device->base.name, sizeof device->base.name, "%s", url);
    survive_sigpipe();
    result = connect_lun(device, url, fault);
    if (result == 0)
        result = read_capacity(device, fault);
    if (result == 0)
        result = set_up_polling(device, fault);
    if (result < 0) {
        plx_iscsi_close(&device->base);
        return result;
    }
    device->base.volatile_cache = read_write_cache(device);
    device->transfer_max = read_transfer_max(device);
    *ret_device = &device->base;
    return 0;
}
