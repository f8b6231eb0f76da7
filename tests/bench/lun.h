/* lun.h - a LUN as an initiator sees it, for tests on the stand: commands, sense, the control
 * socket beside it, what the handler logs. Failures are CUnit's.
 */
#ifndef PLX_TEST_LUN_H
#define PLX_TEST_LUN_H

#include <stdio.h>

#include "stand.h"
#include "tcmu/bytes.h"

#define SECTOR 512u
#define MIB (1u << 20)

/* Of the last command. */
extern uint8_t sense[SENSE_BUFFERSIZE];

/* Runs a CDB given as bytes in hex ("12 01 b0 00 40 00") on a buffer; returns the TCMU status. */
int scsi_on(struct tcmu_device *on, const char *hex, void *data, size_t bytes);
int write_on(struct tcmu_device *on, uint64_t lba, void *data, size_t bytes, uint8_t flags);
int unmap_on(struct tcmu_device *on, uint64_t lba, uint32_t sectors);
void check_sense(uint8_t key, uint16_t codes);

bool all_are(const char *bytes, size_t count, char value);
/* 64 KiB of it are this value. */
bool holds(struct tcmu_device *on, uint64_t lba, char value);

/* Sends a request to the control socket; returns a number of the answer, -1 when there is none of
 * that name. */
json_int_t ask(int code, const char *name, const char *request);

/* What the handler logs from here on. */
FILE *lun_listen(void);
/* The log so far holds these texts; and ends. */
void heard(FILE *log, const char *const *texts);
#define HEARD(log, ...) heard(log, (const char *const[]){__VA_ARGS__, NULL})

#endif
