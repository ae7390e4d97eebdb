/* forgetful.c - a server that does not remember which pushes it has applied: linked in with --wrap,
 * in place of what looks them up. */
#include "server/engine/writers.h"

int __real_writers_look(const struct writers *writers, const struct push_writer *push,
                        struct embd__error *e);
int __wrap_writers_look(const struct writers *writers, const struct push_writer *push,
                        struct embd__error *e);

int __wrap_writers_look(const struct writers *writers, const struct push_writer *push,
                        struct embd__error *e)
{
    int status = __real_writers_look(writers, push, e);
    return status == WRITER_AGAIN ? EMBD_OK : status;
}
