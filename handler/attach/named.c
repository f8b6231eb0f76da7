/* named.c - which disk and which of its snapshots a name means (ATTACH-9). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attach/attach_inside.h"
#include "attach/doors.h"
#include "registry/policy.h"

/* ---- Which disk is meant ---- */

int plx_attach_row_of(struct plx_attach *a, const char *name, struct plx_registry_vdi *ret_row,
                      struct plx_fault *fault)
{
    int error = plx_registry_vdi_get(a->registry, a->row.id, name, ret_row);

    return error ? plx_registry_fault(a->registry, error, fault) : plx_attach_keep_up(a, fault);
}

/* ATTACH-9, without the disk's lock. As long as the disk's row exists, no other disk gets its slot,
 * whoever locks it. So another disk in the slot is a fault only if the row still exists. */
int plx_attach_check_door(struct plx_attach *a, const struct plx_registry_vdi *row,
                          struct plx_fault *fault)
{
    struct plx_registry_vdi now;
    struct plx_vdi_info info;
    int error, gone;

    plx_attach_lock(a);
    error = plx_door_read(a->store, row, &info, fault);
    plx_attach_unlock(a);
    if (error != PLX_ERR_REGISTRY)
        return error;
    gone = plx_registry_vdi_get_by_id(a->registry, row->id, &now);
    if (gone == PLX_ERR_NOT_FOUND || (!gone && now.deleted))
        return plx_fault_set(fault, PLX_ERR_NOT_FOUND, "%s/%.200s has just been deleted",
                             a->known.name, row->name);
    return gone ? error : plx_attach_in_doubt(a, error, fault);
}

int plx_attach_explain_missing(struct plx_attach *a, const struct plx_registry_vdi *row,
                               const char *snapshot, uint64_t seq, struct plx_fault *fault)
{
    const char *store = a->known.name;
    struct plx_snapshot_info first = {0}, found = {0};
    int error;

    plx_attach_lock(a);
    error = plx_snapshot_first(a->store, row->slot, 1, &first, NULL);
    if (!error && seq)
        error = plx_snapshot_first(a->store, row->slot, seq, &found, NULL);
    plx_attach_unlock(a);
    if (!error && !first.seq)
        plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                      "%s/%.100s has no snapshots; 'parallax snap create %s/%.100s' takes one",
                      store, row->name, store, row->name);
    else if (!error && seq && found.seq != seq)
        plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                      "%s/%.100s has no snapshot %.100s; 'parallax snap list' shows what there is",
                      store, row->name, snapshot);
    return PLX_ERR_NOT_FOUND;
}

/* ---- Which snapshot is meant ---- */

static bool take_digits(const char **at, unsigned count, unsigned *ret)
{
    unsigned value = 0;

    for (; count; count--, ++*at) {
        if (!isdigit((unsigned char)**at))
            return false;
        value = value * 10 + (unsigned)(**at - '0');
    }
    *ret = value;
    return true;
}

static bool take_fraction(const char **at, uint64_t *ret_ns)
{
    uint64_t scale = 100000000;

    *ret_ns = 0;
    if (**at != '.')
        return true;
    ++*at;
    if (!isdigit((unsigned char)**at))
        return false;
    for (; isdigit((unsigned char)**at); ++*at, scale /= 10)
        *ret_ns += scale * (unsigned)(**at - '0');
    return true;
}

static bool take_zone(const char *at, long *ret_seconds)
{
    unsigned hours, minutes;
    int sign = *at == '-' ? -1 : 1;

    *ret_seconds = 0;
    if (strcmp(at, "Z") == 0 || strcmp(at, "z") == 0)
        return true;
    if (*at != '+' && *at != '-')
        return false;
    at++;
    if (!take_digits(&at, 2, &hours))
        return false;
    at += *at == ':';
    if (!take_digits(&at, 2, &minutes) || *at || hours > 23 || minutes > 59)
        return false;
    *ret_seconds = sign * (long)(hours * 3600 + minutes * 60);
    return true;
}

