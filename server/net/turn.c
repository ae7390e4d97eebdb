/* turn.c - see turn.h. */
#include "server/net/turn.h"

#include <uv.h>

static void pay(struct turn *turn, uint64_t n_turns)
{
    uint64_t paid = n_turns < UINT64_MAX / TURN_NS ? n_turns * TURN_NS : UINT64_MAX;
    turn->owed_ns -= paid < turn->owed_ns ? paid : turn->owed_ns;
}

bool turn_may_go_on(struct turn *turn, uint64_t number)
{
    if (turn->number != number) {
        pay(turn, number - turn->number);
        turn->number = number;
        turn->n_begun = 0;
    }
    if (turn->is_open)
        turn_count(turn, uv_hrtime());
    return !turn_is_over(turn);
}

bool turn_may_begin(struct turn *turn, uint64_t number)
{
    if (!turn_may_go_on(turn, number) || turn->n_begun == TURN_REQUESTS)
        return false;
    turn->n_begun++;
    return true;
}

void turn_rest(struct turn *turn)
{
    if (turn->is_open)
        turn_count(turn, uv_hrtime());
    turn->counted_ns = 0;
}
