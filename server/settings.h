/* settings.h - the settings of the server, as text with its place: in a configuration file or on
 * the command line.
 *
 * One list names every setting, so file, flags, help and error messages cannot drift apart.
 * config.h says what the texts mean. */
#ifndef EMBD_SETTINGS_H
#define EMBD_SETTINGS_H

#include <stdbool.h>

#include "proto/errors.h"

/* Where a setting may be given. */
enum {
    IN_TOP = 1,     /* of the file */
    IN_CLUSTER = 2, /* of the file's cluster: map */
    IN_SERVER = 4,  /* of an entry of cluster.servers */
    IN_FLAGS = 8,   /* of the command line, with - for _ */
};

/* id, key in the file, where, value, help */
#define SETTING_LIST(X)                                                                            \
    X(SERVER, "server", IN_FLAGS, "NAME",                                                          \
      "Entry of the file's server list that this process is: its name, or its number from 0")      \
    X(LISTEN, "listen", IN_FLAGS | IN_TOP | IN_SERVER, "HOST:PORT",                                \
      "Address of the first shard (127.0.0.1:7700); further shards use the next ports. Port 0: "   \
      "each shard uses a free port and prints it")                                                 \
    X(ADVERTISE, "advertise", IN_FLAGS | IN_TOP | IN_SERVER, "HOST",                               \
      "Host name or address that clients connect to (that of --listen)")                           \
    X(CLUSTER_NAME_FLAG, "cluster_name", IN_FLAGS, "NAME", "Name of the cluster (embd)")           \
    X(SHARDS, "shards", IN_FLAGS | IN_TOP | IN_SERVER, "N",                                        \
      "Number of shards; each is one thread (1)")                                                  \
    X(CPUS, "cpus", IN_FLAGS | IN_TOP, "LIST",                                                     \
      "Pin shard threads to these CPUs in turn: 0,2,3; other threads keep off them (not pinned)")  \
    X(HTTP, "http", IN_FLAGS | IN_TOP | IN_SERVER, "HOST:PORT|off",                                \
      "Address of metrics, health checks and the status page (127.0.0.1:7780, or off if that "     \
      "port "                                                                                      \
      "is in use). Port 0: use a free port and print it")                                          \
    X(HTTP_OPEN, "http_open", IN_FLAGS | IN_TOP | IN_SERVER, "yes|no",                             \
      "Allow an --http address that other machines can reach, without TLS or tokens (no)")         \
    X(STORE, "store", IN_FLAGS | IN_TOP, "NAME",                                                   \
      "Where rows live: host, cuda, nccl or auto (auto)")                                          \
    X(GPU_WAY, "gpu_way", IN_FLAGS | IN_TOP, "WAY",                                                \
      "Store nccl: transport between GPUs: peer (kernels access each other's memory), nccl, or "   \
      "auto (the faster one, measured at start) (auto)")                                           \
    X(GPU_SUMS, "gpu_sums", IN_FLAGS | IN_TOP, "HOW",                                              \
      "Store nccl: how pooled rows of hash and modulo tables are summed: exact (in key order, as " \
      "on one GPU) or partial (each GPU sums its own rows first, which moves less data) (exact)")  \
    X(DATA_DIR, "data_dir", IN_FLAGS | IN_TOP | IN_SERVER, "DIR",                                  \
      "Directory of snapshots and journals. Without it tables are kept in memory only and lost "   \
      "when the server ends")                                                                      \
    X(JOURNAL_LIMIT, "journal_limit", IN_FLAGS | IN_TOP, "SIZE",                                   \
      "Compact a shard's journal after this many bytes, but not before it is larger than its "     \
      "base, and earlier if its disk has little room: "                                            \
      "bytes, 512M, 2G; 0: only at start, after a snapshot and for room (4G)")                     \
    X(JOURNAL_STRICT, "journal_strict", IN_FLAGS | IN_TOP, "yes|no",                               \
      "yes: compact at journal_limit also where the base is larger: the disk has to hold no more " \
      "than 2.2 times the tables and journal_limit, but each journal_limit of changes writes the " \
      "tables again (no)")                                                                         \
    X(RESTORE, "restore", IN_FLAGS | IN_TOP, "WHICH",                                              \
      "Snapshot to restore at start: newest (the newest one that verifies), NAME (the server "     \
      "does "                                                                                      \
      "not start without it), or none (newest)")                                                   \
    X(FOLLOW, "follow", IN_FLAGS | IN_TOP, "ADDRESS",                                              \
      "Follow the cluster whose shard 0 takes admins there: HOST:PORT, or the path of its admin "  \
      "socket; or, wherever they are now, the servers of etcd://HOST:PORT[,HOST:PORT...]/PREFIX. " \
      "This server takes the records of its journals and serves no trainer until it is "           \
      "promoted; it needs a data_dir of its own and as many shards")                               \
    X(FOLLOW_TOKEN, "follow_token", IN_FLAGS | IN_TOP, "FILE",                                     \
      "File of mode 0600 with the token of an admin, which this server shows to the one it "       \
      "follows (no)")                                                                              \
    X(SERVE, "serve", IN_FLAGS | IN_TOP, "yes|no",                                                 \
      "yes: with follow, answer pulls and other reads while following; changes are refused (no)")  \
    X(SERVE_DTYPE, "serve_dtype", IN_FLAGS | IN_TOP, "f32|f16|bf16|i8|e4m3",                       \
      "With follow and serve, keep rows as this dtype, where that is narrower than the table's, "  \
      "and no optimizer state. Such a replica takes what changed in rounds, has no data_dir, and " \
      "is never promoted (rows and state as they are there)")                                      \
    X(DIGEST_INTERVAL, "digest_interval", IN_FLAGS | IN_TOP, "SECONDS",                            \
      "With follow, compare digests of all tables with those of that server so often, while "      \
      "pushes go on; 0: when embctl asks (0)")                                                     \
    X(REPLICAS, "replicas", IN_FLAGS | IN_TOP, "N",                                                \
      "How many followers must have a change of a table of durability replicated or "              \
      "replicated_durable before it is acknowledged; 0: none, as buffered and durable (1)")        \
    X(PROMOTE, "promote", IN_FLAGS, NULL,                                                          \
      "Promote a follower: its journals become this server's own, which serves trainers from now " \
      "on. With follow, it tells the other server, which serves no more. Use it for one start "    \
      "only")                                                                                      \
    X(ARCHIVE, "archive", IN_FLAGS | IN_TOP, "PLACE",                                              \
      "Keep an archive of the cluster there, a directory or s3://BUCKET/PREFIX: the server of "    \
      "shard 0 runs embctl backup --every as a program of its own, and shows its figures (no)")    \
    X(ARCHIVE_EVERY, "archive_every", IN_FLAGS | IN_TOP, "SECONDS",                                \
      "With archive, a backup of what changed so often; records of pushes between them go there "  \
      "within seconds (60)")                                                                       \
    X(ARCHIVE_DAYS, "archive_days", IN_FLAGS | IN_TOP, "N",                                        \
      "With archive, the last backup with all rows of a day stays for N days (7)")                 \
    X(ARCHIVE_TOKEN, "archive_token", IN_FLAGS | IN_TOP, "FILE",                                   \
      "With archive, file of mode 0600 with the token of an admin, for shards of other hosts; "    \
      "without it the environment says it (no)")                                                   \
    X(ADMIN_DIR, "admin_dir", IN_FLAGS | IN_TOP | IN_SERVER, "DIR",                                \
      "Directory of the admin sockets PORT.sock ($XDG_RUNTIME_DIR/embd, or /tmp/embd-UID)")        \
    X(LOCAL_SOCKET, "local_socket", IN_FLAGS | IN_TOP | IN_SERVER, "DIR|off",                      \
      "Directory of the data sockets PORT.data.sock, which clients on this host use instead of "   \
      "TCP (that of --admin-dir)")                                                                 \
    X(LOCAL_GROUP, "local_group", IN_FLAGS | IN_TOP | IN_SERVER, "GROUP",                          \
      "Group whose members may use the data sockets too (only the server's user and root)")        \
    X(LOCAL_SPIN, "local_spin", IN_FLAGS | IN_TOP, "MICROSECONDS",                                 \
      "How long a shard looks at its sockets and the shared memory of clients on this host "       \
      "before it sleeps, where calls follow each other closely; 0: not at all. Only with two "     \
      "processors for each shard, or one of a part of the host's (50)")                            \
    X(ADMIN_LISTEN, "admin_listen", IN_FLAGS | IN_TOP | IN_SERVER, "HOST:PORT",                    \
      "Accept admin connections on TCP as well, one port per shard from this one on; requires "    \
      "TLS "                                                                                       \
      "and tokens (no)")                                                                           \
    X(TLS_CERT, "tls_cert", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                 \
      "Require TLS 1.3 on TCP ports; the certificate with its chain (PEM)")                        \
    X(TLS_KEY, "tls_key", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                   \
      "Private key of --tls-cert (PEM, mode 0600 or 0640)")                                        \
    X(TLS_CLIENT_CA, "tls_client_ca", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                       \
      "Require client certificates signed by one of these authorities (PEM)")                      \
    X(PEER_CA, "peer_ca", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                   \
      "Authorities that sign the certificates of the other servers, or 'system': this server "     \
      "asks "                                                                                      \
      "them at its start (tls_client_ca)")                                                         \
    X(PEER_TOKEN, "peer_token", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                             \
      "Token of the role server: this server shows it to the others to make snapshots for "        \
      "trainers' tokens (none)")                                                                   \
    X(TOKENS, "tokens", IN_FLAGS | IN_TOP | IN_SERVER, "FILE",                                     \
      "Require a token of this list: lines of NAME ROLE TABLES sha256:HASH [tables=N] "            \
      "[row_bytes=SIZE] [snapshots=N] [snapshot_bytes=SIZE], as embctl token prints them. "        \
      "Tokens and certificates are reloaded when their files change")                              \
    X(CLUSTER_NAME, "name", IN_CLUSTER, "NAME", "Name of the cluster (embd)")                      \
    X(ETCD, "etcd", IN_CLUSTER, "etcd://HOST:PORT[,...]/PREFIX",                                   \
      "Servers find each other in this etcd, under keys that begin with PREFIX (no)")              \
    X(ETCD_LEASE, "etcd_lease", IN_CLUSTER, "SECONDS",                                             \
      "A server that etcd does not hear from for so long loses its name there (10; with "          \
      "failover 3)")                                                                               \
    X(FAILOVER, "failover", IN_CLUSTER, "yes|no",                                                  \
      "yes: several processes may have the name of a server in the list: one serves, the others "  \
      "follow it, and one of them takes its place when its lease ends (no)")                       \
    X(ETCD_CA, "etcd_ca", IN_CLUSTER, "FILE",                                                      \
      "Use TLS to etcd, and trust the authorities in this PEM file, or 'system' (no)")             \
    X(ETCD_CERT, "etcd_cert", IN_CLUSTER, "FILE", "This server's certificate for etcd (PEM)")      \
    X(ETCD_KEY, "etcd_key", IN_CLUSTER, "FILE", "The key of etcd_cert (PEM, mode 0600 or 0640)")   \
    X(ETCD_LOGIN, "etcd_login", IN_CLUSTER, "FILE",                                                \
      "File of mode 0600 with a line USER:PASSWORD for etcd; read again when etcd asks "           \
      "again")                                                                                     \
    X(SERVER_NAME, "name", IN_SERVER, "NAME",                                                      \
      "Name of the server, which --server takes. Needed with etcd")                                \
    X(WEIGHT, "weight", IN_SERVER, "N",                                                            \
      "Share of the keys that each shard of this server gets, next to the other servers' weights " \
      "(1)")                                                                                       \
    X(PLACEMENT, "placement", IN_FLAGS | IN_TOP, "VERSION:MAP",                                    \
      "Which shard has which of the 1024 virtual shards of keys: VERSION:even, VERSION:weights "   \
      "(by "                                                                                       \
      "the servers' weight), or VERSION:SHARD=N,SHARD=N,..., where N is a number of virtual "      \
      "shards. A "                                                                                 \
      "data directory keeps its map; a later VERSION replaces it while no shard has rows (the "    \
      "data directory's; of a new one 1:even, or 1:weights if a server has a weight)")             \
    X(FRAME_MEMORY, "frame_memory", IN_FLAGS | IN_TOP, "SIZE",                                     \
      "Memory for connections, requests and answers of all shards: bytes, 512M, 2G or a share of " \
      "RAM, or of the cgroup's limit if that is less (25%)")                                       \
    X(PUSH_LIMIT, "push_limit", IN_FLAGS | IN_TOP, "SIZE",                                         \
      "Largest push to a shard: from 64M to 1G, and at most a third of frame_memory (1G, or that " \
      "third)")                                                                                    \
    X(ROW_MEMORY, "row_memory", IN_FLAGS | IN_TOP, "SIZE",                                         \
      "Memory for rows, their state, keys and candidates of all shards: bytes, 512M, 2G or a "     \
      "share "                                                                                     \
      "of RAM; on GPUs of each device. Beyond it pushes that need new rows are refused. 0: no "    \
      "limit (80% of RAM, or of the cgroup's limit if that is less, without frame_memory; of a "   \
      "device 80% of what is free at start)")                                                      \
    X(MAX_CONNECTIONS, "max_connections", IN_FLAGS | IN_TOP, "N",                                  \
      "Maximum number of data connections per shard (4096)")                                       \
    X(STALL_TIMEOUT, "stall_timeout", IN_FLAGS | IN_TOP, "SECONDS",                                \
      "Drop a connection whose request or answer makes no progress for this long (30)")            \
    X(IDLE_TIMEOUT, "idle_timeout", IN_FLAGS | IN_TOP, "SECONDS",                                  \
      "Drop a connection that sends no request for this long; 0: never (0)")                       \
    X(HELLO_TIMEOUT, "hello_timeout", IN_FLAGS | IN_TOP, "SECONDS",                                \
      "Drop a connection that has not finished the required TLS handshake and sent the required "  \
      "token after this long (10)")                                                                \
    X(MAX_STRANGERS, "max_strangers", IN_FLAGS | IN_TOP, "N",                                      \
      "Maximum number of connections per shard that are not authenticated yet; the oldest is "     \
      "dropped for one more (256)")                                                                \
    X(LOG_LEVEL, "log_level", IN_FLAGS | IN_TOP, "LEVEL", "debug, info, warn or error (info)")     \
    X(ACCEPT_JOURNAL_DAMAGE, "accept_journal_damage", IN_FLAGS, NULL,                              \
      "Start although a journal is damaged: the changes behind the damage are dropped and "        \
      "recorded "                                                                                  \
      "in journal.SHARD.damage. Use it for one start only")                                        \
    X(ACCEPT_EMPTY, "accept_empty", IN_FLAGS, NULL,                                                \
      "Start with this data directory although it is empty, older, of another server or of "       \
      "another cluster, as the other servers know; identity.json records it. Use it for one "      \
      "start only")                                                                                \
    X(JOIN, "join", IN_FLAGS, NULL,                                                                \
      "With a new data directory: begin as no member of the cluster, whose servers the file "      \
      "lists before this one, until embctl shard add makes it one. Without effect afterwards")     \
    X(DROP_TABLE, "drop_table", IN_FLAGS, "NAME",                                                  \
      "Start without this table and DROP IT FOR GOOD: neither journal nor snapshot bring it back " \
      "at this start, the journal is compacted without it, and its rows are lost unless a "        \
      "snapshot has them. The flag may be repeated. A name that nothing has ends the start. Use "  \
      "it for one start only, if the server cannot start with the table")                          \
    X(CHECK, "check", IN_FLAGS, NULL, "Check the configuration and exit")                          \
    X(READY_FD, "ready_fd", IN_FLAGS, "FD",                                                        \
      "Write the line 'ready' to this file descriptor and close it when all shards accept "        \
      "requests")

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
    char *text;            /* owned; NULL: not given */
    const char *file;      /* NULL: a flag */
    unsigned line, column; /* line 0: it is in a text, which `file` names */
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

/* Reads the command line; --help and --version print and exit 0, an unknown flag exits 2.
 * *path_out: the path of --config, or NULL; points into argv. */
int settings_flags_read(int argc, char **argv, struct settings *out, const char **path_out,
                        struct embd__error *e);

void settings_fini(struct settings *settings);

#endif
