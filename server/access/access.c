/* access.c - see access.h. Each line is read word by word. The first mistake ends reading and is
 * reported with its line: a file is accepted whole or not at all. */
#include "server/access/access.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "server/access/access_inside.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#define FILE_BYTES_MAX (4u << 20)

const struct grant grant_of_owner = {.name = "owner",
                                     .role = ROLE_ADMIN,
                                     .n_prefixes = 1,
                                     .prefixes = {""},
                                     .most_tables = GRANT_UNLIMITED,
                                     .most_row_bytes = GRANT_UNLIMITED,
                                     .most_snapshots = GRANT_UNLIMITED,
                                     .most_snapshot_bytes = GRANT_UNLIMITED};

static const char *const role_names[] = {"none", "reader", "trainer", "admin", "server"};

const char *role_name(enum role role)
{
    return role_names[role];
}

bool grant_covers(const struct grant *grant, const char *table)
{
    for (uint32_t i = 0; i < grant->n_prefixes; i++)
        if (strncmp(table, grant->prefixes[i], strlen(grant->prefixes[i])) == 0)
            return true;
    return false;
}

/* ---- one line ---- */

struct line {
    const char *at, *end, *path;
    uint32_t number;
    struct embd__error *e;
};

static int __attribute__((format(printf, 2, 3)))
complain(struct line *line, const char *format, ...)
{
    char text[LIMIT_ERROR_TEXT / 2];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return embd__error_set(line->e, EMBD_INVALID, "%.150s:%u: %s", line->path, line->number, text);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The next word, terminated in out; its length, 0 at the end. */
static size_t word(struct line *line, char *out, size_t out_bytes)
{
    size_t n = 0;
    while (line->at < line->end && is_space(*line->at))
        line->at++;
    while (line->at < line->end && !is_space(*line->at)) {
        if (n + 1 < out_bytes)
            out[n] = *line->at;
        n++;
        line->at++;
    }
    out[n + 1 < out_bytes ? n : out_bytes - 1] = '\0';
    return n;
}

static bool is_name(const char *text, size_t max)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789_-";
    size_t n = strlen(text);
    return n >= 1 && n <= max && strspn(text, all) == n && text[0] != '-' && text[0] != '_';
}

static int read_name(struct line *line, struct grant *out)
{
    char text[GRANT_NAME_MAX + 2];
    word(line, text, sizeof text);
    if (!is_name(text, GRANT_NAME_MAX))
        return complain(line, "invalid name '%.40s'; expected [a-z0-9][a-z0-9_-]{0,62}", text);
    strcpy(out->name, text);
    out->principal = XXH3_64bits(text, strlen(text));
    out->principal += out->principal == 0;
    return EMBD_OK;
}

static int read_role(struct line *line, struct grant *out)
{
    char text[24];
    word(line, text, sizeof text);
    for (int role = ROLE_READER; role <= ROLE_SERVER; role++)
        if (strcmp(text, role_names[role]) == 0) {
            out->role = (enum role)role;
            return EMBD_OK;
        }
    return complain(line, "unknown role '%.23s'; expected reader, trainer, admin or server", text);
}

static int add_prefix(struct line *line, struct grant *out, const char *text)
{
    if (out->n_prefixes == GRANT_PREFIXES)
        return complain(line, "too many table prefixes; the limit is %u", GRANT_PREFIXES);
    if (strcmp(text, "*") == 0)
        text = "";
    else if (!is_name(text, EMBD_NAME_MAX))
        return complain(line, "invalid table prefix '%.63s'; use * for all tables", text);
    else if (out->role >= ROLE_ADMIN)
        return complain(line, "role %s needs all tables; expected * in place of '%s'",
                        role_name(out->role), text);
    strcpy(out->prefixes[out->n_prefixes++], text);
    return EMBD_OK;
}

static int read_prefixes(struct line *line, struct grant *out)
{
    char text[GRANT_PREFIXES * (EMBD_NAME_MAX + 1) + 1], *rest = text;
    if (word(line, text, sizeof text) >= sizeof text)
        return complain(line, "the table prefixes are longer than %zu bytes", sizeof text - 1);
    int status = EMBD_OK;
    while (status == EMBD_OK && rest != NULL)
        status = add_prefix(line, out, strsep(&rest, ","));
    return status;
}

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

