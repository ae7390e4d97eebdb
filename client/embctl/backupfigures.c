/* backupfigures.c - see backupfigures.h. */
#include "client/embctl/backupfigures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/embctl/embctl.h"

#define SUCCESS        "embd_backup_success_timestamp_seconds"
#define PATH_BYTES_MAX 4096

/* Of an earlier run; 0: there was none. */
static uint64_t last_success(const char *path)
{
    char line[PATH_BYTES_MAX * 2];
    uint64_t seconds = 0;
    FILE *in = fopen(path, "re");
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        const char *value = strrchr(line, '}');
        if (strncmp(line, SUCCESS "{", sizeof SUCCESS) == 0 && value != NULL)
            sscanf(value, "} %" SCNu64, &seconds);
    }
    if (in != NULL)
        fclose(in);
    return seconds;
}

static void print(FILE *out, const char *name, const char *help, const char *place, double value)
{
    fprintf(out, "# HELP %s %s\n# TYPE %s gauge\n%s{place=\"", name, help, name, name);
    for (const char *c = place; *c != '\0'; c++)
        if (*c == '\n')
            fputs("\\n", out);
        else
            fprintf(out, *c == '"' || *c == '\\' ? "\\%c" : "%c", *c);
    fprintf(out, "\"} %.17g\n", value);
}

static void print_all(FILE *out, const char *place, const struct backup_made *made,
                      uint64_t success_s, uint64_t elapsed_us)
{
    print(out, SUCCESS, "when the last backup was complete, since 1970; 0: none was", place,
          (double)success_s);
    print(out, "embd_backup_failed", "1: the last backup failed", place, made == NULL);
    print(out, "embd_backup_duration_seconds", "how long the last backup took", place,
          (double)elapsed_us / 1e6);
    if (made == NULL)
        return;
    print(out, "embd_backup_rows", "rows in the last backup", place, (double)made->rows);
    print(out, "embd_backup_bytes", "bytes of the last backup", place, (double)made->bytes);
    print(out, "embd_backup_increment", "1: the last backup has what changed, 0: all rows", place,
          made->base[0] != '\0');
}

int backup_figures_write(const char *path, const char *place, const struct backup_made *made,
                         uint64_t elapsed_us)
{
    char staged[PATH_BYTES_MAX];
    uint64_t success_s = made != NULL ? (uint64_t)time(NULL) : last_success(path);
    int n = snprintf(staged, sizeof staged, "%s.new", path);
    FILE *out = n < (int)sizeof staged ? fopen(staged, "we") : NULL;
    if (out != NULL)
        print_all(out, place, made, success_s, elapsed_us);
    int failed = out == NULL || ferror(out);
    failed |= out != NULL && fclose(out) != 0;
    if (!failed && rename(staged, path) == 0)
        return EXIT_DONE;
    fprintf(stderr, "embctl backup: %s: cannot write the figures: %s\n", path, strerror(errno));
    return EXIT_FAILED;
}
