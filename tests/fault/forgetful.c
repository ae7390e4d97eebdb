/* forgetful.c - a server that does not remember which pushes it has applied: linked in with --wrap,
 * in place of what looks them up. */
#include "server/engine/pushers.h"

int __real_pushers_look(const struct pushers *pushers, const struct push_number *push,
                        struct embd__error *e);
int __wrap_pushers_look(const struct pushers *pushers, const struct push_number *push,
                        struct embd__error *e);

int __wrap_pushers_look(const struct pushers *pushers, const struct push_number *push,
                        struct embd__error *e)
{
    int status = __real_pushers_look(pushers, push, e);
    return status == PUSH_AGAIN ? EMBD_OK : status;
}
