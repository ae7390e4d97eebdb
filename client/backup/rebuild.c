/* rebuild.c - see rebuild.h.
 *
 * The happy path: links, or copies, of the backups' files lie in a new data directory, those of all
 * processes of the cluster together, with one manifest; a child process opens the directory and
 * writes the snapshot. What can fail: the directory, or the server, whose sentence comes through a
 * pipe. */
#include "client/backup/rebuild.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/backup/shares.h"
#include "embd/embd.h"

#define DIR_NAME    "server"
#define LOOK_NS     50000000
#define DEADLINE_MS 2000000000u
#define COPY_BYTES  (1u << 20)

static int fail(const char *path, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "%s: cannot %s: %s", path, what, strerror(errno));
}

int rebuild_begin(const char *path, struct rebuild *out, struct embd__error *e)
{
    *out = (struct rebuild){.record = NULL};
    snprintf(out->dir, sizeof out->dir, "%s/" DIR_NAME, path);
    return mkdir(out->dir, 0700) == 0 ? EMBD_OK : fail(out->dir, "create", e);
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)ftw;
    if (type == FTW_DP)
        rmdir(path);
    else
        unlink(path);
    return 0;
}

void rebuild_remove(const struct rebuild *rebuild)
{
    if (rebuild->dir[0] != '\0')
        nftw(rebuild->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- files ---- */

static int copy_bytes(int in, int out, const char *to, struct embd__error *e)
{
    static char buffer[COPY_BYTES];
    ssize_t n;
    while ((n = read(in, buffer, sizeof buffer)) > 0)
        for (ssize_t done = 0, wrote; done < n; done += wrote)
            if ((wrote = write(out, buffer + done, (size_t)(n - done))) < 0)
                return fail(to, "write", e);
    return n == 0 ? EMBD_OK : fail(to, "copy", e);
}

static int copy(const char *from, const char *to, struct embd__error *e)
{
    int in = open(from, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (in < 0)
        return fail(from, "open", e);
    int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (out < 0)
        fail(to, "create", e);
    else
        copy_bytes(in, out, to, e);
    close(in);
    if (out >= 0)
        close(out);
    return e->status;
}

/* The server removes files, and never writes into one that is there. */
static int take_file(const char *from, const char *to, struct embd__error *e)
{
    return link(from, to) == 0 || errno == EEXIST ? EMBD_OK : copy(from, to, e);
}

static int write_text(const char *path, const char *text, struct embd__error *e)
{
    FILE *file = fopen(path, "wx");
    bool is_written = file != NULL && fputs(text, file) >= 0;
    if (file != NULL && fclose(file) != 0)
        is_written = false;
    return is_written ? EMBD_OK : fail(path, "write", e);
}

static int take_files(const struct rebuild *r, const char *from, const struct record *record,
                      struct embd__error *e)
{
    char source[8192], to[8192];
    for (uint32_t i = 0; i < record->n_files && e->status == EMBD_OK; i++) {
        const char *name = record->files[i].name, *file = strchr(name, '/') + 1;
        snprintf(source, sizeof source, "%s/%s/%s", from, record->name, name);
        snprintf(to, sizeof to, "%s/%s/%s", r->dir, record->name, file);
        if (strcmp(file, SHARES_MANIFEST) != 0)
            take_file(source, to, e);
    }
    return e->status;
}

int rebuild_add(struct rebuild *r, const char *from, const struct record *record,
                struct embd__error *e)
{
    char path[8192];
    snprintf(path, sizeof path, "%s/%s", r->dir, record->name);
    if (mkdir(path, 0700) != 0)
        return fail(path, "create", e);
    if (take_files(r, from, record, e) != EMBD_OK)
        return e->status;
    char *text = shares_join(r->dir, from, record, r->n_kept, r->placement, sizeof r->placement, e);
    snprintf(path, sizeof path, "%s/%s/" SHARES_MANIFEST, r->dir, record->name);
    if (text != NULL)
        write_text(path, text, e);
    free(text);
    return e->status;
}

/* ---- the server ---- */

/* As a part of `inproc:`. */
static void escape(char *out, size_t bytes, const char *path)
{
    size_t n = 0;
    for (; *path != '\0' && n + 4 < bytes; path++)
        n += (size_t)(strchr("?%&", *path) != NULL
                          ? snprintf(out + n, bytes - n, "%%%02x", (unsigned char)*path)
                          : snprintf(out + n, bytes - n, "%c", *path));
}

/* At a moment while keys moved rows may lie on two shards: the server removes them first. */
static int make_snapshot(embd_client *client)
{
    static const struct timespec look = {0, LOOK_NS};
    embd_dump_report report;
    int status;
    while ((status = embd_snapshot(client, REBUILD_NAME, NULL, &report)) == EMBD_BUSY)
        nanosleep(&look, NULL);
    return status;
}

static int serve(const struct rebuild *r)
{
    char path[3 * sizeof r->dir] = "", url[sizeof path + sizeof r->placement + 256];
    embd_options options;
    embd_client *client = NULL;
    embd_options_init(&options);
    options.deadline_ms = DEADLINE_MS;
    bool has_map = r->placement[0] != '\0' && r->n_shards == r->record->n_shards;
    escape(path, sizeof path, r->dir);
    snprintf(url, sizeof url, "inproc:%s?shards=%u&restore=%s&row_memory=0%s%s", path, r->n_shards,
             r->record->name, has_map ? "&placement=" : "", has_map ? r->placement : "");
    int status = embd_connect(url, &options, &client);
    return status == EMBD_OK ? make_snapshot(client) : status;
}

/* Its status and sentence go to `to`, and what a server logs beside the directory. */
static void run_child(const struct rebuild *r, int to)
{
    char path[sizeof r->dir + 8];
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGINT, SIG_IGN);
    snprintf(path, sizeof path, "%s/log", r->dir);
    int log = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (log >= 0 && dup2(log, STDOUT_FILENO) >= 0)
        dup2(log, STDERR_FILENO);
    int status = serve(r);
    if (status != EMBD_OK)
        dprintf(to, "%d %s", status, embd_error_text());
    _exit(status == EMBD_OK ? 0 : 1);
}

/* True: it has ended. */
static bool await(pid_t child, struct ticker *ticker, int *status_out, struct embd__error *e)
{
    static const struct timespec look = {0, LOOK_NS};
    while (waitpid(child, status_out, WNOHANG) == 0) {
        nanosleep(&look, NULL);
        if (embd__ticker_add(ticker, 0, 0, e) != EMBD_OK) {
            kill(child, SIGKILL);
            waitpid(child, status_out, 0);
            return false;
        }
    }
    return true;
}

static int tell(const struct rebuild *r, int from, struct embd__error *e)
{
    char text[1024];
    int status = EMBD_IO, at = 0;
    ssize_t n = read(from, text, sizeof text - 1);
    text[n > 0 ? n : 0] = '\0';
    if (sscanf(text, "%d %n", &status, &at) < 1)
        status = EMBD_IO;
    return embd__error_set(e, status, "the server that replays records behind '%s': %s",
                           r->record->name, n > 0 ? text + at : "it ended");
}

int rebuild_run(const struct rebuild *r, struct ticker *ticker, struct embd__error *e)
{
    int ends[2], status = 0;
    if (pipe(ends) != 0)
        return fail(r->dir, "make a pipe", e);
    pid_t child = fork();
    if (child == 0) {
        close(ends[0]);
        run_child(r, ends[1]);
    }
    close(ends[1]);
    if (child < 0)
        fail(r->dir, "start a process", e);
    else if (await(child, ticker, &status, e) && status != 0)
        tell(r, ends[0], e);
    close(ends[0]);
    return e->status;
}
