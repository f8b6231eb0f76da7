/* lun.c - see lun.h. */
#include "lun.h"

#include <CUnit/Basic.h>
#include <stdlib.h>
#include <unistd.h>

uint8_t sense[SENSE_BUFFERSIZE];

int scsi_on(struct tcmu_device *on, const char *hex, void *data, size_t bytes)
{
    struct runner_command command = {.iov = {{data, bytes}}, .iovcnt = bytes > 0};
    int status;
    char *end;

    for (unsigned i = 0; i < RUNNER_CDB_MAX && *hex; i++, hex = end)
        command.cdb[i] = (uint8_t)strtoul(hex, &end, 16);
    status = runner_run(on, &command);
    memcpy(sense, command.sense, sizeof sense);
    return status;
}

int write_on(struct tcmu_device *on, uint64_t lba, void *data, size_t bytes, uint8_t flags)
{
    struct runner_command command = {.iov = {{data, bytes}}, .iovcnt = 1};
    int status;

    runner_read_write(&command, true, lba, (uint32_t)(bytes / SECTOR), flags);
    status = runner_run(on, &command);
    memcpy(sense, command.sense, sizeof sense);
    return status;
}

void check_sense(uint8_t key, uint16_t codes)
{
    CU_ASSERT_EQUAL(sense[2], key);
    CU_ASSERT_EQUAL(plx_get_be(sense + 12, 2), codes);
}

bool all_are(const char *bytes, size_t count, char value)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i] != value)
            return false;
    return true;
}

bool holds(struct tcmu_device *on, uint64_t lba, char value)
{
    struct runner_command command = {.iovcnt = 1};
    static char back[65536];

    command.iov[0] = (struct iovec){back, sizeof back};
    runner_read_write(&command, false, lba, sizeof back / SECTOR, 0);
    return runner_run(on, &command) == TCMU_STS_OK && all_are(back, sizeof back, value);
}

int unmap_on(struct tcmu_device *on, uint64_t lba, uint32_t sectors)
{
    uint8_t list[24] = {0, 22, 0, 16};

    plx_put_be(list + 8, 8, lba);
    plx_put_be(list + 16, 4, sectors);
    return scsi_on(on, "42 0 0 0 0 0 0 0 18 0", list, sizeof list);
}

json_int_t ask(int code, const char *name, const char *request)
{
    struct plx_fault fault = {0};
    json_int_t number = -1;
    char path[PATH_MAX];
    int got;

    CU_ASSERT_FATAL(stand_control(path, sizeof path));
    got = stand_ask(path, request, name, &number, &fault);
    CU_ASSERT_EQUAL(got, code);
    if (got != code)
        printf("  %s: %s\n", request, fault.text);
    return number;
}

FILE *lun_listen(void)
{
    FILE *log = tmpfile();

    CU_ASSERT_PTR_NOT_NULL_FATAL(log);
    runner_set_log(log);
    return log;
}

void heard(FILE *log, const char *const *texts)
{
    static char all[1 << 20];
    ssize_t length;

    runner_set_log(NULL);
    fflush(log);
    length = pread(fileno(log), all, sizeof all - 1, 0);
    all[length > 0 ? length : 0] = '\0';
    for (; *texts; texts++) {
        CU_ASSERT_PTR_NOT_NULL(strstr(all, *texts));
        if (!strstr(all, *texts))
            printf("  the log lacks '%s': %s\n", *texts, all);
    }
    fclose(log);
}
