/* text.h - what people type and read: sizes, times, names.
 *
 * Sizes are powers of two: 4k, 64M, 1G, 2T. Times are RFC 3339 in the local zone, with as many
 * digits as it takes to be exact. Pure functions; nothing here does I/O.
 */
#ifndef PLX_ADMIN_TEXT_H
#define PLX_ADMIN_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/engine.h"

/* "4k", "64M", "1G", "2T", "1.5G", also with "iB" or "B" behind; a bare number is bytes. False for
 * anything else, for fractions of a byte and for what 64 bits do not hold. */
bool plx_text_size_parse(const char *text, uint64_t *ret_bytes);
/* "1.5 GiB", at most three digits and one decimal. */
const char *plx_text_size(uint64_t bytes, char ret_text[16]);

bool plx_text_number_parse(const char *text, uint64_t *ret_number);

/* Whether one was probably meant for the other: a letter or two wrong, missing, too many or in each
 * other's places. */
bool plx_text_is_near(const char *typed, const char *word);

/* "2026-11-21T07:20:00.010+01:00" */
const char *plx_text_time(uint64_t time_ns, char ret_text[48]);

/* "5 s", "3 min 20 s", "2 h 5 min", "30 d 0 h" */
const char *plx_text_duration(uint64_t seconds, char ret_text[32]);

/* STORE/VDI@SNAPSHOT taken apart. */
struct plx_name {
    char store[PLX_STORE_NAME_MAX + 1];
    char vdi[PLX_NAME_MAX + 1];
    char snapshot[PLX_LABEL_MAX + 1]; /* label, number or time; empty: none */
};

enum plx_name_form {
    PLX_NAME_STORE,           /* STORE */
    PLX_NAME_VDI,             /* STORE/VDI */
    PLX_NAME_SNAPSHOT,        /* STORE/VDI@SNAPSHOT */
    PLX_NAME_VDI_OR_SNAPSHOT, /* STORE/VDI[@SNAPSHOT] */
};

/* Whether it can name a snapshot at all: a label, a number, or a time that there is. 0, or INVALID
 * with a fault. */
int plx_text_snapshot_check(const char *snapshot, struct plx_fault *fault);
/* 0, or INVALID with a fault that says what was expected. A snapshot may still be none. */
int plx_text_name_parse(const char *text, enum plx_name_form form, struct plx_name *ret_name,
                        struct plx_fault *fault);

#endif
