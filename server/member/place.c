/* place.c - "etcd://10.0.0.1:2379,10.0.0.2:2379/shop", and who asks there. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "server/member/etcd.h"
#include "proto/tls/secret.h"

#define SCHEME "etcd://"

static int refuse_place(const char *text, const char *why, struct embd__error *e)
{
    return embd__error_set(e, EMBD_INVALID,
                           "'%.200s' %s; etcd://HOST:PORT[,HOST:PORT...]/PREFIX is "
                           "expected",
                           text, why);
}

int etcd_place_read(const char *text, struct etcd_place *out, struct embd__error *e)
{
    *out = (struct etcd_place){0};
    if (strncmp(text, SCHEME, sizeof SCHEME - 1) != 0)
        return refuse_place(text, "does not begin with etcd://", e);
    const char *at = text + sizeof SCHEME - 1, *slash = strchr(at, '/');
    if (slash == NULL || slash[1] == '\0' || strlen(slash) >= sizeof out->prefix)
        return refuse_place(text, "has no prefix, or too long a one", e);
    if (strspn(slash, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./") !=
        strlen(slash))
        return refuse_place(text,
                            "has a prefix with other characters than letters, digits and _-./", e);
    snprintf(out->prefix, sizeof out->prefix, "%s", slash);
    if (out->prefix[strlen(out->prefix) - 1] == '/')
        out->prefix[strlen(out->prefix) - 1] = '\0';
    for (bool more = true; more;) {
        const char *comma = memchr(at, ',', (size_t)(slash - at)), *end = comma ? comma : slash;
        size_t n = (size_t)(end - at);
        if (n < 3 || n > 200 || memchr(at, ':', n) == NULL || end[-1] == ':')
            return refuse_place(text, "has a member without host or port", e);
        if (strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:[]") < n)
            return refuse_place(text, "has a member that is not HOST:PORT", e);
        if (out->n_members == ETCD_MEMBERS_MAX)
            return refuse_place(text, "has too many members", e);
        snprintf(out->members[out->n_members++], sizeof out->members[0], "%.*s", (int)n, at);
        more = comma != NULL;
        at = end + 1;
    }
    return EMBD_OK;
}

/* Splits "USER:PASSWORD"; a line's end does not belong to it. */
static int take_login(const char *text, const char *path, struct etcd_login *out,
                      struct embd__error *e)
{
    size_t n = strcspn(text, "\r\n"), user = strcspn(text, ":");
    if (user == 0 || user >= n || user + 1 == n)
        return embd__error_set(e, EMBD_INVALID, "%.200s: a line USER:PASSWORD is expected", path);
    if (user >= sizeof out->user || n - user - 1 >= sizeof out->password)
        return embd__error_set(e, EMBD_INVALID,
                               "%.200s: user and password have up to %u bytes each", path,
                               ETCD_NAME_BYTES - 1);
    snprintf(out->user, sizeof out->user, "%.*s", (int)user, text);
    snprintf(out->password, sizeof out->password, "%.*s", (int)(n - user - 1), text + user + 1);
    return EMBD_OK;
}

int etcd_login_read(const char *path, struct etcd_login *out, struct embd__error *e)
{
    char text[2 * ETCD_NAME_BYTES + 4];
    size_t n;
    int status = embd__secret_read(path, "password", text, sizeof text, &n, e);
    if (status == EMBD_OK)
        status = take_login(text, path, out, e);
    explicit_bzero(text, sizeof text);
    return status;
}

int etcd_place_check(const struct etcd_place *place, struct embd__error *e)
{
    const char *const files[] = {place->ca, place->cert, place->key};
    struct etcd_login login;
    for (size_t i = 0; i < sizeof files / sizeof *files; i++)
        if (files[i][0] != '\0' && strcmp(files[i], "system") != 0 && access(files[i], R_OK) != 0)
            return embd__error_set(e, EMBD_INVALID, "%.200s: cannot be read: %s", files[i],
                                   strerror(errno));
    if (place->login[0] != '\0')
        etcd_login_read(place->login, &login, e);
    explicit_bzero(&login, sizeof login);
    return e->status;
}
