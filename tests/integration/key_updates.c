/* key_updates.c - one end of TLS that asks for new keys again and again, each of which is to be
 * answered, and never reads.
 *   PORT [FIRST]    a client, which first sends what stands on stdin; of it FIRST bytes, and an
 *                   answer comes, before the rest. Exit status 0: nobody reads what it sends any
 *                   more, and it says how many that were; 3: it could go on
 *   serve CERT KEY  a server, which says its port, and serves one client until that is gone */
#include <arpa/inet.h>
#include <openssl/ssl.h>
#include <signal.h>
#include <stdbool.h>
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

static int flood(SSL *ssl)
{
    while (SSL_key_update(ssl, SSL_KEY_UPDATE_REQUESTED) == 1 && SSL_do_handshake(ssl) == 1)
        n++;
    return 4; /* the other end has ended it */
}

static bool say(SSL *ssl, size_t first)
{
    static char asked[1 << 20], answer[1 << 14];
    size_t bytes = fread(asked, 1, sizeof asked, stdin), rest = bytes - first;
    if (first > bytes || (first > 0 && (SSL_write(ssl, asked, (int)first) != (int)first ||
                                        SSL_read(ssl, answer, sizeof answer) <= 0)))
        return false;
    return rest == 0 || SSL_write(ssl, asked + first, (int)rest) == (int)rest;
}

static int be_client(struct sockaddr_in *address, size_t first)
{
    int fd = socket(AF_INET, SOCK_STREAM, 0), small = 4096;
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
    SSL *ssl = SSL_new(SSL_CTX_new(TLS_client_method()));
    if (connect(fd, (struct sockaddr *)address, sizeof *address) != 0 || !SSL_set_fd(ssl, fd) ||
        SSL_connect(ssl) != 1)
        return 1;
    if (!say(ssl, first))
        return 1;
    signal(SIGALRM, on_tick);
    setitimer(ITIMER_REAL, &(struct itimerval){{0, TICK_US}, {0, TICK_US}}, NULL);
    return flood(ssl);
}

static int be_server(struct sockaddr_in *address, const char *cert, const char *key)
{
    SSL_CTX *context = SSL_CTX_new(TLS_server_method());
    socklen_t bytes = sizeof *address;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    if (SSL_CTX_use_certificate_chain_file(context, cert) != 1 ||
        SSL_CTX_use_PrivateKey_file(context, key, SSL_FILETYPE_PEM) != 1 ||
        bind(listener, (struct sockaddr *)address, bytes) != 0 || listen(listener, 1) != 0 ||
        getsockname(listener, (struct sockaddr *)address, &bytes) != 0)
        return 1;
    printf("%u\n", ntohs(address->sin_port));
    fflush(stdout);
    SSL *ssl = SSL_new(context);
    if (!SSL_set_fd(ssl, accept(listener, NULL, NULL)) || SSL_accept(ssl) != 1)
        return 1;
    return flood(ssl);
}

int main(int argc, char **argv)
{
    bool serves = argc == 4;
    if (!serves && argc != 2 && argc != 3)
        return 2;
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((in_port_t)(serves ? 0 : atoi(argv[1])))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    signal(SIGPIPE, SIG_IGN);
    return serves ? be_server(&address, argv[2], argv[3])
                  : be_client(&address, argc == 3 ? (size_t)atoi(argv[2]) : 0);
}
