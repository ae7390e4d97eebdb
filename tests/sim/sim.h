/* sim.h - servers that follow each other, and their clients, in one thread and from one seed: who
 * says what to whom and when, what is lost on its way, who dies and with what on its disk.
 *
 * Real code: the engine and its host store, operations as records, their seals and chains, replay
 * (server/engine, server/journal). Modelled, since they are bound to sockets, files and threads:
 * the disk (disk.c), what follows and feeds (follow.c, after server/service/following*.c,
 * handle_follow.c and deposing.c), etcd and what servers do with it (etcd.c, member.c), the waiting
 * of acknowledgements for followers, and clients (client.c). Bases are the records before them, not
 * rows; records that are withdrawn for lack of memory are left out. */
#ifndef EMBD_TESTS_SIM_H
#define EMBD_TESTS_SIM_H

#include <setjmp.h>

#include "server/journal/commit.h"
#include "tests/store/pair.h"

enum {
    NODES = 3,
    CLIENTS = 2,
    PUSHES = 10,   /* of each client */
    IN_FLIGHT = 3, /* of a client */
    SHARED_KEYS = 3,
    DIM = 2,
    DIGESTS = 8192,
    LINES = 48, /* of a schedule that are kept */
    LINE_BYTES = 120,
    LEASE_MS = 90,
    ETCD_END = NODES + CLIENTS, /* a place in cut_until and last_at */
    ENDS = ETCD_END + 1,
};

/* Parts that a run may leave out: it must fail then. */
enum part_out {
    OUT_NOTHING,
    OUT_HEED,         /* a server that hears of a greater epoch goes on */
    OUT_CLIENT_EPOCH, /* a client believes any server */
    OUT_WAIT,         /* acknowledgements wait for no follower */
    OUT_CHAIN,        /* neither side compares chains and records */
    OUT_ONE,          /* an acknowledgement waits for one follower of several */
    OUT_AGAIN,        /* that of a repeated push waits for none */
    OUT_FENCE,        /* a primary whose lease may have lapsed goes on */
    OUT_EPOCH,        /* who takes the name takes the epoch before */
    OUT_INSYNC,       /* any follower may take the name */
    OUT_TAKEN,        /* who took the name, and does not know, waits for others */
    OUT_EVEN,         /* a follower is in sync as soon as it is fed */
    OUT_HEIR,         /* any follower may be named, and takes the name as such */
    OUT_FINISH,       /* a follower is named before all has been answered, and it has that */
    PARTS_OUT,
};
extern const char *const part_names[PARTS_OUT];

/* What an acknowledgement says. */
enum promise { PROMISE_BUFFERED, PROMISE_DURABLE, PROMISE_REPLICATED, PROMISES };

/* ---- records and disks: disk.c ---- */

struct sim_record {
    struct sim_record *next; /* of all */
    uint64_t n_bytes, position, chain, checksum;
    uint64_t origin; /* checksum of the record there that it was taken from */
    _Alignas(8) uint8_t bytes[];
};

struct record_list {
    struct sim_record **list; /* [n] */
    uint32_t n, capacity;
};

/* A place in a journal: as many records are before it, and the checksum of the last. */
struct place {
    uint64_t position, chain;
};

struct sim_note {
    enum { NOTE_OWN, NOTE_BEGUN, NOTE_FOLLOWING, NOTE_MADE_PRIMARY, NOTE_DEPOSED_BY } state;
    uint64_t epoch;
    struct place place; /* of the other's journal, that this one has on disk */
};

struct disk {
    struct record_key key;
    struct record_list base; /* the records that a base has the tables of */
    struct record_list records;
    struct place begin;                /* of `records` */
    uint64_t written, synced;          /* positions */
    struct sim_note note, stored_note; /* the latter is there after a crash */
    uint64_t required;                 /* bits of followers that acknowledgements wait for */
};

struct place disk_end(const struct disk *disk);
struct sim_record *disk_at(const struct disk *disk, uint64_t position);

/* ---- etcd: etcd.c ---- */