static int read_hash(struct line *line, struct grant *out)
{
    static const char scheme[] = "sha256:";
    char text[80];
    size_t n = word(line, text, sizeof text), skip = sizeof scheme - 1;
    bool is_hash = n == skip + 2 * sizeof out->hash && strncmp(text, scheme, skip) == 0;
    for (size_t i = 0; is_hash && i < sizeof out->hash; i++) {
        int high = digit(text[skip + 2 * i]), low = digit(text[skip + 2 * i + 1]);
        is_hash = high >= 0 && low >= 0;
        out->hash[i] = (uint8_t)(is_hash ? high << 4 | low : 0);
    }
    /* The text is not shown: it may be a token that somebody put here. */
    return is_hash
               ? EMBD_OK
               : complain(line,
                          "invalid hash; expected sha256: and 64 hexadecimal digits (0-9, a-f)");
}

/* A number, perhaps of K, M, G or T; false: it is none, or above max. */
static bool read_number(const char *text, uint64_t max, uint64_t *out)
{
    static const char units[] = "KMGT";
    char *end;
    errno = 0;
    uint64_t value = strtoull(text, &end, 10);
    const char *unit = *end != '\0' ? strchr(units, *end) : NULL;
    uint32_t shift = unit != NULL ? 10 * (uint32_t)(unit - units + 1) : 0;
    *out = value << shift;
    return digit(text[0]) >= 0 && errno == 0 && end[unit != NULL] == '\0' && value <= max >> shift;
}

static const struct limit {
    const char *word; /* before its value */
    size_t at;        /* in struct grant */
    uint64_t max;     /* UINT64_MAX - 1: it is of bytes */
} limits[] = {
    {"tables=", offsetof(struct grant, most_tables), LIMIT_TABLES},
    {"row_bytes=", offsetof(struct grant, most_row_bytes), UINT64_MAX - 1},
    {"snapshots=", offsetof(struct grant, most_snapshots), UINT32_MAX},
    {"snapshot_bytes=", offsetof(struct grant, most_snapshot_bytes), UINT64_MAX - 1},
};
#define N_LIMITS (sizeof limits / sizeof *limits)

static uint64_t *value_of(const struct limit *limit, struct grant *grant)
{
    return (uint64_t *)(void *)((char *)grant + limit->at);
}

static int read_value(struct line *line, const char *text, const struct limit *limit, uint64_t *out)
{
    bool is_bytes = limit->max == UINT64_MAX - 1;
    if (*out != GRANT_UNLIMITED)
        return complain(line, "'%.40s' repeats a limit", text);
    if (read_number(text + strlen(limit->word), limit->max, out))
        return EMBD_OK;
    return is_bytes
               ? complain(line, "invalid '%.40s'; expected a number of bytes, or of K, M, G or T",
                          text)
               : complain(line, "invalid '%.40s'; expected %s0 to %llu", text, limit->word,
                          (unsigned long long)limit->max);
}

static int read_limit(struct line *line, const char *text, struct grant *out)
{
    uint32_t i = 0;
    while (i < N_LIMITS && strncmp(text, limits[i].word, strlen(limits[i].word)) != 0)
        i++;
    if (i == N_LIMITS)
        return complain(line, "unexpected text after the hash; expected tables=N, row_bytes=N, "
                              "snapshots=N or snapshot_bytes=N");
    if (out->role != ROLE_TRAINER)
        return complain(line, "'%.40s' is for the role trainer; this token has the role %s", text,
                        role_name(out->role));
    return read_value(line, text, &limits[i], value_of(&limits[i], out));
}

static void set_default(uint64_t *limit, uint64_t value)
{
    if (*limit == GRANT_UNLIMITED)
        *limit = value;
}

/* The fields behind the hash. */
static int read_limits(struct line *line, struct grant *out)
{
    char text[48];
    int status = EMBD_OK;
    for (uint32_t i = 0; i < N_LIMITS; i++)
        *value_of(&limits[i], out) = GRANT_UNLIMITED;
    while (status == EMBD_OK && word(line, text, sizeof text) > 0)
        status = read_limit(line, text, out);
    if (out->role != ROLE_TRAINER || grant_covers(out, ""))
        return status;
    set_default(&out->most_tables, TOKEN_TABLES);
    set_default(&out->most_snapshots, TOKEN_SNAPSHOTS);
    return status;
}

static int read_grant(struct line *line, struct grant *out)
{
    int status = read_name(line, out);
    if (status == EMBD_OK)
        status = read_role(line, out);
    if (status == EMBD_OK)
        status = read_prefixes(line, out);
    if (status == EMBD_OK)
        status = read_hash(line, out);
    return status == EMBD_OK ? read_limits(line, out) : status;
}

/* ---- all lines ---- */

static struct grant *add(struct access *access, struct embd__error *e)
{
    if (access->n == access->capacity) {
        uint32_t capacity = access->capacity == 0 ? 8 : 2 * access->capacity;
        struct grant *grants = realloc(access->grants, capacity * sizeof *grants);
        if (grants == NULL) {
            embd__error_set(e, EMBD_NO_MEMORY, "no memory for %u tokens", capacity);
            return NULL;
        }
        access->grants = grants;
        access->capacity = capacity;
    }
    struct grant *grant = &access->grants[access->n];
    memset(grant, 0, sizeof *grant); /* padding too: grants are compared by bytes */
    return grant;
}

