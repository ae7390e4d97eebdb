/* server_process.c - fork, exec, wait until it says that it is ready.
 *
 * The server's standard output and its --ready-fd are one pipe: it says where each shard listens,
 * then "ready"; the pipe's end before that means that it could not start. It is pinned twice: the
 * whole process before exec to the processors it may use, each shard by --cpus to its own. */
#include "client/bench/server_process.h"

#include "client/bench/mover.h"

#include <errno.h>
#include <libgen.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <fcntl.h>
#include <unistd.h>

#define READY_FD 3
#define STOP_MS  5000

/* bin/embd in a build, ../sbin/embd where it is installed. */
static int find_binary(char out[PATH_MAX])
{
    static const char *const places[] = {"embd", "../sbin/embd"};
    char self[PATH_MAX / 2];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return -1;
    self[n] = '\0';
    const char *folder = dirname(self);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        snprintf(out, PATH_MAX, "%s/%s", folder, places[i]);
        if (access(out, X_OK) == 0)
            return 0;
    }
    return -1;
}

/* In the child. */
static _Noreturn void exec_server(const char *binary, int ready, uint32_t shards,
                                  const struct cpu_list *cpus, bool verbose)
{
    char shards_text[16], cpus_text[1024], ready_text[16];
    size_t at = 0;
    for (uint32_t i = 0; i < cpus->n && at < sizeof cpus_text - 16; i++)
        at += (size_t)snprintf(cpus_text + at, sizeof cpus_text - at, "%s%d", i ? "," : "",
                               cpus->ids[i]);
    snprintf(shards_text, sizeof shards_text, "%u", shards);
    snprintf(ready_text, sizeof ready_text, "%d", READY_FD);
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    cpu_pin_to(cpus);
    if (dup2(ready, STDOUT_FILENO) < 0)
        _exit(FAILED);
    if (ready == READY_FD)
        fcntl(ready, F_SETFD, 0);
    else
        dup2(ready, READY_FD);
    close_range(READY_FD + 1, ~0u, 0);
    if (!verbose && !freopen("/dev/null", "w", stderr))
        _exit(FAILED);
    execl(binary, binary, "--listen", "127.0.0.1:0", "--shards", shards_text, "--cpus", cpus_text,
          "--ready-fd", ready_text, (char *)NULL);
    _exit(127);
}

/* Reads "embd: shard 0 listening on 127.0.0.1:7700" of each shard, then "ready". */
static bool read_address(FILE *said, char out[SERVER_ADDRESS_BYTES])
{
    char line[512];
    unsigned shard;
    out[0] = '\0';
    while (fgets(line, sizeof line, said)) {
        char address[SERVER_ADDRESS_BYTES];
        if (strcmp(line, "ready\n") == 0)
            return out[0] != '\0';
        if (out[0] == '\0' &&
            sscanf(line, "embd: shard %u listening on %299s", &shard, address) == 2)
            strcpy(out, address);
    }
    return false;
}

static int await(struct server_process *s, int ready, const char *binary, bool verbose)
{
    FILE *said = fdopen(ready, "r");
    bool serves = said && read_address(said, s->servers);
    if (said)
        fclose(said);
    else
        close(ready);
    if (serves)
        return DONE;
    fprintf(stderr, "embd-bench: %s did not start%s\n", binary,
            verbose ? "" : "; --verbose shows its log");
    server_process_stop(s);
    return UNREACHABLE;
}

int server_process_start(struct server_process *s, const char *binary, uint32_t shards,
                         const struct cpu_list *cpus, bool verbose)
{
    char found[PATH_MAX];
    int ready[2];
    *s = (struct server_process){0};
    if (!binary && find_binary(found)) {
        fprintf(stderr,
                "embd-bench: no embd server beside this program; name it with --server-bin\n");
        return UNREACHABLE;
    }
    if (!binary)
        binary = found;
    if (pipe2(ready, O_CLOEXEC)) {
        fprintf(stderr, "embd-bench: pipe: %s\n", strerror(errno));
        return FAILED;
    }
    s->pid = fork();
    if (s->pid == 0)
        exec_server(binary, ready[1], shards, cpus, verbose);
    close(ready[1]);
    if (s->pid > 0)
        return await(s, ready[0], binary, verbose);
    fprintf(stderr, "embd-bench: fork: %s\n", strerror(errno));
    close(ready[0]);
    s->pid = 0;
    return FAILED;
}

/* Asks, waits, and insists. */
void server_process_stop(struct server_process *s)
{
    if (s->pid > 0) {
        bool ended = false;
        kill(s->pid, SIGTERM);
        for (int ms = 0; ms < STOP_MS && !ended; ms += 10) {
            ended = waitpid(s->pid, NULL, WNOHANG) == s->pid;
            if (!ended)
                usleep(10000);
        }
        if (!ended) {
            kill(s->pid, SIGKILL);
            waitpid(s->pid, NULL, 0);
        }
    }
    *s = (struct server_process){0};
}
