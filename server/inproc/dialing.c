/* dialing.c - a connection to a shard of this process: a pair of sockets, of which the shard takes
 * one. The list of the others tells users that a server has failed, whatever its threads do, and
 * which descriptors a forked child has to close. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/inproc/inproc.h"

/* As for other Unix sockets (client/io/socket.c). */
enum { SEND_BYTES = 4 << 20 };

pthread_mutex_t inproc_mutex = PTHREAD_MUTEX_INITIALIZER;

void inproc_lock(void)
{
    pthread_mutex_lock(&inproc_mutex);
}

void inproc_unlock(void)
{
    pthread_mutex_unlock(&inproc_mutex);
}

static struct inproc *inproc_of(const struct dialer *dialer)
{
    return (struct inproc *)(uintptr_t)dialer; /* its first member */
}

/* ---- the list ---- */

static int note(struct inproc *s, int fd, struct embd__error *e)
{
    if (s->n_fds == s->capacity) {
        uint32_t capacity = s->capacity == 0 ? 16 : s->capacity * 2;
        int *fds = realloc(s->fds, capacity * sizeof *fds);
        if (fds == NULL)
            return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a connection");
        s->fds = fds;
        s->capacity = capacity;
    }
    s->fds[s->n_fds++] = fd;
    return EMBD_OK;
}

static void strike(struct inproc *s, int fd)
{
    for (uint32_t i = 0; i < s->n_fds; i++)
        if (s->fds[i] == fd) {
            s->fds[i] = s->fds[--s->n_fds];
            return;
        }
}

/* ---- dialing ---- */

/* The shard has the second one; the first is in the list. */
static int hand_over(struct inproc *s, const int pair[2], uint32_t shard, bool is_admin,
                     struct embd__error *e)
{
    struct process *p = &s->process;
    setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &(int){SEND_BYTES}, sizeof(int));
    if (note(s, pair[0], e) != EMBD_OK)
        return e->status;
    int status =
        loop_adopt(p->loops[shard], pair[1], is_admin ? DOOR_ADMIN_SOCKET : DOOR_DATA_SOCKET, e);
    if (status != EMBD_OK)
        strike(s, pair[0]);
    return status;
}

static int check(const struct inproc *s, uint32_t shard, struct embd__error *e)
{
    if (s->is_inherited)
        return embd__error_set(e, EMBD_UNREACHABLE,
                               "this process was forked from the one that the server runs in: "
                               "connect after the fork, to another data directory or to a port of "
                               "that server");
    if (s->state != INPROC_RUNNING)
        return embd__error_set(e, EMBD_UNREACHABLE, "%s", s->error.text);
    if (shard >= s->process.n_started)
        return embd__error_set(e, EMBD_INVALID, "the server has %u shards, and no shard %u",
                               s->process.n_started, shard);
    return EMBD_OK;
}

int inproc_dial(const struct dialer *dialer, uint32_t shard, bool is_admin, struct embd__error *e)
{
    struct inproc *s = inproc_of(dialer);
    int pair[2];
    inproc_lock();
    int status = check(s, shard, e);
    if (status == EMBD_OK &&
        socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        status = embd__error_set(e, EMBD_UNREACHABLE, "no pair of sockets: %s", strerror(errno));
    else if (status == EMBD_OK && hand_over(s, pair, shard, is_admin, e) != EMBD_OK) {
        close(pair[0]);
        close(pair[1]);
        status = e->status;
    }
    inproc_unlock();
    return status == EMBD_OK ? pair[0] : status;
}

/* A forked child that has it, too, would keep the connection up. */
void inproc_hang_up(const struct dialer *dialer, int fd)
{
    struct inproc *s = inproc_of(dialer);
    inproc_lock();
    if (!s->is_inherited)
        shutdown(fd, SHUT_RDWR);
    strike(s, fd);
    close(fd);
    inproc_unlock();
}

void inproc_cut(struct inproc *s)
{
    for (uint32_t i = 0; i < s->n_fds; i++)
        shutdown(s->fds[i], SHUT_RDWR);
}

/* ---- forks ---- */

/* The handle that has it finds its connection ended, and no other file in its place. */
static void put_end(int fd)
{
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
        return;
    close(pair[1]);
    dup3(pair[0], fd, O_CLOEXEC);
    close(pair[0]);
}

/* Whether it is the directory, or below it. */
static bool is_below(const char *path, const char *dir)
{
    size_t bytes = strlen(dir);
    return bytes > 0 && strncmp(path, dir, bytes) == 0 &&
           (path[bytes] == '/' || path[bytes] == '\0');
}

/* A lock of a file lasts until all have closed it. */
static void close_files(const char *dir)
{
    char path[4096 + 16];
    DIR *list = dir[0] != '\0' ? opendir("/proc/self/fd") : NULL;
    for (struct dirent *entry; list != NULL && (entry = readdir(list)) != NULL;) {
        ssize_t n = readlinkat(dirfd(list), entry->d_name, path, sizeof path - 1);
        path[n > 0 ? n : 0] = '\0';
        if (is_below(path, dir))
            close(atoi(entry->d_name));
    }
    if (list != NULL)
        closedir(list);
}

void inproc_forget(struct inproc *s)
{
    s->is_inherited = true;
    for (uint32_t i = 0; i < s->n_fds; i++)
        put_end(s->fds[i]);
    close_files(s->process.config.data_dir);
}
