/* archiving.c - see archiving.h.
 *
 * The happy path: embctl beside this program, or else the one in $PATH, is started with the admin
 * socket of shard 0, and writes its figures to `archive.prom` in the data directory, which /metrics
 * shows. It ends with this process, also where that is killed. What can fail: there is no such
 * program, or it ends; both are logged, and it is started again. */
#include "server/archiving.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "server/process.h"

#define LOOK_MS  1000u
#define AGAIN    5u /* looks */
#define CLOSE_MS 5000u
#define TOKEN    "EMBD_TOKEN_FILE="

extern char **environ;

/* ---- the program ---- */

static void find_program(char *out, size_t bytes)
{
    char own[3500];
    ssize_t n = readlink("/proc/self/exe", own, sizeof own - 1);
    own[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(own, '/');
    if (slash != NULL)
        *slash = '\0';
    snprintf(out, bytes, "%s/embctl", own);
    if (slash == NULL || access(out, X_OK) != 0)
        snprintf(out, bytes, "embctl");
}

/* The environment, with the token; NULL: no memory. */
static char **make_environment(const char *token)
{
    size_t n = 0, k = 0;
    while (environ[n] != NULL)
        n++;
    char **made = calloc(n + 2, sizeof *made);
    for (size_t i = 0; made != NULL && i < n; i++)
        if (token == NULL || strncmp(environ[i], TOKEN, strlen(TOKEN)) != 0)
            made[k++] = environ[i];
    if (made != NULL && token != NULL)
        made[k] = (char *)token;
    return made;
}

/* Signals as a program expects them, and nothing on standard output. */
static int spawn(const char *program, char **arguments, char **environment, pid_t *out)
{
    posix_spawnattr_t how;
    posix_spawn_file_actions_t files;
    sigset_t none, all;
    sigemptyset(&none);
    sigfillset(&all);
    posix_spawnattr_init(&how);
    posix_spawnattr_setflags(&how, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawnattr_setsigmask(&how, &none);
    posix_spawnattr_setsigdefault(&how, &all);
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
    int error = posix_spawnp(out, program, &files, &how, arguments, environment);
    posix_spawn_file_actions_destroy(&files);
    posix_spawnattr_destroy(&how);
    return error;
}

static void start(struct process *p)
{
    const struct config *c = &p->config;
    char program[4096], every[24], days[24], parent[24], token[sizeof c->archive_token + 32];
    char *arguments[] = {"embctl",           "backup",    "--to",
                         (char *)c->archive, "--every",   every,
                         "--days",           days,        "--figures",
                         p->archive_figures, "--servers", p->places.admin_addresses[0],
                         "--child-of",       parent,      NULL};
    find_program(program, sizeof program);
    snprintf(every, sizeof every, "%llu", (unsigned long long)c->archive_every_s);
    snprintf(days, sizeof days, "%llu", (unsigned long long)c->archive_days);
    snprintf(parent, sizeof parent, "%ld", (long)getpid());
    snprintf(token, sizeof token, TOKEN "%s", c->archive_token);
    char **environment = make_environment(c->archive_token[0] != '\0' ? token : NULL);
    int error = environment == NULL ? ENOMEM : spawn(program, arguments, environment, &p->archiver);
    free(environment);
    p->archiver = error == 0 ? p->archiver : 0;
    if (error == 0)
        log_event(LOG_INFO, "archive_begins", "place=%s program=%s pid=%ld", c->archive, program,
                  (long)p->archiver);
    else
        log_event(LOG_ERROR, "archive_not_begun",
                  "place=%s program=%s why=\"%s: install the package embd-tools\"", c->archive,
                  program, strerror(error));
}

/* ---- while the process runs ---- */

static void on_look(uv_timer_t *timer)
{
    struct process *p = timer->data;
    int status;
    if (p->archiver > 0 && waitpid(p->archiver, &status, WNOHANG) == p->archiver) {
        log_event(LOG_ERROR, "archive_ended",
                  "place=%s why=\"embctl ended with %s %d; it is started again\"",
                  p->config.archive, WIFSIGNALED(status) ? "the signal" : "the exit status",
                  WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
        p->archiver = 0;
        p->archive_pause = AGAIN;
    }
    if (p->archiver == 0 && p->archive_pause > 0)
        p->archive_pause--;
    else if (p->archiver == 0) {
        start(p);
        p->archive_pause = AGAIN;
    }
    p->http_process.archive_runs = p->archiver > 0;
}

void archiving_begin(struct process *p)
{
    if (p->config.archive[0] == '\0' || process_self(p)->first_shard != 0 || p->is_embedded ||
        uv_timer_init(&p->uv, &p->archive_look) < 0)
        return;
    p->archive_look.data = p;
    snprintf(p->archive_figures, sizeof p->archive_figures, "%s/archive.prom", p->config.data_dir);
    p->http_process.archive_figures = p->archive_figures;
    uv_timer_start(&p->archive_look, on_look, 0, LOOK_MS);
}

void archiving_stop(struct process *p)
{
    if (p->archive_look.data == NULL)
        return;
    uv_timer_stop(&p->archive_look);
    if (p->archiver > 0)
        kill(p->archiver, SIGTERM);
}

void archiving_close(struct process *p)
{
    static const struct timespec pause = {0, 10000000};
    for (uint32_t ms = 0; p->archiver > 0; ms += 10) {
        if (ms == CLOSE_MS)
            kill(p->archiver, SIGKILL);
        if (waitpid(p->archiver, NULL, WNOHANG) != 0)
            p->archiver = 0;
        else
            nanosleep(&pause, NULL);
    }
}
