/* settings.h - what a user may say, as text and with its place: in a configuration file or as
 * flags.
 *
 * One list names every setting, so file, flags, help and error messages cannot drift apart.
 * config.h says what the texts mean. */
#ifndef EMBD_SETTINGS_H
#define EMBD_SETTINGS_H

#include <stdbool.h>

#include "proto/errors.h"

/* Where a setting may stand. */
enum {
    IN_TOP = 1,     /* of the file */
    IN_CLUSTER = 2, /* of the file's cluster: map */
    IN_SERVER = 4,  /* of an entry of cluster.servers */
    IN_FLAGS = 8,   /* of the command line, with - for _ */
};

/* id, key in the file, where, value, help */
#define SETTING_LIST(X)                                                                            \
    X(SERVER, "server", IN_FLAGS, "NAME",                                                          \
      "Which entry of the file's server list this process is: its name, or its number from 0")     \
    X(LISTEN, "listen", IN_FLAGS | IN_TOP | IN_SERVER, "HOST:PORT",                                \
      "Address of the first shard (127.0.0.1:7700); the next ones take the ports that follow. "    \
      "Port 0: each "                                                                              \
      "shard takes a free port and prints it")                                                     \
    X(ADVERTISE, "advertise", IN_FLAGS | IN_TOP | IN_SERVER, "HOST",                               \
      "Name or address by which clients reach this server (that of --listen)")                     \
    X(CLUSTER_NAME_FLAG, "cluster_name", IN_FLAGS, "NAME", "Name of the cluster (embd)")           \
    X(SHARDS, "shards", IN_FLAGS | IN_TOP | IN_SERVER, "N",                                        \
      "Shards of this process, a thread each (1)")                                                 \
    X(CPUS, "cpus", IN_FLAGS | IN_TOP, "LIST",                                                     \
      "Pin shard threads to these CPUs in turn: 0,2,3 (not pinned)")                               \
    X(HTTP, "http", IN_FLAGS | IN_TOP | IN_SERVER, "HOST:PORT|off",                                \
      "Metrics, health and the status page, read only (127.0.0.1:7780, and off where that port "   \
      "is "                                                                                        \
      "taken); port 0: a free one, which is printed")                                              \
    X(HTTP_OPEN, "http_open", IN_FLAGS | IN_TOP | IN_SERVER, "yes|no",                             \
      "Let --http be an address that other machines reach: its pages have neither TLS nor tokens " \
      "(no)")                                                                                      \
    X(STORE, "store", IN_FLAGS | IN_TOP, "NAME",                                                   \
      "Where rows live: host, cuda, nccl or auto (auto)")                                          \
    X(GPU_WAY, "gpu_way", IN_FLAGS | IN_TOP, "WAY",                                                \
      "Store nccl: how GPUs reach each other: peer (their kernels load and store each other's "    \
      "memory), nccl, or auto: the faster one, measured at the start (auto)")                      \
    X(GPU_SUMS, "gpu_sums", IN_FLAGS | IN_TOP, "HOW",                                              \
      "Store nccl: how pooled rows of hash and modulo tables are added: exact, key by key as on "  \
      "one GPU, or partial, each GPU its own first, which moves less (exact)")                     \
    X(DATA_DIR, "data_dir", IN_FLAGS | IN_TOP | IN_SERVER, "DIR",                                  \
      "Directory for snapshots and journals: tables are durable then. Without it they are in "     \
      "memory alone")                                                                              \
    X(JOURNAL_LIMIT, "journal_limit", IN_FLAGS | IN_TOP, "SIZE",                                   \
      "Compact a shard's journal after this many bytes, and at least as many as its tables have: " \
      "bytes, 512M, 2G; 0: only when a snapshot is made and at the start (4G)")                    \
    X(RESTORE, "restore", IN_FLAGS | IN_TOP, "WHICH",                                              \
      "Snapshot of the data directory that a start begins with: newest, the newest one that "      \
      "verifies; NAME, that one or the server does not start; none (newest)")                      \
    X(ADMIN_DIR, "admin_dir", IN_FLAGS | IN_TOP | IN_SERVER, "DIR",                                \
      "Directory of the admin sockets PORT.sock ($XDG_RUNTIME_DIR/embd, or /tmp/embd-UID)")        \
    X(ADMIN_LISTEN, "admin_listen", IN_FLAGS | IN_TOP | IN_SERVER, "HOST:PORT",                    \
      "Take admins on TCP too, from this port on, with TLS and a token of the role admin (no)")    \
    X(TLS_CERT, "tls_cert", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                 \
      "Speak TLS 1.3 on TCP ports, with this certificate and its chain (PEM)")                     \
    X(TLS_KEY, "tls_key", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                   \
      "The key of --tls-cert (PEM, mode 0600 or 0640)")                                            \
    X(TLS_CLIENT_CA, "tls_client_ca", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                       \
      "Take only clients with a certificate of these authorities (PEM)")                           \
    X(TOKENS, "tokens", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                     \
      "Take only clients with a token of this list: lines of NAME ROLE TABLES sha256:HASH, as "    \
      "embctl token prints them. List and certificate are read again when their files change")     \
    X(CLUSTER_NAME, "name", IN_CLUSTER, "NAME", "")                                                \
    X(ETCD, "etcd", IN_CLUSTER, "etcd://HOST:PORT[,...]/PREFIX", "")                               \
    X(ETCD_LEASE, "etcd_lease", IN_CLUSTER, "SECONDS", "")                                         \
    X(ETCD_CA, "etcd_ca", IN_CLUSTER, "FILE", "")                                                  \
    X(ETCD_CERT, "etcd_cert", IN_CLUSTER, "FILE", "")                                              \
    X(ETCD_KEY, "etcd_key", IN_CLUSTER, "FILE", "")                                                \
    X(ETCD_LOGIN, "etcd_login", IN_CLUSTER, "FILE", "")                                            \
    X(SERVER_NAME, "name", IN_SERVER, "NAME", "")                                                  \
    X(FRAME_MEMORY, "frame_memory", IN_FLAGS | IN_TOP, "SIZE",                                     \
      "Memory for connections and what is received on them, all shards together: bytes, 512M, 2G " \
      "or a part of RAM (25%)")                                                                    \
    X(MAX_CONNECTIONS, "max_connections", IN_FLAGS | IN_TOP, "N",                                  \
      "Data connections of one shard (4096)")                                                      \
    X(STALL_TIMEOUT, "stall_timeout", IN_FLAGS | IN_TOP, "SECONDS",                                \
      "A peer that rests within a frame, or does not take its answers, is dropped after this "     \
      "(30)")                                                                                      \
    X(IDLE_TIMEOUT, "idle_timeout", IN_FLAGS | IN_TOP, "SECONDS",                                  \
      "A connection without requests is dropped after this (0: never)")                            \
    X(HELLO_TIMEOUT, "hello_timeout", IN_FLAGS | IN_TOP, "SECONDS",                                \
      "A connection without TLS handshake or token, where they are asked for, is dropped after "   \
      "this (10)")                                                                                 \
    X(MAX_STRANGERS, "max_strangers", IN_FLAGS | IN_TOP, "N",                                      \
      "Connections at once that --hello-timeout counts for; one more, and the oldest is dropped "  \
      "(256)")                                                                                     \
    X(LOG_LEVEL, "log_level", IN_FLAGS | IN_TOP, "LEVEL", "debug, info, warn or error (info)")     \
    X(ACCEPT_JOURNAL_DAMAGE, "accept_journal_damage", IN_FLAGS, NULL,                              \
      "Start on a journal that is damaged before its end: what follows the damage is dropped, "    \
      "and "                                                                                       \
      "journal.SHARD.damage in the data directory tells of it. For one start")                     \
    X(CHECK, "check", IN_FLAGS, NULL,                                                              \
      "Read the configuration, say whether it can be used, and exit")                              \
    X(READY_FD, "ready_fd", IN_FLAGS, "FD",                                                        \
      "Write the line 'ready' to this descriptor and close it when all shards take requests")