/* Followers, by the numbers of their starts: start_of(). */
enum { SET_MOST = 2 * NODES };
struct start_set {
    uint32_t n, ids[SET_MOST];
};

struct etcd_follower {
    uint32_t start, lease; /* start 0: it is not there */
    uint64_t position;
    bool is_ready;
};

struct etcd_state {
    uint32_t n_leases, leases[NODES]; /* the last of each server */
    uint64_t lapses_at[NODES];
    uint64_t revision;
    bool is_held;
    uint32_t holder, name_lease, epoch_node;
    uint64_t name_revision, epoch, epoch_revision, insync_revision;
    struct start_set insync; /* in that epoch */
    uint32_t heir;           /* the start that was named; 0: none */
    uint64_t heir_epoch;     /* by the primary of that epoch */
    bool is_heirs;           /* who has the name took it as the heir */
    struct etcd_follower followers[NODES];
};

enum etcd_kind {
    ETCD_READ,
    ETCD_GRANT,
    ETCD_KEEP,
    ETCD_TAKE,
    ETCD_PUT_INSYNC,
    ETCD_PUT_FOLLOWER,
    ETCD_HAND_OVER
};

struct etcd_ask {
    enum etcd_kind kind;
    uint32_t lease;
    uint32_t start; /* who takes the name as a follower, or is named */
    uint64_t epoch, name_revision, epoch_revision, insync_revision;
    struct start_set insync;
    struct etcd_follower follower;
};

struct etcd_answer {
    bool is_done;
    uint32_t lease;
    struct etcd_state seen;
};

/* ---- what a server does with it: member.c ---- */

enum member_state {
    MEMBER_STARTS,
    MEMBER_LEASELESS,
    MEMBER_NAMELESS,
    MEMBER_LEADS,
    MEMBER_FOLLOWS,
    MEMBER_LEAVES /* has given the name to an heir, and ends */
};

struct member {
    enum member_state state;
    uint32_t lease, question;
    bool is_open, is_unsure;
    enum etcd_kind asked, next;
    uint64_t asked_at, renewed_at, fenced_from; /* by the server's clock */
    uint64_t next_at, absent_since;             /* by the simulation's */
    uint64_t name_revision, insync_revision;
    struct start_set required, published, next_insync;
    uint64_t floor, reached; /* positions */
    struct {
        uint32_t start;
        uint64_t at;
    } fed[NODES]; /* followers that take its records */
};

/* ---- servers: node.c ---- */

/* A push or opening on its way through a primary. */
struct sim_op {
    struct op op;
    bool is_there;
    uint32_t client, connection;
    uint64_t sequence, position; /* of its record */
    _Alignas(8) uint64_t keys[2][SHARED_KEYS];
    float grads[2][SHARED_KEYS * DIM];
};
enum { OPS = 16 };

/* An answer that waits. */
struct waiting {
    bool is_there, is_opening;
    uint32_t client, connection;
    uint64_t sequence, last, position;
};
enum { WAITING = 64 };

struct node {
    uint32_t index;
    bool is_up;
    uint32_t life;    /* starts so far */
    uint32_t history; /* no other promotion's */
    uint64_t back_at; /* down until then */
    int64_t skew;     /* of its clock */
    int rate;         /* thousandths that its clock is too fast */
    uint64_t stalled_until;
    bool is_aside;    /* etcd has not said that it serves */
    uint64_t ends_at; /* it ends in order, by then at the latest: it takes nothing more; 0: no */
    struct member member;
    struct disk disk;
    struct engine engine;
    struct operation_reader reader;
    struct msg msg;
    struct place applied;
    bool has_heard; /* of a greater epoch, as the simulation knows */
    /* As a primary. */
    struct sim_op ops[OPS];
    struct waiting waiting[WAITING];
    uint64_t follower_disk[NODES]; /* since the start */
    struct {
        bool is_there, is_base;
        uint32_t life, question; /* of the follower, and of its question */
        uint64_t at;
        struct place place;
    } asked[NODES];
    bool tells; /* the server that it followed, until that one has heard */
    /* As a follower. */
    uint32_t target;
    uint32_t question;  /* number of the one that is open */
    uint64_t asked_at;  /* 0: none is open */
    struct place place; /* of the target's journal: taken so far */
    struct place next_place;
    bool has_next_place;
};

