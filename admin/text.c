/* text.c - sizes, times and names as text. Stateless; local zone as of TZ. */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "attach/attach.h"
#include "registry/clock.h"
#include "registry/names.h"

bool plx_text_number_parse(const char *text, uint64_t *ret_number)
{
    char *end;

    if (!isdigit((unsigned char)*text))
        return false; /* strtoull would take a sign or a space */
    errno = 0;
    unsigned long long number = strtoull(text, &end, 10);
    if (errno || *end)
        return false;
    *ret_number = number;
    return true;
}

/* The power of two that a unit stands for, or -1: so is "MB", which is 1000 kB to some programs and
 * 1024 to others. */
static int unit_shift(const char *unit)
{
    static const char letters[] = "kmgtpe";

    if (!*unit || !strcasecmp(unit, "b"))
        return 0;
    const char *letter = strchr(letters, tolower((unsigned char)*unit));
    if (!letter || (unit[1] && strcasecmp(unit + 1, "ib")))
        return -1;
    return 10 * (int)(letter - letters + 1);
}

bool plx_text_size_parse(const char *text, uint64_t *ret_bytes)
{
    uint64_t whole = 0, fraction = 0, scale = 1;
    const char *p = text;

    if (!isdigit((unsigned char)*p))
        return false;
    for (; isdigit((unsigned char)*p); p++)
        if (__builtin_mul_overflow(whole, 10, &whole) ||
            __builtin_add_overflow(whole, (uint64_t)(*p - '0'), &whole))
            return false;
    if (*p == '.') {
        if (!isdigit((unsigned char)*++p))
            return false;
        for (; isdigit((unsigned char)*p); p++, scale *= 10) {
            if (scale > 1000000)
                return false;
            fraction = fraction * 10 + (uint64_t)(*p - '0');
        }
    }
    while (*p == ' ')
        p++;
    int shift = unit_shift(p);
    if (shift < 0 || (whole && whole > UINT64_MAX >> shift))
        return false;
    /* Below 2^20 * 2^60 only when the unit is large: split so that nothing overflows. */
    unsigned __int128 part = ((unsigned __int128)fraction << shift) / scale;
    if (((unsigned __int128)fraction << shift) % scale)
        return false;
    return !__builtin_add_overflow(whole << shift, (uint64_t)part, ret_bytes);
}

const char *plx_text_size(uint64_t bytes, char ret_text[16])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    unsigned unit = 0;

    while (unit < 6 && bytes >> (10 * (unit + 1)))
        unit++;
    double value = (double)bytes / (double)(1ull << (10 * unit));
    if (value >= 1023.95 && unit < 6) {
        value /= 1024;
        unit++;
    }
    bool whole = value >= 99.95 || (uint64_t)(value * 10 + 0.5) % 10 == 0;
    snprintf(ret_text, 16, "%.*f %s", whole ? 0 : 1, value, units[unit]);
    return ret_text;
}

bool plx_text_is_near(const char *typed, const char *word)
{
    enum { LENGTH_MAX = 32 };
    unsigned row[3][LENGTH_MAX + 1]; /* how many letters differ: before the last one, last, now */
    size_t m = strlen(typed), n = strlen(word);

    if (m > LENGTH_MAX || n > LENGTH_MAX || m < 2)
        return false;
    for (size_t j = 0; j <= n; j++)
        row[1][j] = (unsigned)j;
    for (size_t i = 1; i <= m; i++) {
        row[2][0] = (unsigned)i;
        for (size_t j = 1; j <= n; j++) {
            bool other = typed[i - 1] != word[j - 1];
            unsigned least = row[1][j - 1] + other;

            least = row[1][j] + 1 < least ? row[1][j] + 1 : least;
            least = row[2][j - 1] + 1 < least ? row[2][j - 1] + 1 : least;
            if (i > 1 && j > 1 && typed[i - 1] == word[j - 2] && typed[i - 2] == word[j - 1] &&
                row[0][j - 2] + 1 < least)
                least = row[0][j - 2] + 1;
            row[2][j] = least;
        }
        memcpy(row[0], row[1], sizeof row[0]);
        memcpy(row[1], row[2], sizeof row[1]);
    }
    return row[1][n] <= (m > 4 ? 2u : 1u);
}

const char *plx_text_time(uint64_t time_ns, char ret_text[48])
{
    time_t seconds = (time_t)(time_ns / 1000000000);
    uint64_t fraction = time_ns % 1000000000;
    unsigned digits = 9;
    struct tm tm;
    char date[24];

    while (digits > 3 && fraction % 1000 == 0) {
        fraction /= 1000;
        digits -= 3;
    }
    localtime_r(&seconds, &tm);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    long minutes = tm.tm_gmtoff / 60;
    unsigned off = (unsigned)labs(minutes);
    snprintf(ret_text, 48, "%s.%0*" PRIu64 "%c%02u:%02u", date, (int)digits, fraction,
             minutes < 0 ? '-' : '+', off / 60 % 24, off % 60);
    return ret_text;
}