enum setting_id {
#define SETTING_ENUM(id, key, where, value, help) SETTING_##id,
    SETTING_LIST(SETTING_ENUM)
#undef SETTING_ENUM
        SETTING_COUNT
};

struct setting_kind {
    const char *key;
    unsigned where;
    const char *value, *help;
};
extern const struct setting_kind setting_kinds[SETTING_COUNT];

/* The setting of that key which may stand in `where`, or -1. */
int setting_find(const char *key, unsigned where);

struct setting {
    char *text;       /* owned; NULL: not given */
    const char *file; /* NULL: a flag */
    unsigned line, column;
};

struct settings {
    struct setting of[SETTING_COUNT];
};

struct settings_file {
    char *path;
    struct settings top; /* and of the cluster: map */
    struct settings *servers;
    unsigned n_servers;
};

/* Reads a YAML file. EMBD_INVALID: the sentence names file, line and column. On error *out is zero.
 */
int settings_file_read(const char *path, struct settings_file *out, struct embd__error *e);
void settings_file_fini(struct settings_file *file);

/* Reads the command line; --help and --version print and exit 0, a flag nobody knows exits 2.
 * *path_out: of
 * --config, or NULL; points into argv. */
int settings_flags_read(int argc, char **argv, struct settings *out, const char **path_out,
                        struct embd__error *e);

void settings_fini(struct settings *settings);

#endif