/* ---- messages ---- */

enum message_kind {
    MESSAGE_OPEN,
    MESSAGE_PUSH,
    MESSAGE_REPLY,
    MESSAGE_ASK,
    MESSAGE_ANSWER,
    MESSAGE_TELL,
    MESSAGE_HEARD,
    MESSAGE_ETCD_ASK,
    MESSAGE_ETCD_ANSWER
};
enum reply { REPLY_OPENED, REPLY_ACK, REPLY_GAP, REPLY_REFUSED };

struct message {
    struct message *next;
    enum message_kind kind;
    uint64_t at;             /* arrives */
    uint32_t from, to, life; /* of the node it goes to; of an answer's asker */
    uint32_t client, connection, question, history;
    enum reply reply;
    uint64_t epoch, sequence, disk;
    struct place place;
    uint32_t asker_life;
    bool is_base, is_gone;
    struct place behind;        /* of a base */
    struct record_list records; /* of an answer */
    struct etcd_ask etcd_ask;
    struct etcd_answer etcd_answer;
};

/* ---- clients: client.c ---- */

struct client {
    uint32_t index, node, connection;
    bool is_open, waits_open;
    uint64_t acked, sent; /* sequences */
    uint64_t heard_at;
    uint64_t epoch; /* the greatest it has heard, and whose that is */
    uint32_t epoch_node;
    uint32_t history; /* that acknowledged last */
    uint64_t left;    /* bits of histories that others took the place of, to it */
};

/* ---- all ---- */

struct seen {
    uint64_t events, crashes, promotions, doubles, anew, gone, compared, other, again, gaps, acks,
        late_acks, digests, compactions, refused, deposed, lost_messages, applied, names_lost,
        names_taken, insync, stalls, fenced, handed_over, heirs;
};

struct sim {
    uint64_t seed;
    struct dice dice;
    enum part_out out;
    enum promise promise;
    bool is_leased; /* etcd decides who serves */
    struct etcd_state etcd;
    bool is_rash; /* its operator may promote two in the same epoch */
    bool heals;   /* no faults any more */
    uint64_t now;
    uint32_t n_nodes, n_histories;
    struct node nodes[NODES];
    struct client clients[CLIENTS];
    struct message *messages;
    struct record_list in_hand; /* of the message that is being delivered */
    struct sim_record *records; /* all there are */
    embd_schema schemas[2];
    uint64_t cut_until[ENDS][NODES]; /* nothing passes between these */
    uint64_t last_at[ENDS][ENDS];    /* of a message: connections keep their order */
    uint64_t promote_at;
    struct place handed; /* all that the primary had that named an heir last */
    uint32_t authority;  /* promoted last, or the first server */
    struct {
        uint64_t chain, digest;
    } digests[DIGESTS]; /* of the tables behind a record, by its checksum */
    char lines[LINES][LINE_BYTES];
    uint32_t n_lines;
    bool prints;
    char why[256];
    jmp_buf failed;
    struct seen seen;
};

/* Runs one seed; NULL: all that was promised was kept. Else why not; `prints` the whole schedule,
 * or its end where it fails. */
const char *sim_run(struct sim *sim, uint64_t seed, enum part_out out, bool prints);

