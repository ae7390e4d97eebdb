/* http_pages.h - the pages by path, and what they are written from. */
#ifndef EMBD_HTTP_PAGES_H
#define EMBD_HTTP_PAGES_H

#include <stdatomic.h>

#include "server/net/http/gather.h"
#include "server/net/http/text.h"

struct identity;

/* The process the pages are about. */
struct http_process {
    const char *cluster_name;
    uint32_t n_shards;                 /* of this process */
    uint32_t first_shard;              /* their indices in the cluster begin here */
    _Atomic uint32_t n_cluster_shards; /* of all processes; it may grow */
    struct quota *quota;
    int64_t certificate_expires;    /* seconds since 1970; 0: no TLS */
    uint32_t max_connections;       /* of a shard */
    const char *data_dir;           /* NULL: none */
    struct identity *identity;      /* of the data directory; NULL: none */
    const atomic_bool *etcd_silent; /* NULL: the cluster is in the file */
    const char *archive_figures;    /* a file of metrics; NULL: this server keeps no archive */
    bool archive_runs;
};

/* A moment of it. */
struct http_view {
    const struct http_process *process;
    const struct shard_view *shards; /* [n_shards] */
    uint32_t n_shards;               /* 0 for pages that need no figures */
    bool is_verbose;
};

struct http_page {
    const char *path, *type;
    bool needs_figures;
    int (*write)(struct text *out, const struct http_view *view); /* returns the HTTP status */
};

/* NULL: none. */
const struct http_page *http_page_find(const char *path);

/* The head of an answer of `body_bytes`; returns its bytes. */
int http_head_write(char *out, size_t out_bytes, int status, const char *type, size_t body_bytes);
/* The page for a refused request. */
void http_refusal_write(struct text *out, int status);

/* http_metrics.c: Prometheus' text format. */
int http_metrics_write(struct text *out, const struct http_view *view);
/* http_status.c: /statusz.json. */
int http_status_write(struct text *out, const struct http_view *view);

/* page.html, compiled in. */
extern const unsigned char http_page_html[]; /* terminated */

/* Figures of the process, for both of the above. */
struct process_usage {
    double cpu_seconds;
    uint64_t resident_bytes, open_files;
};
void process_usage_read(struct process_usage *out);

#endif
