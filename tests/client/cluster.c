/* cluster.c - the server writes to --ready-fd when its listeners are up and names its addresses on
 * stdout, so nothing here guesses or sleeps. */
#include "tests/client/cluster.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static void die(const char *what)
{
    fprintf(stderr, "cluster: %s\n", what);
    exit(1);
}

/* The server has not become ready: its log says why. */
static void die_with_log(const struct cluster *cluster)
{
    char command[96];
    snprintf(command, sizeof command, "tail -n 20 %s/log >&2", cluster->dir);
    if (system(command) != 0)
        fputs("cluster: it has no log\n", stderr);
    die("the server did not become ready");
}

#define FLAGS_MAX    32
#define TLS_FLAGS    6
#define TLS_PATH_MAX 256

/* Of with_tls.py, if it runs this; how many. */
static int add_tls(const char **words)
{
    static const char *const names[TLS_FLAGS / 2][2] = {
        {"--tls-cert", "server.pem"}, {"--tls-key", "server.key"}, {"--tls-client-ca", "ca.pem"}};
    static char paths[TLS_FLAGS / 2][TLS_PATH_MAX];
    const char *folder = getenv("EMBD_TEST_TLS");
    if (folder == NULL)
        return 0;
    for (int i = 0; i < TLS_FLAGS / 2; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i][1]);
        words[2 * i] = names[i][0];
        words[2 * i + 1] = paths[i];
    }
    return TLS_FLAGS;
}

static void exec_server(const struct cluster *cluster, const char *program, uint32_t n_shards,
                        int port, const char *const *flags, int ready, int out)
{
    char shards[16], listen[32], fd[16], log[96];
    snprintf(shards, sizeof shards, "%u", n_shards);
    snprintf(listen, sizeof listen, "127.0.0.1:%d", port);
    snprintf(fd, sizeof fd, "%d", ready);
    snprintf(log, sizeof log, "%s/log", cluster->dir);
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves no server behind */
    int log_fd = open(log, O_CREAT | O_WRONLY | O_APPEND, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(log_fd, STDERR_FILENO);
    const char *words[FLAGS_MAX + TLS_FLAGS + 10] = {program,    "--admin-dir", cluster->dir,
                                                     "--shards", shards,        "--listen",
                                                     listen,     "--ready-fd",  fd};
    const char **more = words + 9 + add_tls(words + 9);
    for (int i = 0; i < FLAGS_MAX && flags[i] != NULL; i++)
        more[i] = flags[i];
    execv(program, (char *const *)(uintptr_t)words);
    _exit(127);
}

/* The first line of stdout: "embd: shard 0 listening on 127.0.0.1:7700". */
static void read_address(struct cluster *cluster, int out)
{
    FILE *lines = fdopen(out, "r");
    char line[256];
    if (lines == NULL || fgets(line, sizeof line, lines) == NULL)
        die("the server said no address");
    const char *address = strrchr(line, ' ');
    if (address == NULL)
        die(line);
    snprintf(cluster->address, sizeof cluster->address, "%.*s", (int)strcspn(address + 1, "\n"),
             address + 1);
    fclose(lines);
}

static void start(struct cluster *cluster, const char *program, uint32_t n_shards, int port,
                  const char *const *flags)
{
    int ready[2], out[2];
    char said[8] = "";
    strcpy(cluster->dir, "/tmp/embd-client-test-XXXXXX");
    if (mkdtemp(cluster->dir) == NULL || pipe(ready) != 0 || pipe(out) != 0)
        die("no directory or pipe");
    cluster->pid = fork();
    if (cluster->pid == 0)
        exec_server(cluster, program, n_shards, port, flags, ready[1], out[1]);
    close(ready[1]);
    close(out[1]);
    if (cluster->pid < 0 || read(ready[0], said, sizeof said - 1) <= 0 ||
        strncmp(said, "ready", 5) != 0)
        die_with_log(cluster);
    close(ready[0]);
    read_address(cluster, out[0]);
}

void cluster_start(struct cluster *cluster, const char *program, uint32_t n_shards, int port)
{
    static const char *const none[] = {NULL};
    start(cluster, program, n_shards, port, none);
}

void cluster_start_with(struct cluster *cluster, const char *program, uint32_t n_shards,
                        const char *const *flags)
{
    start(cluster, program, n_shards, 0, flags);
}

void cluster_start_at(struct cluster *cluster, const char *program, uint32_t n_shards, int port,
                      const char *const *flags)
{
    start(cluster, program, n_shards, port, flags);
}

static bool is_free(int port)
{
    const struct sockaddr_in address = {.sin_family = AF_INET,
                                        .sin_port = htons((uint16_t)port),
                                        .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    bool bound = bind(fd, (const struct sockaddr *)&address, sizeof address) == 0;
    close(fd);
    return bound;
}

/* Programs that run beside this one look elsewhere. */
static int some_port(void)
{
    static uint64_t state;
    if (state == 0 && getrandom(&state, sizeof state, 0) != sizeof state)
        die("no random numbers");
    state = state * 6364136223846793005u + 1442695040888963407u;
    return 12000 + (int)((state >> 33) % 20000);
}

int cluster_free_ports(int n)
{
    for (;;) {
        int port = some_port(), i = 0;
        while (i < n && is_free(port + i))
            i++;
        if (i == n)
            return port;
    }
}

static int end(struct cluster *cluster, int signal_number)
{
    char command[96];
    int status = -1;
    kill(cluster->pid, signal_number);
    waitpid(cluster->pid, &status, 0);
    snprintf(command, sizeof command, "rm -rf %s", cluster->dir);
    if (system(command) != 0)
        die("its directory could not be removed");
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int cluster_stop(struct cluster *cluster)
{
    return end(cluster, SIGTERM);
}

void cluster_kill(struct cluster *cluster)
{
    end(cluster, SIGKILL);
}
