/* slow_replay.c - a server that reads each record of its journal 10 ms late, for as long as the
 * file is there that EMBD_SLOW_REPLAY names: linked into one in place of record_read. */
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "server/journal/record.h"

bool __real_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);
bool __wrap_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out);

bool __wrap_record_read(const struct record_key *key, const uint8_t *bytes, uint64_t n,
                        struct record *out)
{
    const char *path = getenv("EMBD_SLOW_REPLAY");
    if (path != NULL && access(path, F_OK) == 0)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return __real_record_read(key, bytes, n, out);
}
