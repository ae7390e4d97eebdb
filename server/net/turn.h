/* turn.h - how much of the shard's thread a connection gets before others do.
 *
 * A turn of the loop gives each connection TURN_REQUESTS requests, and TURN_NS of the thread. What
 * a request takes beyond that (a push that steps a whole table, a pull of millions of keys) is
 * owed: the connection begins no further request until as many turns have passed as its debt has
 * TURN_NS. Where nobody else asks for anything, turns pass at once.
 *
 * Counted is the time from a request's arrival to the end of its handling, of making the rows that
 * are sent, and of applying its push when that is journaled; a slice of a push that steps all rows
 * counts as TURN_NS (service/sweeps.h). So is the time of copying bins out of shared memory; others
 * have their turn between pieces of it. No other request is divided. The clock is read where it is
 * read anyway, and else only where requests follow each other at once or their answers come later.
 * Owner: the shard's thread. */
#ifndef EMBD_TURN_H
#define EMBD_TURN_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#define TURN_REQUESTS 32u
#define TURN_NS       UINT64_C(1000000)

struct turn {
    uint64_t number;     /* of the loop's, in which it last asked for one */
    uint32_t n_begun;    /* requests in it */
    uint64_t owed_ns;    /* had, and not paid by turns yet */
    uint64_t counted_ns; /* its work is counted up to here; 0: it is not at work */
    bool is_open;        /* it has worked since */
};

/* It is at work since `now_ns`, or still. */
static inline void turn_work(struct turn *turn, uint64_t now_ns)
{
    if (turn->counted_ns == 0)
        turn->counted_ns = now_ns;
    turn->is_open = true;
}

/* Its work until `now_ns` is counted. */
static inline void turn_count(struct turn *turn, uint64_t now_ns)
{
    if (turn->counted_ns != 0 && now_ns > turn->counted_ns)
        turn->owed_ns += now_ns - turn->counted_ns;
    turn->counted_ns = now_ns;
    turn->is_open = false;
}

/* It has had what it gets in this turn. */
static inline bool turn_is_over(const struct turn *turn)
{
    return turn->owed_ns >= TURN_NS;
}

static inline void turn_pay(struct turn *turn, uint64_t n_turns)
{
    uint64_t paid = n_turns < UINT64_MAX / TURN_NS ? n_turns * TURN_NS : UINT64_MAX;
    turn->owed_ns -= paid < turn->owed_ns ? paid : turn->owed_ns;
}

/* Whether what it has begun may go on in the loop's turn `number`. */
static inline bool turn_may_go_on(struct turn *turn, uint64_t number)
{
    if (turn->number != number) {
        turn_pay(turn, number - turn->number);
        turn->number = number;
        turn->n_begun = 0;
    }
    if (turn->is_open)
        turn_count(turn, uv_hrtime());
    return !turn_is_over(turn);
}

/* The same of a further request. */
static inline bool turn_may_begin(struct turn *turn, uint64_t number)
{
    if (!turn_may_go_on(turn, number) || turn->n_begun == TURN_REQUESTS)
        return false;
    turn->n_begun++;
    return true;
}

/* Others are at work next. */
static inline void turn_rest(struct turn *turn)
{
    if (turn->is_open)
        turn_count(turn, uv_hrtime());
    turn->counted_ns = 0;
}

#endif
