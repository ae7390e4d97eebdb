/* resolve.c - addresses ("127.0.0.1:7700", "shards.example:7700", "[::1]:7700") and names (dns://).
 *
 * The happy path of a name: the query goes to a thread of libuv's pool, because the system's
 * resolver blocks; the loop runs until its answer arrives, or until the deadline. After that the
 * thread ends by itself, and its result is dropped.
 *
 * Answers of a name server are not trusted: records that are cut off, have a wrong length or an
 * impossible host name end the reading. */
#include "client/io/resolve.h"

#include <arpa/nameser.h>
#include <errno.h>
#include <netdb.h>
#include <resolv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#define SCHEME       "dns://"
#define SCHEME_BYTES (sizeof SCHEME - 1)
#define ANSWER_BYTES 65536
#define SRV_BYTES    6 /* priority, weight and port, before the target */

/* ---- addresses ---- */

static int refuse_address(struct embd__error *e, const char *text, size_t bytes, const char *why)
{
    return embd__error_set(e, EMBD_INVALID, "address \"%.*s\" %s; host:port is expected",
                           (int)(bytes > 300 ? 300 : bytes), text, why);
}

static bool port_is_valid(const char *port, size_t bytes)
{
    uint32_t value = 0;
    if (bytes == 0 || bytes > 5)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (port[i] < '0' || port[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(port[i] - '0');
    }
    return value >= 1 && value <= 65535;
}

int embd__address_read(const char *text, size_t bytes, struct address *out, struct embd__error *e)
{
    const char *colon = memrchr(text, ':', bytes);
    if (colon == NULL)
        return refuse_address(e, text, bytes, "has no port");
    const char *host = text, *port = colon + 1;
    size_t host_bytes = (size_t)(colon - text), port_bytes = bytes - host_bytes - 1;
    if (!port_is_valid(port, port_bytes))
        return refuse_address(e, text, bytes, "has a port that is not in 1..65535");
    if (host_bytes >= 2 && host[0] == '[' && host[host_bytes - 1] == ']') {
        host++;
        host_bytes -= 2;
    } else if (memchr(host, ':', host_bytes) != NULL) {
        return refuse_address(e, text, bytes, "has an IPv6 host without brackets");
    }
    if (host_bytes == 0 || host_bytes > ADDRESS_HOST_MAX)
        return refuse_address(e, text, bytes, "has a host that is empty or too long");
    memcpy(out->host, host, host_bytes);
    out->host[host_bytes] = '\0';
    memcpy(out->port, port, port_bytes);
    out->port[port_bytes] = '\0';
    return EMBD_OK;
}

const char *embd__address_next(const char *list, const char **item_out, size_t *bytes_out)
{
    const char *comma = strchr(list, ',');
    *item_out = list;
    *bytes_out = comma == NULL ? strlen(list) : (size_t)(comma - list);
    return comma == NULL ? NULL : comma + 1;
}

/* ---- names ---- */

bool embd__is_dns(const char *item, size_t bytes)
{
    return bytes >= SCHEME_BYTES && memcmp(item, SCHEME, SCHEME_BYTES) == 0;
}

int embd__dns_read(const char *item, size_t bytes, struct dns_name *out, struct embd__error *e)
{
    struct address address;
    const char *name = item + SCHEME_BYTES;
    size_t n = bytes - SCHEME_BYTES;
    bool is_service = n > 0 && name[0] == '_';
    if (is_service && n <= ADDRESS_HOST_MAX && memchr(name, ':', n) == NULL) {
        *out = (struct dns_name){0};
        memcpy(out->host, name, n);
        return EMBD_OK;
    }
    if (is_service)
        return embd__error_set(
            e, EMBD_INVALID,
            "\"%.*s\": SRV records of _SERVICE._PROTO.NAME contain the port; remove it",
            (int)(bytes > 300 ? 300 : bytes), item);
    if (embd__address_read(name, n, &address, e) != EMBD_OK)
        return e->status;
    memcpy(out->host, address.host, sizeof out->host);
    memcpy(out->port, address.port, sizeof out->port);
    return EMBD_OK;
}

/* ---- addresses of a name ---- */

static void add(struct resolved *r, const char *host, const char *port)
{
    const char *format = strchr(host, ':') != NULL ? "[%s]:%s" : "%s:%s";
    if (r->n < RESOLVED_MAX)
        snprintf(r->addresses[r->n++], ADDRESS_TEXT_BYTES, format, host, port);
}

static int find_addresses(const struct dns_name *name, struct resolved *out, struct embd__error *e)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    struct addrinfo *found = NULL;
    int failed = getaddrinfo(name->host, name->port, &hints, &found);
    if (failed != 0)
        return embd__error_set(e, EMBD_UNREACHABLE, "dns://%s:%s: %s", name->host, name->port,
                               failed == EAI_SYSTEM ? strerror(errno) : gai_strerror(failed));
    for (const struct addrinfo *a = found; a != NULL; a = a->ai_next) {
        char host[NI_MAXHOST];
        if (getnameinfo(a->ai_addr, a->ai_addrlen, host, sizeof host, NULL, 0, NI_NUMERICHOST) == 0)
            add(out, host, name->port);
    }
    freeaddrinfo(found);
    return EMBD_OK;
}

