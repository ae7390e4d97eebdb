/* key_updates.c - a TLS client that sends what stands on stdin, then asks for new keys again and again, each of which
 * is to be answered, and never reads: PORT. Says how many it could send until nobody read them any more, exit status 0; or 3: it could go on. */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { TICK_US = 400000, TICKS = 40 };

static unsigned long n, before;
static int ticks;

static void on_tick(int number)
{
    char line[40];
    int bytes = snprintf(line, sizeof line, "%lu\n", n);
    (void)number;
    if (n == before)
        _exit(write(STDOUT_FILENO, line, (size_t)bytes) == bytes ? 0 : 1);
    if (++ticks == TICKS)
        _exit(3);
    before = n;
}

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((in_port_t)atoi(argv[1]))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    SSL *ssl = SSL_new(SSL_CTX_new(TLS_client_method()));
    if (connect(fd, (struct sockaddr *)&address, sizeof address) != 0 || !SSL_set_fd(ssl, fd) ||
        SSL_connect(ssl) != 1)
        return 1;
    static char asked[1 << 20];
    size_t bytes = fread(asked, 1, sizeof asked, stdin);
    if (bytes > 0 && SSL_write(ssl, asked, (int)bytes) != (int)bytes)
        return 1;
    signal(SIGALRM, on_tick);
    signal(SIGPIPE, SIG_IGN);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, TICK_US}, {0, TICK_US}}, NULL);
    while (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1)
        n++;
    return 4; /* the server has ended it */
}
