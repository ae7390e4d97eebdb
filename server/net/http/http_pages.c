/* http_pages.c - see http_pages.h. The health pages follow Kubernetes' own: one word for machines,
 * with ?verbose a line for each check.
 *
 *   /livez            the process runs its loop
 *   /readyz, /healthz every shard answers and none is loading or draining
 *
 * What begins with [!] asks for attention and keeps nobody from being ready. */
#include "server/net/http/http_pages.h"

#include <string.h>

#include "server/identity/identity.h"

static int write_livez(struct text *out, const struct http_view *view)
{
    (void)view;
    text_print(out, "ok\n");
    return 200;
}

static const char *why_loading(const struct shard_report *report)
{
    if (report->is_deposed)
        return "serves nothing: another server was promoted in its place";
    if (report->follows)
        return "follows another server";
    return report->is_in_doubt ? "waits for the decision of shard 0" : "is loading";
}

static const char *why_not_ready(const struct shard_view *shard)
{
    if (shard->report == NULL)
        return "does not answer";
    if (shard->report->is_loading)
        return why_loading(shard->report);
    return shard->report->is_draining ? "is draining" : NULL;
}

/* The process's part: whose the data directory is, and what the other servers began with. */
static void write_identity(struct text *out, struct identity *identity)
{
    char why[IDENTITY_WHY_BYTES];
    identity_why(identity, why);
    if (why[0] != '\0')
        text_print(out, "[-]%s\n", why);
    if (identity_other_cuts(identity, why, sizeof why) > 0)
        text_print(out, "[!]began with another snapshot than %s\n", why);
}

static int write_readyz(struct text *out, const struct http_view *view)
{
    uint32_t n_bad = 0;
    if (view->process->identity != NULL)
        write_identity(out, view->process->identity);
    for (uint32_t i = 0; i < view->n_shards; i++) {
        const char *why = why_not_ready(&view->shards[i]);
        n_bad += why != NULL;
        if (why != NULL || view->is_verbose)
            text_print(out, "[%c]shard %u at %s %s\n", why != NULL ? '-' : '+',
                       view->process->first_shard + i, view->shards[i].address,
                       why != NULL ? why : "ok");
    }
    for (uint32_t i = 0; i < view->n_shards; i++)
        if (view->shards[i].report != NULL && view->shards[i].report->lacks_replicas)
            text_print(out, "[!]shard %u lacks followers: changes of replicated tables wait\n",
                       view->process->first_shard + i);
    if (n_bad > 0)
        text_print(out, "not ready: %u of %u shards\n", n_bad, view->n_shards);
    else
        text_print(out, view->is_verbose ? "ready\n" : "ok\n");
    return n_bad > 0 ? 503 : 200;
}

static int write_html(struct text *out, const struct http_view *view)
{
    (void)view;
    text_print(out, "%s", (const char *)http_page_html);
    return 200;
}

#define TYPE_TEXT "text/plain; charset=utf-8"

static const struct http_page pages[] = {
    {"/", "text/html; charset=utf-8", false, write_html},
    {"/metrics", "text/plain; version=0.0.4; charset=utf-8", true, http_metrics_write},
    {"/livez", TYPE_TEXT, false, write_livez},
    {"/readyz", TYPE_TEXT, true, write_readyz},
    {"/healthz", TYPE_TEXT, true, write_readyz},
    {"/statusz.json", "application/json", true, http_status_write},
};
#define N_PAGES (sizeof pages / sizeof pages[0])

const struct http_page *http_page_find(const char *path)
{
    for (size_t i = 0; i < N_PAGES; i++)
        if (strcmp(pages[i].path, path) == 0)
            return &pages[i];
    return NULL;
}

/* ---- heads and refusals ---- */

static const struct refusal {
    int status;
    const char *reason, *text;
} refusals[] = {
    {400, "Bad Request", "not a valid HTTP request, or one with a body"},
    {404, "Not Found", "page not found"},
    {405, "Method Not Allowed", "only GET and HEAD are served"},
    {414, "URI Too Long", "the target is too long"},
    {421, "Misdirected Request",
     "the Host header must be localhost or an IP address: this port serves its own machine only"},
    {431, "Request Header Fields Too Large", "the head of the request is too large"},
    {503, "Service Unavailable", "too many connections, or still starting"},
    {505, "HTTP Version Not Supported", "HTTP/1.0 and HTTP/1.1 are served"},
};

static const struct refusal *find_refusal(int status)
{
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++)
        if (refusals[i].status == status)
            return &refusals[i];
    return NULL;
}

int http_head_write(char *out, size_t out_bytes, int status, const char *type, size_t body_bytes)
{
    const struct refusal *refusal = find_refusal(status);
    return snprintf(out, out_bytes,
                    "HTTP/1.1 %d %s\r\n"
                    "Content-Type: %s\r\n"
                    "Content-Length: %zu\r\n"
                    "%s"
                    "Cache-Control: no-store\r\n"
                    "Connection: close\r\n"
                    "X-Content-Type-Options: nosniff\r\n"
                    "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'; "
                    "script-src 'unsafe-inline'; connect-src 'self'; img-src data:; "
                    "frame-ancestors 'none'; base-uri 'none'; form-action 'none'\r\n"
                    "\r\n",
                    status, refusal != NULL ? refusal->reason : "OK", type, body_bytes,
                    status == 405 ? "Allow: GET, HEAD\r\n" : "");
}

void http_refusal_write(struct text *out, int status)
{
    const struct refusal *refusal = find_refusal(status);
    text_print(out, "%d: %s\npages:", status, refusal->text);
    for (size_t i = 0; i < N_PAGES; i++)
        text_print(out, " %s", pages[i].path);
    text_print(out, "\n");
}