uint32_t sim_below(struct sim *sim, uint32_t n);
bool sim_one_in(struct sim *sim, uint32_t n);
void sim_say(struct sim *sim, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The run ends here. */
_Noreturn void sim_fail(struct sim *sim, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Zeroed, but for these. */
struct message *sim_send(struct sim *sim, enum message_kind kind, uint32_t from, uint32_t to);
/* Places in cut_until and last_at. */
static inline uint32_t sim_client_end(uint32_t client)
{
    return NODES + client;
}

/* disk.c */
void disk_open(struct sim *sim, struct disk *disk);
void disk_close(struct disk *disk);
/* A frame, sealed as the disk's next record. */
struct sim_record *disk_append(struct sim *sim, struct disk *disk,
                               const struct frame_scanner *frame);
/* What was not synced may be lost. */
void disk_crash(struct sim *sim, struct disk *disk);
/* Records before its synced end become part of the base. */
void disk_compact(struct disk *disk);
/* Empty, and its records go on at `begin`. */
void disk_clear(struct disk *disk, struct place begin);
void list_add(struct record_list *list, struct sim_record *record);
void list_free(struct record_list *list);

/* node.c */
void node_open(struct sim *sim, struct node *node, uint32_t index);
void node_close(struct node *node);
void node_crash(struct sim *sim, struct node *node);
/* It is stopped in order, and then is: all that it has is on its disk. */
void node_stop(struct sim *sim, struct node *node);
void node_end(struct sim *sim, struct node *node);
/* It has answered all that had begun. */
bool node_is_finished(const struct node *node);
void node_start(struct sim *sim, struct node *node);
void node_empty_engine(struct node *node);
/* It has its tables. */
void node_create_tables(struct sim *sim, struct node *node);
bool node_serves(const struct node *node);
/* Its disk goes on, and what that has is applied. */
void node_tick(struct sim *sim, struct node *node);
/* Replays one record in the engine. */
void node_replay(struct sim *sim, struct node *node, struct sim_record *record);
void node_take_open(struct sim *sim, struct node *node, const struct message *m);
void node_take_push(struct sim *sim, struct node *node, const struct message *m);
/* Answers whose time has come. */
void node_answer_waiting(struct sim *sim, struct node *node);
/* It serves nothing from now on. */
void node_depose(struct sim *sim, struct node *node, uint64_t epoch);

/* follow.c */
void follow_tick(struct sim *sim, struct node *node);
void follow_take_ask(struct sim *sim, struct node *node, const struct message *m);
void follow_take_answer(struct sim *sim, struct node *node, const struct message *m);
void follow_begin(struct sim *sim, struct node *node, uint32_t target);
void follow_promote(struct sim *sim, struct node *node, uint64_t epoch);
/* Those in the journal of the primary that must have a record before it is acknowledged have it. */
bool follow_has(const struct sim *sim, const struct node *node, uint64_t position);
/* Whether the node may take the primary's place, and no acknowledged push would be lost. */
bool follow_is_ready(const struct sim *sim, const struct node *node);

/* etcd.c */
void etcd_take(struct sim *sim, const struct message *m);

/* member.c */
void member_start(const struct sim *sim, struct node *node);
void member_tick(struct sim *sim, struct node *node);
void member_take(struct sim *sim, struct node *node, const struct message *m);
/* A follower has asked for records. */
void member_note_fed(const struct sim *sim, struct node *node, const struct message *m);
/* It answers no client. */
bool member_is_fenced(const struct sim *sim, const struct node *node);
/* Those that are required have a record. */
bool member_has(const struct sim *sim, struct node *node, uint64_t position);

/* client.c */
void client_tick(struct sim *sim, struct client *client);
void client_take(struct sim *sim, struct client *client, const struct message *m);
/* Contents of a push, the same whenever it is sent. */
void client_fill(const struct sim *sim, struct sim_op *op, uint32_t client, uint64_t sequence);
struct push_number client_stream(uint32_t client, uint64_t sequence);

/* check.c */
uint64_t check_digest(struct sim *sim, struct node *node);
/* The tables behind that record are those of all others that have it. */
void check_note_digest(struct sim *sim, const struct node *node, uint64_t chain, uint64_t digest);
/* Each push of each client up to its stream's last was applied once. */
void check_once(struct sim *sim, struct node *node);
/* Whether acknowledged pushes may be lost: the promise was less than that. */
bool check_may_lose(const struct sim *sim);
/* The node begins to serve, or all is over: no acknowledged push is lost, unless it may be. */
void check_none_lost(struct sim *sim, struct node *node, const char *when);

#endif