/* ---- SRV records ---- */

struct service {
    uint16_t priority, weight, port;
    char host[NS_MAXDNAME];
};

static uint16_t u16_at(const uint8_t *p)
{
    return (uint16_t)(p[0] << 8 | p[1]);
}

/* The record at `at`; *service_out has a port where it is an SRV. Returns where the next one
 * begins, NULL: nothing more can be read. */
static const uint8_t *read_record(const uint8_t *answer, const uint8_t *end, const uint8_t *at,
                                  struct service *service_out)
{
    service_out->port = 0;
    int name_bytes = dn_skipname(at, end);
    if (name_bytes < 0 || end - at < name_bytes + NS_RRFIXEDSZ)
        return NULL;
    at += name_bytes;
    uint16_t type = u16_at(at), bytes = u16_at(at + NS_RRFIXEDSZ - 2);
    at += NS_RRFIXEDSZ;
    if (end - at < bytes)
        return NULL;
    if (type == ns_t_srv && bytes > SRV_BYTES &&
        dn_expand(answer, at + bytes, at + SRV_BYTES, service_out->host, sizeof service_out->host) >
            0 &&
        service_out->host[0] != '\0') {
        service_out->priority = u16_at(at);
        service_out->weight = u16_at(at + 2);
        service_out->port = u16_at(at + 4);
    }
    return at + bytes;
}

static uint32_t read_services(const uint8_t *answer, int bytes, struct service *out)
{
    const uint8_t *at = answer + NS_HFIXEDSZ, *end = answer + bytes;
    if (bytes < NS_HFIXEDSZ)
        return 0;
    uint32_t n_questions = u16_at(answer + 4), n_records = u16_at(answer + 6), n = 0;
    for (uint32_t i = 0; i < n_questions; i++) {
        int name_bytes = dn_skipname(at, end);
        if (name_bytes < 0 || end - at < name_bytes + NS_QFIXEDSZ)
            return 0;
        at += name_bytes + NS_QFIXEDSZ;
    }
    for (uint32_t i = 0; i < n_records && n < RESOLVED_MAX; i++) {
        at = read_record(answer, end, at, &out[n]);
        if (at == NULL)
            return n;
        n += out[n].port != 0;
    }
    return n;
}

static int by_priority(const void *a, const void *b)
{
    const struct service *x = a, *y = b;
    return (x->priority > y->priority) - (x->priority < y->priority);
}

static uint32_t random_below(uint32_t n)
{
    uint32_t value = 0;
    if (getrandom(&value, sizeof value, GRND_NONBLOCK) != sizeof value)
        value = (uint32_t)uv_hrtime();
    return value % n;
}

/* Puts one of the n services of a priority first: each by the chance its weight gives it. */
static void draw(struct service *services, uint32_t n)
{
    uint32_t sum = 0, i = 0;
    for (uint32_t k = 0; k < n; k++)
        sum += services[k].weight;
    uint32_t drawn = random_below(sum > 0 ? sum + 1 : n);
    if (sum == 0)
        i = drawn;
    else
        for (uint32_t running = services[0].weight; running < drawn; running += services[i].weight)
            i++;
    struct service first = services[i];
    services[i] = services[0];
    services[0] = first;
}

