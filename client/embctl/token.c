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
#define TABLES_MAX   4096                       /* of a shard */
#define TEXT_BYTES   (5 + 2 * RANDOM_BYTES + 1) /* "embd_", hexadecimal digits, NUL */

struct token_arguments {
    const char *name, *role, *tables, *file;
    const char *most_tables, *row_bytes, *snapshots, *snapshot_bytes; /* NULL: no such limit */
};

enum { OPTION_MOST_TABLES = 256, OPTION_ROW_BYTES, OPTION_SNAPSHOTS, OPTION_SNAPSHOT_BYTES };

static const struct argp_option options[] = {
    {"tables", 't', "PREFIX[,...]", 0,
     "Tables whose names begin with one of these (default: *, all)", 0},
    {"max-tables", OPTION_MOST_TABLES, "N", 0,
     "Tables that may exist under these prefixes (default: 64; with * no limit)", 0},
    {"row-bytes", OPTION_ROW_BYTES, "BYTES", 0,
     "Memory that rows of these tables may take on each shard: a number, or with K, M, G, T "
     "(default: no limit)",
     0},
    {"max-snapshots", OPTION_SNAPSHOTS, "N", 0,
     "Snapshots that jobs under these prefixes may have in each data directory (default: 32; with "
     "* no limit)",
     0},
    {"snapshot-bytes", OPTION_SNAPSHOT_BYTES, "BYTES", 0,
     "Bytes that these may have there, with their blobs (default: no limit)", 0},
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
        if (strcmp(arg, "reader") && strcmp(arg, "trainer") && strcmp(arg, "admin") &&
            strcmp(arg, "server"))
            argp_error(state, "unknown role '%s'; expected reader, trainer, admin or server", arg);
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
    if (!strcmp(a->role, "admin") || !strcmp(a->role, "server"))
        argp_error(state, "a token with the role %s is for all tables; remove --tables", a->role);
    if (snprintf(text, sizeof text, "%s", a->tables) >= (int)sizeof text)
        argp_error(state, "--tables has more than %zu bytes", sizeof text - 1);
    for (char *prefix; (prefix = strsep(&rest, ",")) != NULL;)
        if (!is_word(prefix, EMBD_NAME_MAX))
            argp_error(state, "--tables: no table's name begins with '%s'", prefix);
}

/* A number of at most 18 digits, perhaps with a unit. */
static bool is_size(const char *text, const char *units)
{
    size_t n = strspn(text, "0123456789");
    bool has_unit = text[n] != '\0' && strchr(units, text[n]) != NULL;
    return n >= 1 && n <= 18 && text[n + has_unit] == '\0';
}

static void check_bytes(const char *option, const char *text, struct argp_state *state)
{
    if (text && !is_size(text, "KMGT"))
        argp_error(state, "%s: expected a number of bytes, or of K, M, G or T, not '%s'", option,
                   text);
}

static void check_limits(const struct token_arguments *a, struct argp_state *state)
{
    bool is_limited = a->most_tables || a->row_bytes || a->snapshots || a->snapshot_bytes;
    if (is_limited && strcmp(a->role, "trainer") != 0)
        argp_error(state, "limits are for the role trainer");
    if (a->most_tables && (!is_size(a->most_tables, "") || atoll(a->most_tables) > TABLES_MAX))
        argp_error(state, "--max-tables: expected 0 to %d, not '%s'", TABLES_MAX, a->most_tables);
    if (a->snapshots && (!is_size(a->snapshots, "") || atoll(a->snapshots) > UINT32_MAX))
        argp_error(state, "--max-snapshots: expected 0 to %u, not '%s'", UINT32_MAX, a->snapshots);
    check_bytes("--row-bytes", a->row_bytes, state);
    check_bytes("--snapshot-bytes", a->snapshot_bytes, state);
}

static int parse(int key, char *arg, struct argp_state *state)
{
    struct token_arguments *a = state->input;
    switch (key) {
    case OPTION_MOST_TABLES:
        a->most_tables = arg;
        return 0;
    case OPTION_ROW_BYTES:
        a->row_bytes = arg;
        return 0;
    case OPTION_SNAPSHOTS:
        a->snapshots = arg;
        return 0;
    case OPTION_SNAPSHOT_BYTES:
        a->snapshot_bytes = arg;
        return 0;
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
            argp_error(state, "name the client and its role: reader, trainer, admin or server");
        check_tables(a, state);
        check_limits(a, state);
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

static char *add_limit(char *out, char *end, const char *word, const char *value)
{
    return value ? out + snprintf(out, (size_t)(end - out), " %s=%s", word, value) : out;
}

/* Words of the list's line, each with a space before it. */
static void write_limits(const struct token_arguments *a, char *out, size_t out_bytes)
{
    char *end = out + out_bytes;
    *out = '\0';
    out = add_limit(out, end, "tables", a->most_tables);
    out = add_limit(out, end, "row_bytes", a->row_bytes);
    out = add_limit(out, end, "snapshots", a->snapshots);
    add_limit(out, end, "snapshot_bytes", a->snapshot_bytes);
}

static void print_grant(const struct token_arguments *a, const char *path, const char *hash)
{
    static const struct column columns[] = {{"name", CELL_TEXT},   {"role", CELL_TEXT},
                                            {"tables", CELL_TEXT}, {"hash", CELL_TEXT},
                                            {"file", CELL_TEXT},   {"limits", CELL_TEXT}};
    char limits[160]; /* of four numbers, each checked */
    write_limits(a, limits, sizeof limits);
    const char *const cells[] = {a->name, a->role, a->tables, hash, path, limits + 1};
    struct listing l;
    if (!globals.json) {
        printf("%s %s %s %s%s\n", a->name, a->role, a->tables, hash, limits);
        return;
    }
    size_t n = sizeof columns / sizeof *columns - (limits[0] == '\0');
    listing_init(&l, "tokens", columns, n);
    listing_row(&l);
    for (size_t i = 0; i < n; i++)
        listing_text(&l, i, cells[i]);
    listing_print(&l);
    listing_fini(&l);
}

int command_token(int argc, char **argv)
{
    static const struct argp argp = {
        .options = options,
        .parser = parse,
        .args_doc = "NAME reader|trainer|admin|server",
        .doc =
            "Makes a token: 32 random bytes. It goes to a new file of mode 0600, for its holder; "
            "the line for the servers' list, with the token's hash, is printed.\v"
            "A reader pulls and looks, a trainer also pushes, creates tables and makes snapshots "
            "of "
            "its jobs, an admin may do everything. The token of a server is for peer_token: "
            "servers "
            "show it to each other. Limits are counted on each shard, over all tables under the "
            "token's "
            "prefixes, whoever created them; embctl stats --tokens shows them. Servers read the "
            "list (--tokens FILE) at start and again when it changes; "
            "clients "
            "read their token from $EMBD_TOKEN_FILE. Asks no server.\n"
            "\n"
            "Examples:\n"
            "  embctl token ranker reader --tables ads_,user_ >>/etc/embd/tokens\n"
            "  embctl token nightly trainer -f /run/secrets/embd >>/etc/embd/tokens\n"
            "  embctl token ads trainer -t ads_ --max-tables 8 --row-bytes 64G >>/etc/embd/tokens\n"
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