static int check_new(struct line *line, const struct access *access, const struct grant *grant)
{
    for (uint32_t i = 0; i < access->n; i++) {
        if (strcmp(access->grants[i].name, grant->name) == 0)
            return complain(line, "duplicate name '%s'", grant->name);
        if (memcmp(access->grants[i].hash, grant->hash, sizeof grant->hash) == 0)
            return complain(line, "'%s' and '%s' have the same token", access->grants[i].name,
                            grant->name);
    }
    return EMBD_OK;
}

static int take_line(struct line *line, struct access *access)
{
    while (line->at < line->end && is_space(*line->at))
        line->at++;
    if (line->at == line->end || *line->at == '#')
        return EMBD_OK;
    if (access->n == ACCESS_GRANTS)
        return complain(line, "too many tokens; the limit is %u", ACCESS_GRANTS);
    struct grant *grant = add(access, line->e);
    if (grant == NULL || read_grant(line, grant) != EMBD_OK ||
        check_new(line, access, grant) != EMBD_OK)
        return line->e->status;
    access->n++;
    return EMBD_OK;
}

int access_read(const char *text, size_t n, const char *path, struct access **out,
                struct embd__error *e)
{
    *out = NULL;
    struct access *access = calloc(1, sizeof *access);
    if (access == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for tokens");
    atomic_init(&access->n_owners, 1);
    struct line line = {.at = text, .path = path, .e = e};
    const char *end = text + n;
    int status = EMBD_OK;
    while (line.at < end && status == EMBD_OK) {
        const char *next = memchr(line.at, '\n', (size_t)(end - line.at));
        line.end = next != NULL ? next : end;
        line.number++;
        status = take_line(&line, access);
        line.at = line.end + (next != NULL);
    }
    if (status != EMBD_OK) {
        access_drop(access);
        return status;
    }
    *out = access;
    return EMBD_OK;
}

/* ---- the file ---- */

static int check_file(int fd, const char *path, size_t *bytes_out, struct embd__error *e)
{
    struct stat found;
    if (fstat(fd, &found) != 0)
        return embd__error_set(e, EMBD_IO, "%.200s: %s", path, strerror(errno));
    if (!S_ISREG(found.st_mode))
        return embd__error_set(e, EMBD_INVALID, "%.200s: is not a file", path);
    if ((found.st_mode & 022) != 0)
        return embd__error_set(e, EMBD_INVALID, "%.200s: has mode %04o; others may write there",
                               path, (unsigned)(found.st_mode & 07777));
    if (found.st_size > (off_t)FILE_BYTES_MAX)
        return embd__error_set(e, EMBD_TOO_LARGE, "%.200s: has %lld bytes, the limit is %u", path,
                               (long long)found.st_size, FILE_BYTES_MAX);
    *bytes_out = (size_t)found.st_size;
    return EMBD_OK;
}

static int read_all(int fd, const char *path, char *text, size_t bytes, size_t *got_out,
                    struct embd__error *e)
{
    *got_out = 0;
    while (*got_out < bytes) {
        ssize_t got = read(fd, text + *got_out, bytes - *got_out);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return embd__error_set(e, EMBD_IO, "%.200s: %s", path, strerror(errno));
        if (got == 0)
            break;
        *got_out += (size_t)got;
    }
    return EMBD_OK;
}

static int read_file(int fd, const char *path, struct access **out, struct embd__error *e)
{
    size_t bytes = 0, got;
    if (check_file(fd, path, &bytes, e) != EMBD_OK)
        return e->status;
    char *text = malloc(bytes + 1);
    if (text == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for tokens");
    int status = read_all(fd, path, text, bytes, &got, e);
    if (status == EMBD_OK)
        status = access_read(text, got, path, out, e);
    free(text);
    return status;
}

int access_open(const char *path, struct access **out, struct embd__error *e)
{
    *out = NULL;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return embd__error_set(e, EMBD_INVALID, "%.200s: cannot open the tokens: %s", path,
                               strerror(errno));
    int status = read_file(fd, path, out, e);
    close(fd);
    return status;
}

struct access *access_share(struct access *access)
{
    atomic_fetch_add(&access->n_owners, 1);
    return access;
}

void access_drop(struct access *access)
{
    if (access == NULL || atomic_fetch_sub(&access->n_owners, 1) != 1)
        return;
    free(access->grants);
    free(access);
}
