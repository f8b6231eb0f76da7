/* replay.c - runs a fuzzer without libFuzzer: over files, and the files of folders.
 *
 * So every compiler replays the corpora and what was ever found, as part of the unit tests.
 */
#include <dirent.h>
#include <sys/stat.h>

#include "fuzz.h"

__attribute__((weak)) int LLVMFuzzerInitialize(int *argc, char ***argv);

static unsigned inputs;

static void run_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes;
    long count;

    if (!file || fseek(file, 0, SEEK_END) || (count = ftell(file)) < 0) {
        perror(path);
        exit(1);
    }
    rewind(file);
    bytes = malloc((size_t)count + 1);
    if (!bytes || fread(bytes, 1, (size_t)count, file) != (size_t)count) {
        perror(path);
        exit(1);
    }
    fclose(file);
    /* Said before it runs: after a crash nothing can be said. */
    printf("%s\n", path);
    fflush(stdout);
    bytes = realloc(bytes, count ? (size_t)count : 1); /* what is read behind it is found */
    LLVMFuzzerTestOneInput(bytes, (size_t)count);
    free(bytes);
    inputs++;
}

static void run_folder(const char *path)
{
    struct dirent **entries = NULL;
    int count = scandir(path, &entries, NULL, alphasort);

    for (int i = 0; i < count; i++) {
        char name[4096];

        snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.')
            run_file(name);
        free(entries[i]);
    }
    free(entries);
}

int main(int argc, char **argv)
{
    if (LLVMFuzzerInitialize)
        LLVMFuzzerInitialize(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        struct stat stat_of;

        if (stat(argv[i], &stat_of) == 0 && S_ISDIR(stat_of.st_mode))
            run_folder(argv[i]);
        else if (stat(argv[i], &stat_of) == 0)
            run_file(argv[i]);
    }
    printf("%u inputs\n", inputs);
    return inputs ? 0 : 1;
}
