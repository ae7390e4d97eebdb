/* fake_server.h - a peer that greets as a server of one shard with one table, and then behaves as
 * told. */
#ifndef EMBD_TESTS_FAKE_SERVER_H
#define EMBD_TESTS_FAKE_SERVER_H

#include <pthread.h>
#include <stdatomic.h>

/* What becomes of a pull or push; the first ones of another method. */
enum fake_manner {
    FAKE_GOOD,
    FAKE_OLD_VERSION,  /* hello names protocol 2 */
    FAKE_OTHER_SHARD,  /* hello says shard 1 of 2, after the map said 1 shard */
    FAKE_NO_MAP,       /* cluster lists no shards */
    FAKE_OTHER_SCHEMA, /* table_describe names another table */
    FAKE_SILENT,       /* no answer at all; later requests are answered */
    FAKE_SLOW,   /* half of the answer, then nothing for longer than the deadline, then the rest */
    FAKE_CLOSES, /* closes instead of answering */
    FAKE_CLOSES_MIDWAY,      /* closes after half of the values */
    FAKE_ANSWERS_AND_RESETS, /* with what it has not read yet; then is good */
    FAKE_CLOSES_ONCE,        /* closes instead of answering, goes on as the next one */
    FAKE_CLOSES_MIDWAY_ONCE, /* closes after half of the values, then is good */
    FAKE_GARBAGE,            /* bytes that are no message */
    FAKE_OTHER_MSGID,
    FAKE_REQUESTS,  /* sends a request instead of an answer */
    FAKE_MANY_ROWS, /* more rows than were asked for, with the bytes for them */
    FAKE_FEW_ROWS,
    FAKE_OTHER_DIM, /* as many bytes, other dim and rows */
    FAKE_OTHER_DTYPE,
    FAKE_LYING_ROWS, /* right bytes, wrong number in the map */
    FAKE_LONG_BIN,   /* right number in the map, bytes of a row more */
    FAKE_EXTRA_BIN,
    FAKE_NO_BIN,
    FAKE_HUGE_BIN,      /* announces 4 GiB */
    FAKE_STRANGE_ERROR, /* an error with a number that is no status */
    FAKE_NOTIFIES,      /* a notification first, then the good answer */
    FAKE_READS_NOTHING, /* stops reading for a while */
    FAKE_MOVED,         /* another map splits keys; then: */
    FAKE_MAP_LATER,     /* cluster is refused once; then: */
    FAKE_MAP_NEW,       /* it tells that map, and all is good */
};

struct fake_server;

/* A shard that moves to and fro: it is at homes[version % 2], which both tell. */
struct fake_moves {
    struct fake_server *homes[2];
    atomic_ulong version;
};

struct fake_server {
    struct fake_moves *moves; /* NULL: it stays; set after the start, before there are clients */
    int listener;
    char address[32];
    pthread_t thread;
    atomic_int manner;
    atomic_bool stops;
};

#define FAKE_DIM 4u

void fake_server_start(struct fake_server *server);
/* After its clients were closed. */
void fake_server_stop(struct fake_server *server);

#endif
