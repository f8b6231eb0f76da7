/* small_file.c - see small_file.h. Keeps nothing; a crash leaves nothing. */
#include "device/small_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_read(const char *path, int number, struct plx_fault *fault)
{
    return plx_fault_set(fault,
                         number == ENOENT                      ? PLX_ERR_NOT_FOUND
                         : number == EACCES || number == EPERM ? PLX_ERR_PERMISSION
                                                               : PLX_ERR_SYSTEM,
                         "cannot read %.200s: %s", path, strerror(number));
}

static int check_access(const struct stat *st, const char *path, enum plx_small_file_trust trust,
                        struct plx_fault *fault)
{
    bool secret = trust == PLX_FILE_SECRET;
    mode_t others = secret ? S_IRWXG | S_IRWXO : S_IWGRP | S_IWOTH;

    if (trust == PLX_FILE_ANYBODY)
        return 0;
    if (st->st_uid != 0 && st->st_uid != geteuid())
        return plx_fault_set(fault, PLX_ERR_PERMISSION,
                             "%.150s belongs to user %u; give it to root or to yourself (chown)",
                             path, (unsigned)st->st_uid);
    if (st->st_mode & others)
        return plx_fault_set(fault, PLX_ERR_PERMISSION,
                             secret ? "%.100s has a secret in it and is open to others (mode "
                                      "%03o): chmod 600 %.80s"
                                    : "%.100s can be written by others (mode %03o): chmod go-w "
                                      "%.80s",
                             path, (unsigned)(st->st_mode & 0777), path);
    return 0;
}

int plx_small_file_open(const char *path, size_t bytes_max, enum plx_small_file_trust trust,
                        int *ret_fd, struct plx_fault *fault)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), error;
    struct stat st;

    if (fd < 0 && errno == ENXIO) /* a socket, or a device that is not there */
        return plx_fault_set(fault, PLX_ERR_INVALID, "%.200s is no regular file", path);
    if (fd < 0)
        return cannot_read(path, errno, fault);
    if (fstat(fd, &st))
        error = cannot_read(path, errno, fault);
    else if (!S_ISREG(st.st_mode))
        error = plx_fault_set(fault, PLX_ERR_INVALID, "%.200s is no regular file", path);
    else if ((unsigned long long)st.st_size > bytes_max)
        error = plx_fault_set(fault, PLX_ERR_INVALID, "%.200s has more than %zu bytes", path,
                              bytes_max);
    else
        error = check_access(&st, path, trust, fault);
    if (error)
        close(fd);
    else
        *ret_fd = fd;
    return error;
}

int plx_small_file_read(const char *path, size_t bytes_max, enum plx_small_file_trust trust,
                        char **ret_text, size_t *ret_bytes, struct plx_fault *fault)
{
    int fd, error = plx_small_file_open(path, bytes_max, trust, &fd, fault);
    size_t bytes = 0;
    ssize_t got = 1;
    char *text;

    if (error)
        return error;
    text = malloc(bytes_max + 1);
    while (text && got > 0 && bytes < bytes_max) {
        got = read(fd, text + bytes, bytes_max - bytes);
        bytes += got > 0 ? (size_t)got : 0;
    }
    if (!text)
        error = plx_fault_set(fault, PLX_ERR_NOMEM, "out of memory reading %.200s", path);
    else if (got < 0)
        error = cannot_read(path, errno, fault);
    close(fd);
    if (error) {
        plx_small_file_done(text, bytes);
        return error;
    }
    text[bytes] = 0;
    *ret_text = text;
    *ret_bytes = bytes;
    return 0;
}

void plx_small_file_done(char *text, size_t bytes)
{
    if (text)
        explicit_bzero(text, bytes);
    free(text);
}
