/* http_request.c - see http_request.h. Lines end with CR LF, and as RFC 9112 allows, with LF. */
#include "server/net/http/http_request.h"

#include <string.h>
#include <strings.h>

struct line {
    const char *p;
    size_t n;
};

/* Takes the next whole line off `rest`; false: it has no end yet. */
static bool take_line(struct line *rest, struct line *out)
{
    const char *end = memchr(rest->p, '\n', rest->n);
    if (end == NULL)
        return false;
    size_t used = (size_t)(end - rest->p) + 1;
    *out = (struct line){rest->p, used - 1};
    if (out->n > 0 && out->p[out->n - 1] == '\r')
        out->n--;
    rest->p += used;
    rest->n -= used;
    return true;
}

/* Takes what stands before the next space off `line`. */
static bool take_word(struct line *line, struct line *out)
{
    const char *end = memchr(line->p, ' ', line->n);
    if (end == NULL)
        return false;
    *out = (struct line){line->p, (size_t)(end - line->p)};
    line->p += out->n + 1;
    line->n -= out->n + 1;
    return true;
}

static bool is(struct line word, const char *text)
{
    return word.n == strlen(text) && memcmp(word.p, text, word.n) == 0;
}

static bool is_printable(struct line word)
{
    for (size_t i = 0; i < word.n; i++)
        if (word.p[i] <= ' ' || word.p[i] > '~')
            return false;
    return true;
}

static int read_target(struct line target, struct http_request *out)
{
    if (target.n == 0 || target.p[0] != '/' || !is_printable(target))
        return 400;
    if (target.n > HTTP_TARGET_BYTES)
        return 414;
    memcpy(out->path, target.p, target.n);
    out->path[target.n] = '\0';
    char *mark = strchr(out->path, '?');
    out->query = mark != NULL ? mark + 1 : out->path + target.n;
    if (mark != NULL)
        *mark = '\0';
    return HTTP_OK;
}

static int read_request_line(struct line line, struct http_request *out)
{
    struct line method, target;
    if (!take_word(&line, &method) || method.n == 0 || !is_printable(method) ||
        !take_word(&line, &target))
        return 400;
    if (line.n != 8 || memcmp(line.p, "HTTP/", 5) != 0)
        return 400;
    if (!is(line, "HTTP/1.0") && !is(line, "HTTP/1.1"))
        return 505;
    if (!is(method, "GET") && !is(method, "HEAD"))
        return 405;
    out->is_head = is(method, "HEAD");
    out->has_strange_host = false;
    return read_target(target, out);
}

static bool names(struct line field, const char *name)
{
    size_t n = strlen(name);
    return field.n > n && field.p[n] == ':' && strncasecmp(field.p, name, n) == 0;
}

/* A field's value without the blanks around it. */
static struct line value_of(struct line field)
{
    const char *colon = memchr(field.p, ':', field.n);
    struct line value = {colon + 1, field.n - (size_t)(colon + 1 - field.p)};
    while (value.n > 0 && (value.p[0] == ' ' || value.p[0] == '\t'))
        value = (struct line){value.p + 1, value.n - 1};
    while (value.n > 0 && (value.p[value.n - 1] == ' ' || value.p[value.n - 1] == '\t'))
        value.n--;
    return value;
}

static bool has_control(struct line field)
{
    for (size_t i = 0; i < field.n; i++)
        if ((unsigned char)field.p[i] < ' ' && field.p[i] != '\t')
            return true;
    return false;
}

/* Neither localhost nor a numeric address, which only a name server's word can turn into another
 * host. */
static bool is_strange_host(struct line host)
{
    const char *colon = memrchr(host.p, ':', host.n);
    if (host.n > 0 && host.p[0] == '[')
        return false;
    if (colon != NULL)
        host.n = (size_t)(colon - host.p);
    if (host.n == 9 && strncasecmp(host.p, "localhost", 9) == 0)
        return false;
    for (size_t i = 0; i < host.n; i++)
        if ((host.p[i] < '0' || host.p[i] > '9') && host.p[i] != '.')
            return true;
    return false;
}

/* Only Host is used; a body, which would be taken for the next request, is refused. */
static int check_field(struct line field, struct http_request *out)
{
    if (has_control(field))
        return 400;
    const char *colon = memchr(field.p, ':', field.n);
    if (colon == NULL || colon == field.p ||
        !is_printable((struct line){field.p, (size_t)(colon - field.p)}))
        return 400;
    if (names(field, "transfer-encoding"))
        return 400;
    if (names(field, "content-length") && !is(value_of(field), "0"))
        return 400;
    if (names(field, "host"))
        out->has_strange_host = is_strange_host(value_of(field));
    return HTTP_OK;
}

/* Whether the first bytes can become a request at all: a TLS or msgpack peer is refused at once. */
static bool begins_well(const char *bytes, size_t n)
{
    for (size_t i = 0; i < n && i < 8; i++) {
        if (bytes[i] == ' ' && i > 0)
            return true;
        if (bytes[i] < 'A' || bytes[i] > 'Z')
            return false;
    }
    return true;
}

int http_request_read(const char *bytes, size_t n, struct http_request *out)
{
    struct line rest = {bytes, n < HTTP_HEAD_BYTES ? n : HTTP_HEAD_BYTES}, line;
    if (!begins_well(rest.p, rest.n))
        return 400;
    for (bool is_first = true; take_line(&rest, &line); is_first = false) {
        if (!is_first && line.n == 0)
            return HTTP_OK;
        int status = is_first ? read_request_line(line, out) : check_field(line, out);
        if (status != HTTP_OK)
            return status;
    }
    return n < HTTP_HEAD_BYTES ? HTTP_MORE : 431;
}

bool http_request_has(const struct http_request *request, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = request->query; *p != '\0'; p += *p == '&') {
        size_t word = strcspn(p, "&");
        if (strncmp(p, name, n) == 0 && (word == n || (word > n && p[n] == '=')))
            return true;
        p += word;
    }
    return false;
}