const char *plx_text_duration(uint64_t seconds, char ret_text[32])
{
    if (seconds < 60)
        snprintf(ret_text, 32, "%" PRIu64 " s", seconds);
    else if (seconds < 3600)
        snprintf(ret_text, 32, "%" PRIu64 " min %" PRIu64 " s", seconds / 60, seconds % 60);
    else if (seconds < 2 * 86400)
        snprintf(ret_text, 32, "%" PRIu64 " h %" PRIu64 " min", seconds / 3600,
                 seconds % 3600 / 60);
    else
        snprintf(ret_text, 32, "%" PRIu64 " d %" PRIu64 " h", seconds / 86400,
                 seconds % 86400 / 3600);
    return ret_text;
}

/* Copies one part of a name, if it is a good one. */
static int take_part(const char *kind, const char *from, size_t length, char *part, size_t size,
                     struct plx_fault *fault)
{
    char why[256];
    char *copy = strndup(from, length);
    int rc = copy ? plx_name_check(kind, copy, why, sizeof why) : PLX_ERR_NOMEM;

    if (!rc)
        snprintf(part, size, "%s", copy);
    else
        plx_fault_set(fault, rc, "%s", copy ? why : plx_error_text(rc));
    free(copy);
    return rc;
}

/* One of digits alone: snapshots are numbered from 1, and 0 is the engine's word for what is now.
 */
static bool is_no_number(const char *snapshot)
{
    uint64_t seq;

    return strspn(snapshot, "0123456789") == strlen(snapshot) &&
           (!plx_text_number_parse(snapshot, &seq) || !seq || seq > INT64_MAX);
}

int plx_text_snapshot_check(const char *snapshot, struct plx_fault *fault)
{
    uint64_t time_ns;

    if (!*snapshot || strlen(snapshot) > PLX_LABEL_MAX)
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.80s': a snapshot is a label, a sequence number or a time",
                             snapshot);
    if (strspn(snapshot, "0123456789") == strlen(snapshot) || isalpha((unsigned char)*snapshot) ||
        plx_instant_parse(snapshot, plx_clock_ns(CLOCK_REALTIME), &time_ns))
        return 0;
    return plx_fault_set(fault, PLX_ERR_INVALID,
                         "'%.40s' is no time, and no label begins like that; a time is written "
                         "2026-11-21T06:20:00Z, or -90s for 90 seconds ago",
                         snapshot);
}

int plx_text_name_parse(const char *text, enum plx_name_form form, struct plx_name *ret_name,
                        struct plx_fault *fault)
{
    static const char *const expected[] = {
        [PLX_NAME_STORE] = "STORE",
        [PLX_NAME_VDI] = "STORE/VDI",
        [PLX_NAME_SNAPSHOT] = "STORE/VDI@SNAPSHOT",
        [PLX_NAME_VDI_OR_SNAPSHOT] = "STORE/VDI[@SNAPSHOT]",
    };
    struct plx_name name = {{0}, {0}, {0}};
    size_t store_length = strcspn(text, "/");
    bool has_vdi = text[store_length] == '/';
    const char *vdi = text + store_length + has_vdi;
    size_t vdi_length = strcspn(vdi, "@");
    bool has_snapshot = has_vdi && vdi[vdi_length] == '@';
    const char *snapshot = vdi + vdi_length + has_snapshot;
    int rc;

    if (has_vdi != (form != PLX_NAME_STORE) || (has_snapshot && form == PLX_NAME_VDI) ||
        (!has_snapshot && form == PLX_NAME_SNAPSHOT))
        return plx_fault_set(fault, PLX_ERR_INVALID, "'%.80s' is not a name of the form %s", text,
                             expected[form]);
    if ((rc = take_part("store", text, store_length, name.store, sizeof name.store, fault)))
        return rc;
    if (has_vdi && (rc = take_part("vdi", vdi, vdi_length, name.vdi, sizeof name.vdi, fault)))
        return rc;
    if (has_snapshot && (rc = plx_text_snapshot_check(snapshot, fault)))
        return rc;
    if (has_snapshot && is_no_number(snapshot))
        return plx_fault_set(fault, PLX_ERR_INVALID,
                             "'%.80s': %.40s is no number of a snapshot; "
                             "they begin with 1",
                             text, snapshot);
    strcpy(name.snapshot, snapshot);
    *ret_name = name;
    return 0;
}