bool plx_time_parse(const char *text, uint64_t *ret_time_ns)
{
    unsigned year, month, day, hour, minute, second;
    const char *at = text;
    struct tm tm = {0};
    uint64_t fraction;
    bool dashes, local;
    long zone = 0;
    time_t seconds;

    if (!take_digits(&at, 4, &year))
        return false;
    dashes = *at == '-';
    at += dashes;
    if (!take_digits(&at, 2, &month) || (dashes && *at++ != '-') || !take_digits(&at, 2, &day) ||
        (*at != 'T' && *at != 't' && *at != ' '))
        return false;
    at++;
    if (!take_digits(&at, 2, &hour) || (dashes && *at++ != ':') || !take_digits(&at, 2, &minute) ||
        (dashes && *at++ != ':') || !take_digits(&at, 2, &second) || !take_fraction(&at, &fraction))
        return false;
    local = *at == 0;
    if ((!local && !take_zone(at, &zone)) || year < 1970 || month < 1 || month > 12 || day < 1 ||
        day > 31 || hour > 23 || minute > 59 || second > 60)
        return false;
    tm = (struct tm){.tm_year = (int)year - 1900,
                     .tm_mon = (int)month - 1,
                     .tm_mday = (int)day,
                     .tm_hour = (int)hour,
                     .tm_min = (int)minute,
                     .tm_sec = (int)second,
                     .tm_isdst = -1};
    seconds = local ? mktime(&tm) : timegm(&tm) - zone;
    if (seconds < 0 || (uint64_t)seconds >= UINT64_MAX / 1000000000u) /* until 2554 */
        return false;
    *ret_time_ns = (uint64_t)seconds * 1000000000u + fraction;
    return true;
}

bool plx_instant_parse(const char *text, uint64_t now_ns, uint64_t *ret_time_ns)
{
    uint64_t ago_ns;

    if (text[0] != '-')
        return plx_time_parse(text, ret_time_ns);
    if (!plx_duration_parse(text + 1, &ago_ns) || ago_ns > now_ns)
        return false;
    *ret_time_ns = now_ns - ago_ns;
    return true;
}

#define TIME_TEXT 32

static const char *time_text(uint64_t time_ns, char ret_text[TIME_TEXT])
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    char date[24];
    struct tm tm;

    gmtime_r(&seconds, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    snprintf(ret_text, TIME_TEXT, "%s.%03uZ", date, (unsigned)(time_ns / 1000000 % 1000));
    return ret_text;
}

/* Nobody knows yet which snapshot that will be; the newest one is `newest`, for none is later. */
static int in_future(struct plx_attach *a, const struct plx_registry_vdi *row, const char *text,
                     const struct plx_snapshot_info *newest, struct plx_fault *fault)
{
    char time[TIME_TEXT];

    return plx_fault_set(
        fault, PLX_ERR_NOT_FOUND,
        "%s/%.100s: %.40s lies in the future; its newest snapshot is %llu, of %s: give "
        "that number, or an earlier time",
        a->known.name, row->name, text, (unsigned long long)newest->seq,
        time_text(newest->time_ns, time));
}

static int resolve_time(struct plx_attach *a, const struct plx_registry_vdi *row, const char *text,
                        uint64_t *ret_seq, struct plx_fault *fault)
{
    struct plx_snapshot_info info;
    uint64_t time_ns, now_ns = plx_attach_env_now(&a->env);
    int error;

    if (!plx_instant_parse(text, now_ns, &time_ns)) {
        if (isalpha((unsigned char)text[0]))
            plx_fault_set(fault, PLX_ERR_NOT_FOUND,
                          "%s/%s has no snapshot with the label %s; 'parallax snap list' shows "
                          "what there is",
                          a->known.name, row->name, text);
        else
            plx_fault_set(
                fault, PLX_ERR_NOT_FOUND,
                "%s/%s: %.40s is no time, and no label begins like that; a time is written "
                "2026-11-21T06:20:00Z, or -90s for 90 seconds ago",
                a->known.name, row->name, text);
        return plx_attach_explain_missing(a, row, text, 0, fault);
    }
    error = plx_attach_check_door(a, row, fault);
    if (error)
        return error;
    plx_attach_lock(a);
    error = plx_snapshot_at(a->store, row->slot, time_ns, &info, fault);
    plx_attach_unlock(a);
    if (!error && time_ns > now_ns && time_ns > info.time_ns)
        return in_future(a, row, text, &info, fault);
    if (error == PLX_ERR_NOT_FOUND) {
        plx_fault_set(fault, error, "%s/%s has no snapshot at or before %s", a->known.name,
                      row->name, text);
        return plx_attach_explain_missing(a, row, text, 0, fault);
    }
    if (!error)
        *ret_seq = info.seq;
    return error;
}

int plx_attach_snapshot_resolve(struct plx_attach *a, const char *name, const char *snapshot,
                                uint64_t *ret_seq, struct plx_fault *fault)
{
    struct plx_registry_label label;
    struct plx_registry_vdi row;
    char *end;
    int error = plx_attach_row_of(a, name, &row, fault);

    if (error)
        return error;
    if (snapshot[0] && strspn(snapshot, "0123456789") == strlen(snapshot)) {
        *ret_seq = strtoull(snapshot, &end, 10);
        return 0;
    }
    error = plx_registry_label_get(a->registry, row.id, snapshot, &label);
    if (!error)
        *ret_seq = label.seq;
    else if (error == PLX_ERR_NOT_FOUND || error == PLX_ERR_INVALID)
        return resolve_time(a, &row, snapshot, ret_seq, fault);
    return error ? plx_registry_fault(a->registry, error, fault) : 0;
}
