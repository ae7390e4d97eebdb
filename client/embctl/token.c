/* token.c - embctl token: makes a token. Its holder gets the token, in a file; the servers get a
 * line for their list, which has the token's hash only. The list's format is that of
 * server/access/access.h. */
#include <errno.h>
#include <fcntl.h>
#include <openssl/sha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "client/embctl/embctl.h"
#include "client/embctl/listing.h"

#define RANDOM_BYTES 32
#define TEXT_BYTES   (5 + 2 * RANDOM_BYTES + 1) /* "embd_", hexadecimal digits, NUL */

struct token_arguments {
    const char *name, *role, *tables, *file;
};

static const struct argp_option options[] = {
    {"tables", 't', "PREFIX[,...]", 0,
     "Tables whose names begin with one of these (default: *, all)", 0},
    {"file", 'f', "FILE", 0, "New file for the token (default: NAME.token)", 0},
    {0},
};

static bool is_word(const char *text, size_t max)
{
    size_t n = strlen(text);
    return n >= 1 && n <= max && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789_-") == n &&
           text[0] != '-' && text[0] != '_';
}

static void take_argument(struct token_arguments *a, const char *arg, struct argp_state *state)
{
    if (!a->name) {
        if (!is_word(arg, EMBD_NAME_MAX))
            argp_error(state, "invalid name '%s'; expected [a-z0-9][a-z0-9_-]{0,62}", arg);
        a->name = arg;
    } else if (!a->role) {
        if (strcmp(arg, "reader") && strcmp(arg, "trainer") && strcmp(arg, "admin"))
            argp_error(state, "unknown role '%s'; expected reader, trainer or admin", arg);
        a->role = arg;
    } else {
        argp_error(state, "one argument too many: '%s'", arg);
    }
}

static void check_tables(const struct token_arguments *a, struct argp_state *state)
{
    char text[1024], *rest = text;
    if (!strcmp(a->tables, "*"))
        return;
    if (!strcmp(a->role, "admin"))
        argp_error(state, "an admin's token is for all tables; remove --tables");
    if (snprintf(text, sizeof text, "%s", a->tables) >= (int)sizeof text)
        argp_error(state, "--tables has more than %zu bytes", sizeof text - 1);
    for (char *prefix; (prefix = strsep(&rest, ",")) != NULL;)
        if (!is_word(prefix, EMBD_NAME_MAX))
            argp_error(state, "--tables: no table's name begins with '%s'", prefix);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    struct token_arguments *a = state->input;
    switch (key) {
    case 't':
        a->tables = arg;
        return 0;
    case 'f':
        a->file = arg;
        return 0;
    case ARGP_KEY_ARG:
        take_argument(a, arg, state);
        return 0;
    case ARGP_KEY_END:
        if (!a->role)
            argp_error(state, "name the client and its role: reader, trainer or admin");
        check_tables(a, state);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static void print_hex(char *out, const unsigned char *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sprintf(out + 2 * i, "%02x", bytes[i]);
}

static int complain(const char *path)
{
    fprintf(stderr, "embctl: %s: cannot write the token: %s\n", path, strerror(errno));
    return EXIT_FAILED;
}

/* A new file that only its owner can read. */
static int write_token(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0)
        return complain(path);
    FILE *out = fdopen(fd, "w");
    int failed = !out || fprintf(out, "%s\n", text) < 0;
    if (out ? fclose(out) : close(fd))
        failed = 1;
    if (!failed)
        return EXIT_DONE;
    complain(path);
    unlink(path);
    return EXIT_FAILED;
}

static void print_grant(const struct token_arguments *a, const char *path, const char *hash)
{
    static const struct column columns[] = {{"name", CELL_TEXT},
                                            {"role", CELL_TEXT},
                                            {"tables", CELL_TEXT},
                                            {"hash", CELL_TEXT},
                                            {"file", CELL_TEXT}};
    const char *const cells[] = {a->name, a->role, a->tables, hash, path};
    struct listing l;
    if (!globals.json) {
        printf("%s %s %s %s\n", a->name, a->role, a->tables, hash);
        return;
    }
    listing_init(&l, "tokens", columns, sizeof columns / sizeof *columns);
    listing_row(&l);
    for (size_t i = 0; i < sizeof cells / sizeof *cells; i++)
        listing_text(&l, i, cells[i]);
    listing_print(&l);
    listing_fini(&l);
}

int command_token(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "NAME reader|trainer|admin",
        .doc =
            "Makes a token: 32 random bytes. It goes to a new file of mode 0600, for its holder; "
            "the line for the servers' list, with the token's hash, is printed.\v"
            "A reader pulls and looks, a trainer also pushes and creates tables, an admin may do "
            "everything. Servers read the list (--tokens FILE) at start and again when it changes; "
            "clients "
            "read their token from $EMBD_TOKEN_FILE. Asks no server.\n"
            "\n"
            "Examples:\n"
            "  embctl token ranker reader --tables ads_,user_ >>/etc/embd/tokens\n"
            "  embctl token nightly trainer -f /run/secrets/embd >>/etc/embd/tokens\n"
            "  systemctl reload embd"};
    struct token_arguments a = {.tables = "*"};
    unsigned char random[RANDOM_BYTES], digest[SHA256_DIGEST_LENGTH];
    char text[TEXT_BYTES] = "embd_", path[EMBD_NAME_MAX + sizeof ".token"];
    char hash[sizeof "sha256:" + 2 * SHA256_DIGEST_LENGTH] = "sha256:";
    parse_command(&argp, argc, argv, &a);
    if (getrandom(random, sizeof random, 0) != (ssize_t)sizeof random) {
        fprintf(stderr, "embctl: cannot get random bytes from the system: %s\n", strerror(errno));
        return EXIT_FAILED;
    }
    print_hex(text + strlen(text), random, sizeof random);
    SHA256((const unsigned char *)text, strlen(text), digest);
    print_hex(hash + strlen(hash), digest, sizeof digest);
    snprintf(path, sizeof path, "%s.token", a.name);
    int code = write_token(a.file ? a.file : path, text);
    if (code == EXIT_DONE)
        print_grant(&a, a.file ? a.file : path, hash);
    return code;
}
