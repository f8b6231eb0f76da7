/* folder.c - see folder.h. */
#include "folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int remove_one(const char *path, const struct stat *status, int kind, struct FTW *where)
{
    return remove(path);
}

void folder_remove(const char *path)
{
    nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
}

/* Holes stay holes. */
static bool copy_bytes(int from, int to, off_t size)
{
    static char buffer[1 << 20];
    off_t at = 0;

    if (ftruncate(to, 0) || ftruncate(to, size))
        return false;
    while ((at = lseek(from, at, SEEK_DATA)) >= 0) {
        off_t end = lseek(from, at, SEEK_HOLE);

        while (at < end) {
            size_t most = end - at < (off_t)sizeof buffer ? (size_t)(end - at) : sizeof buffer;
            ssize_t got = pread(from, buffer, most, at);

            if (got <= 0 || pwrite(to, buffer, (size_t)got, at) != got)
                return false;
            at += got;
        }
    }
    return errno == ENXIO; /* no more data */
}

static bool copy_file(const char *from, const char *to, const struct stat *status)
{
    int in = open(from, O_RDONLY | O_CLOEXEC);
    int out = in < 0 ? -1 : open(to, O_WRONLY | O_CREAT | O_CLOEXEC, status->st_mode & 0777);
    bool good = out >= 0 && copy_bytes(in, out, status->st_size);

    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return good;
}

static bool copy_folder(const char *from, const char *to, const struct stat *status)
{
    DIR *files = opendir(from);
    struct dirent *file;
    bool good;

    folder_remove(to);
    good = files && mkdir(to, status->st_mode & 0777) == 0;
    while (good && (file = readdir(files))) {
        char one[512], other[512];

        if (strcmp(file->d_name, ".") == 0 || strcmp(file->d_name, "..") == 0)
            continue;
        snprintf(one, sizeof one, "%.240s/%s", from, file->d_name);
        snprintf(other, sizeof other, "%.240s/%s", to, file->d_name);
        good = folder_copy(one, other);
    }
    if (files)
        closedir(files);
    return good;
}

bool folder_copy(const char *from, const char *to)
{
    struct stat status;

    if (lstat(from, &status)) {
        bool nothing = errno == ENOENT;

        folder_remove(to);
        return nothing;
    }
    return S_ISDIR(status.st_mode)   ? copy_folder(from, to, &status)
           : S_ISREG(status.st_mode) ? copy_file(from, to, &status)
                                     : false;
}
