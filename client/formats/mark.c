/* mark.c - embd_mark: a follower and its server digest their tables at one position.
 *
 * Each shard of the follower is told to, and asked until both sides have their digests. */
#include <string.h>
#include <time.h>

#include "client/core/client.h"
#include "client/formats/admin.h"
#include "embd/admin.h"

#define TURN_NS 20000000 /* between two looks */

struct told {
    char state[16], why[128];
};

static int ask(embd_client *client, uint64_t mark, uint32_t shard, struct told *out)
{
    struct answer *answer;
    struct fields f;
    struct msg *m = embd__admin_begin(client, METHOD_SCAN);
    embd__msg_map(m, 1);
    embd__msg_field_uint(m, "mark", mark);
    int status = embd__request(client, shard, LISTENER_ADMIN, &answer);
    if (status != EMBD_OK)
        return status;
    embd__read_fields(&f, &answer->reader, "scan");
    embd__field_str(&f, "state", out->state, sizeof out->state, NULL);
    embd__field_str(&f, "why", out->why, sizeof out->why, "");
    embd__field_uint(&f, "position", 0, UINT64_MAX, FIELD_REQUIRED);
    embd__fields_end(&f);
    return embd__admin_end(client, shard, METHOD_SCAN, answer);
}

/* An earlier version wants a table, and does not know the field. */
static int no_marks(embd_client *client)
{
    struct embd__error *e = embd__client_error(client);
    if (e->status == EMBD_INVALID)
        e->status = EMBD_UNSUPPORTED;
    return e->status;
}

static int await(embd_client *client, uint64_t mark, uint32_t shard, bool *same_out)
{
    static const struct timespec turn = {.tv_nsec = TURN_NS};
    struct told told;
    while (ask(client, mark, shard, &told) == EMBD_OK) {
        if (strcmp(told.state, "failed") == 0)
            return embd__error_set(embd__client_error(client), EMBD_BUSY,
                                   "shard %u was not compared: %s", shard, told.why);
        if (strcmp(told.state, "compares") != 0) {
            *same_out = *same_out && strcmp(told.state, "same") == 0;
            return EMBD_OK;
        }
        nanosleep(&turn, NULL);
    }
    return no_marks(client);
}

EMBD_API int embd_mark(embd_client *follower, uint64_t mark, bool *same_out)
{
    struct embd__error *e = embd__client_error(follower);
    struct told told;
    *e = (struct embd__error){0};
    int status = EMBD_OK;
    bool same = true;
    if (mark == 0 || mark == UINT64_MAX)
        status = embd__error_set(e, EMBD_INVALID, "mark: %llu, expected 1 to 2^64 - 2",
                                 (unsigned long long)mark);
    for (uint32_t s = 0; s < embd_shard_count(follower) && status == EMBD_OK; s++)
        status = ask(follower, mark, s, &told) == EMBD_OK ? EMBD_OK : no_marks(follower);
    for (uint32_t s = 0; s < embd_shard_count(follower) && status == EMBD_OK; s++)
        status = await(follower, mark, s, &same);
    if (status == EMBD_OK)
        *same_out = same;
    return embd__error_keep(e, status);
}
