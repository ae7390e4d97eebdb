/* plan.c - the choice between every occurrence and distinct keys, by what each would move. */
#include "call.h"

bool embd__plan_is_rows(struct embd_call *call, const struct work *work)
{
    (void)work;
    return call->plan == EMBD_PLAN_ROWS;
}