static int find_services(const struct dns_name *name, struct resolved *out, struct embd__error *e)
{
    struct __res_state resolver = {0};
    uint8_t *answer = malloc(ANSWER_BYTES);
    struct service *services = malloc(RESOLVED_MAX * sizeof *services);
    uint32_t n = 0;
    if (answer == NULL || services == NULL) {
        embd__error_set(e, EMBD_NO_MEMORY, "no memory to look up '%s'", name->host);
    } else if (res_ninit(&resolver) != 0) {
        embd__error_set(e, EMBD_UNREACHABLE, "dns://%s: the resolver cannot be started",
                        name->host);
    } else {
        int bytes = res_nsearch(&resolver, name->host, ns_c_in, ns_t_srv, answer, ANSWER_BYTES);
        int why = resolver.res_h_errno;
        res_nclose(&resolver);
        n = bytes < 0
                ? 0
                : read_services(answer, bytes < ANSWER_BYTES ? bytes : ANSWER_BYTES, services);
        if (bytes < 0)
            embd__error_set(e, EMBD_UNREACHABLE, "dns://%s: %s", name->host, hstrerror(why));
    }
    if (n > 0)
        qsort(services, n, sizeof *services, by_priority);
    for (uint32_t i = 0; i < n; i++) {
        char port[6];
        uint32_t same = i + 1;
        while (same < n && services[same].priority == services[i].priority)
            same++;
        draw(&services[i], same - i);
        snprintf(port, sizeof port, "%u", services[i].port);
        if (strlen(services[i].host) <= ADDRESS_HOST_MAX)
            add(out, services[i].host, port);
    }
    free(services);
    free(answer);
    return e->status;
}

/* ---- the thread ---- */

/* Owner: the loop's thread, but between queueing and on_found the pool's. */
struct lookup {
    uv_work_t work;
    struct dns_name name;
    struct resolved found;
    struct embd__error error;
    bool is_done, is_abandoned;
};

static void find(uv_work_t *work)
{
    struct lookup *lookup = work->data;
    int status = lookup->name.port[0] != '\0'
                     ? find_addresses(&lookup->name, &lookup->found, &lookup->error)
                     : find_services(&lookup->name, &lookup->found, &lookup->error);
    if (status == EMBD_OK && lookup->found.n == 0)
        embd__error_set(&lookup->error, EMBD_UNREACHABLE, "dns://%s: no server is listed",
                        lookup->name.host);
}

static void on_found(uv_work_t *work, int status)
{
    struct lookup *lookup = work->data;
    lookup->is_done = true;
    if (status != 0)
        embd__error_set(&lookup->error, EMBD_UNREACHABLE, "dns://%s: %s", lookup->name.host,
                        uv_strerror(status));
    if (lookup->is_abandoned)
        free(lookup);
}

static void on_deadline(uv_timer_t *timer)
{
    *(bool *)timer->data = true;
}

static void run_until(uv_loop_t *loop, const struct lookup *lookup, uint64_t deadline_ns)
{
    uv_timer_t timer;
    uint64_t now = uv_hrtime();
    bool is_over = false;
    uv_timer_init(loop, &timer);
    timer.data = &is_over;
    uv_update_time(loop);
    uv_timer_start(&timer, on_deadline, deadline_ns > now ? (deadline_ns - now) / 1000000 + 1 : 0,
                   0);
    while (!lookup->is_done && !is_over)
        uv_run(loop, UV_RUN_ONCE);
    uv_close((uv_handle_t *)&timer, NULL);
    uv_run(loop, UV_RUN_NOWAIT);
}

int embd__resolve(uv_loop_t *loop, const struct dns_name *name, uint64_t deadline_ns,
                  struct resolved *out, struct embd__error *e)
{
    struct lookup *lookup = calloc(1, sizeof *lookup);
    if (lookup == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory to look up '%s'", name->host);
    lookup->work.data = lookup;
    lookup->name = *name;
    int status = uv_queue_work(loop, &lookup->work, find, on_found);
    if (status != 0) {
        free(lookup);
        return embd__error_set(e, EMBD_UNREACHABLE, "dns://%s: %s", name->host,
                               uv_strerror(status));
    }
    run_until(loop, lookup, deadline_ns);
    if (!lookup->is_done) {
        lookup->is_abandoned = true;
        uv_cancel((uv_req_t *)&lookup->work);
        return embd__error_set(e, EMBD_UNREACHABLE, "dns://%s: no answer within the deadline",
                               name->host);
    }
    if (lookup->error.status != EMBD_OK)
        embd__error_set(e, lookup->error.status, "%s", lookup->error.text);
    else
        *out = lookup->found;
    free(lookup);
    return e->status;
}
