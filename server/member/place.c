/* place.c - "etcd://10.0.0.1:2379,10.0.0.2:2379/shop". */
#include <stdio.h>
#include <string.h>

#include "etcd.h"

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
        return refuse_place(text, "has a prefix of other signs than letters, digits and _-./", e);
    snprintf(out->prefix, sizeof out->prefix, "%s", slash);
    if (out->prefix[strlen(out->prefix) - 1] == '/')
        out->prefix[strlen(out->prefix) - 1] = '\0';
    for (bool more = true; more;) {
        const char *comma = memchr(at, ',', (size_t)(slash - at)), *end = comma ? comma : slash;
        size_t n = (size_t)(end - at);
        if (n < 3 || n > 200 || memchr(at, ':', n) == NULL || end[-1] == ':')
            return refuse_place(text, "has a member without host or port", e);
        if (strspn(at, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.:[]") < n)
            return refuse_place(text, "has a member that is no HOST:PORT", e);
        if (out->n_members == ETCD_MEMBERS_MAX)
            return refuse_place(text, "has too many members", e);
        snprintf(out->members[out->n_members++], sizeof out->members[0], "http://%.*s", (int)n, at);
        more = comma != NULL;
        at = end + 1;
    }
    return EMBD_OK;
}
