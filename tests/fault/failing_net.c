/* failing_net.c - of failing.c, the steps of sockets beside reading, writing and closing, and those
 * of loops, threads and names: socket.make, socket.connect, socket.bind, socket.listen,
 * socket.accept, socket.option, socket.ask, poll.make, poll.change, poll.wait, event.make,
 * thread.make, name.look, random.take. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <netdb.h>
#include <pthread.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tests/fault/failing.h"

/* ---- sockets ---- */

int socket(int domain, int type, int protocol)
{
    return fails(pass("socket.make")) ? -1 : (int)syscall(SYS_socket, domain, type, protocol);
}

int connect(int fd, const struct sockaddr *address, socklen_t n)
{
    return fails(pass_fd(fd, "connect")) ? -1 : (int)syscall(SYS_connect, fd, address, n);
}

int bind(int fd, const struct sockaddr *address, socklen_t n)
{
    return fails(pass_fd(fd, "bind")) ? -1 : (int)syscall(SYS_bind, fd, address, n);
}

int listen(int fd, int n)
{
    return fails(pass_fd(fd, "listen")) ? -1 : (int)syscall(SYS_listen, fd, n);
}

int setsockopt(int fd, int level, int name, const void *value, socklen_t n)
{
    return fails(pass_fd(fd, "option")) ? -1
                                        : (int)syscall(SYS_setsockopt, fd, level, name, value, n);
}

int accept4(int fd, struct sockaddr *address, socklen_t *n, int flags)
{
    return fails(pass_fd(fd, "accept")) ? -1 : (int)syscall(SYS_accept4, fd, address, n, flags);
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
    return fails(pass_fd(fd, "write")) ? -1 : syscall(SYS_sendmsg, fd, message, flags);
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
    return fails(pass_fd(fd, "read")) ? -1 : syscall(SYS_recvmsg, fd, message, flags);
}

ssize_t send(int fd, const void *bytes, size_t n, int flags)
{
    return fails(pass_fd(fd, "write")) ? -1 : syscall(SYS_sendto, fd, bytes, n, flags, NULL, 0);
}

ssize_t recv(int fd, void *to, size_t n, int flags)
{
    return fails(pass_fd(fd, "read")) ? -1 : syscall(SYS_recvfrom, fd, to, n, flags, NULL, NULL);
}

int getsockopt(int fd, int level, int name, void *out, socklen_t *n)
{
    return fails(pass_fd(fd, "ask")) ? -1 : (int)syscall(SYS_getsockopt, fd, level, name, out, n);
}

/* ---- loops ---- */

int epoll_create1(int flags)
{
    return fails(pass("poll.make")) ? -1 : (int)syscall(SYS_epoll_create1, flags);
}

int epoll_ctl(int fd, int operation, int of, struct epoll_event *event)
{
    return fails(pass("poll.change")) ? -1 : (int)syscall(SYS_epoll_ctl, fd, operation, of, event);
}

int epoll_pwait(int fd, struct epoll_event *events, int n, int timeout, const sigset_t *mask)
{
    return fails(pass("poll.wait"))
               ? -1
               : (int)syscall(SYS_epoll_pwait, fd, events, n, timeout, mask, (size_t)8);
}

int epoll_wait(int fd, struct epoll_event *events, int n, int timeout)
{
    return epoll_pwait(fd, events, n, timeout, NULL);
}

int eventfd(unsigned value, int flags)
{
    return fails(pass("event.make")) ? -1 : (int)syscall(SYS_eventfd2, value, flags);
}

ssize_t getrandom(void *to, size_t n, unsigned flags)
{
    return fails(pass("random.take")) ? -1 : syscall(SYS_getrandom, to, n, flags);
}

/* ---- threads and names, whose functions return what is wrong ---- */

int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*run)(void *),
                   void *arg)
{
    static int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (fails(pass("thread.make")))
        return errno;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, run, arg);
}

int getaddrinfo(const char *name, const char *service, const struct addrinfo *hints,
                struct addrinfo **out)
{
    static int (*real)(const char *, const char *, const struct addrinfo *, struct addrinfo **);
    if (fails(pass("name.look")))
        return EAI_SYSTEM;
    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "getaddrinfo");
    return real(name, service, hints, out);
}
