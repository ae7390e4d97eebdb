/* backupfigures.c - see backupfigures.h. */
#include "client/embctl/backupfigures.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/embctl/embctl.h"

#define SUCCESS        "embd_backup_success_timestamp_seconds"
#define COVERS         "embd_backup_covers_timestamp_seconds"
#define PATH_BYTES_MAX 4096

/* Of an earlier backup; 0: there was none. */
static uint64_t earlier(const char *path, const char *name)
{
    char line[PATH_BYTES_MAX * 2];
    uint64_t seconds = 0;
    size_t n = strlen(name);
    FILE *in = fopen(path, "re");
    while (in != NULL && fgets(line, sizeof line, in) != NULL) {
        const char *value = strrchr(line, '}');
        if (strncmp(line, name, n) == 0 && line[n] == '{' && value != NULL)
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

/* When the last one was complete, and begun. */
struct times {
    uint64_t success_s, covers_s;
};

static void print_all(FILE *out, const struct backup_figures *f, const struct times *times)
{
    const struct backup_made *made = f->made;
    print(out, SUCCESS, "when the last backup was complete, since 1970; 0: none was", f->place,
          (double)times->success_s);
    print(out, COVERS,
          "what was acknowledged before this time is in the last complete backup; 0: there is none",
          f->place, (double)times->covers_s);
    print(out, "embd_backup_failed", "1: the last backup failed", f->place, made == NULL);
    print(out, "embd_backup_failures", "backups that failed since the last complete one", f->place,
          f->n_failed);
    print(out, "embd_backup_duration_seconds", "how long the last backup took", f->place,
          (double)f->elapsed_us / 1e6);
    if (f->every_s > 0)
        print(out, "embd_backup_interval_seconds", "embctl backup --every makes one so often",
              f->place, f->every_s);
    if (f->has_records)
        print(out, "embd_backup_records_covers_timestamp_seconds",
              "records of what was acknowledged before this time are there; 0: none yet", f->place,
              (double)f->records_ms / 1e3);
    if (made == NULL)
        return;
    print(out, "embd_backup_rows", "rows in the last backup", f->place, (double)made->rows);
    print(out, "embd_backup_bytes", "bytes of the last backup", f->place, (double)made->bytes);
    print(out, "embd_backup_increment", "1: the last backup has what changed, 0: all rows",
          f->place, made->base[0] != '\0');
}

int backup_figures_write(const char *path, const struct backup_figures *figures)
{
    char staged[PATH_BYTES_MAX];
    struct times times = {earlier(path, SUCCESS), earlier(path, COVERS)};
    if (figures->made != NULL && !figures->is_again)
        times = (struct times){(uint64_t)time(NULL), figures->made->time_s};
    int n = snprintf(staged, sizeof staged, "%s.new", path);
    FILE *out = n < (int)sizeof staged ? fopen(staged, "we") : NULL;
    if (out != NULL)
        print_all(out, figures, &times);
    int failed = out == NULL || ferror(out);
    failed |= out != NULL && fclose(out) != 0;
    if (!failed && rename(staged, path) == 0)
        return EXIT_DONE;
    fprintf(stderr, "embctl backup: %s: cannot write the figures: %s\n", path, strerror(errno));
    return EXIT_FAILED;
}
