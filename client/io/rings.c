/* rings.c - see rings.h. */
#include "client/io/rings.h"

#include <sched.h>
#include <stdlib.h>
#include <unistd.h>

#include "client/io/link_internal.h"

/* While it spins, before the loop looks at its sockets: some 2 us. */
enum { LOOKS_PER_TURN = 100 };

int embd__rings_read(uint64_t *spin_ns_out, struct embd__error *e)
{
    const char *text = getenv("EMBD_SPIN_US");
    unsigned long us = SPIN_DEFAULT_US;
    char *end = (char *)"";
    if (text != NULL && text[0] != '\0')
        us = strtoul(text, &end, 10);
    if (*end != '\0' || us > SPIN_MOST_US || (text != NULL && text[0] == '-'))
        return embd__error_set(e, EMBD_INVALID, "EMBD_SPIN_US: '%.60s'; expected 0 to %u", text,
                               SPIN_MOST_US);
    *spin_ns_out = sysconf(_SC_NPROCESSORS_ONLN) > 1 ? us * 1000 : 0; /* servers may have others */
    return EMBD_OK;
}

/* ---- links ---- */

/* Whether looking at it brings it on. */
static bool is_due(const struct link *link)
{
    const struct ring *ring = &link->ring.ring;
    return embd__ring_ready(ring) != 0 || (link->is_blocked && embd__ring_room(ring) != 0);
}

static bool is_idle(const struct link *link)
{
    return link->inflight.n == 0 && link->queue.head == NULL;
}

static bool look_at_all(struct rings *rings)
{
    bool found = false;
    struct link *next;
    for (struct link *link = LIST_FIRST(&rings->watched); link != NULL; link = next) {
        next = LIST_NEXT(link, in_watched);
        if (is_due(link)) {
            found = true;
            embd__link_look(link);
        }
        if (is_idle(link))
            embd__rings_unwatch(link);
    }
    return found;
}

/* Links that wait for nothing, or for a doorbell, are not watched any more. False: all of them. */
static bool sleep_all(struct rings *rings)
{
    bool found = false;
    struct link *next;
    for (struct link *link = LIST_FIRST(&rings->watched); link != NULL; link = next) {
        next = LIST_NEXT(link, in_watched);
        unsigned waits = RING_BYTES | (link->is_blocked ? RING_ROOM : 0u);
        if (embd__ring_wait(&link->ring.ring, waits))
            embd__rings_unwatch(link);
        else
            found = true;
    }
    return found;
}

static bool any_is_due(const struct rings *rings)
{
    const struct link *link;
    LIST_FOREACH(link, &rings->watched, in_watched)
    if (is_due(link))
        return true;
    return false;
}

/* For some microseconds, where there are rings: sockets are looked at by the loop. */
static bool pause_and_look(struct rings *rings)
{
    if (LIST_EMPTY(&rings->watched))
        return false;
    for (int i = 0; i < LOOKS_PER_TURN && !any_is_due(rings); i++)
        embd__spin_pause();
    return look_at_all(rings);
}

bool embd__rings_glance(struct rings *rings)
{
    if (LIST_EMPTY(&rings->watched) || !embd__spin_is_worth(&rings->spin) || !pause_and_look(rings))
        return false;
    embd__spin_paid(&rings->spin);
    return true;
}

/* False: the loop may sleep. */
static bool look_or_sleep(struct rings *rings)
{
    bool found = look_at_all(rings);
    bool waits = rings->n_short > 0 || !LIST_EMPTY(&rings->watched);
    if (!found && (!waits || !rings->may_wait))
        return false;
    if (!found && !embd__spin_goes_on(&rings->spin, uv_hrtime()))
        return sleep_all(rings);
    if (found || pause_and_look(rings))
        embd__spin_found(&rings->spin);
    return true;
}

/* ---- the loop ---- */

/* Others that want this processor go first. */
static void on_busy(uv_idle_t *busy)
{
    (void)busy;
    sched_yield();
}

static void on_prepare(uv_prepare_t *prepare)
{
    struct rings *rings = prepare->data;
    if (look_or_sleep(rings))
        uv_idle_start(&rings->busy, on_busy);
    else
        uv_idle_stop(&rings->busy);
}

void embd__rings_init(struct rings *rings, uv_loop_t *loop, uint64_t spin_ns)
{
    *rings = (struct rings){.spin = {.most_ns = spin_ns}};
    LIST_INIT(&rings->watched);
    uv_prepare_init(loop, &rings->prepare);
    uv_idle_init(loop, &rings->busy);
    rings->prepare.data = rings;
    uv_prepare_start(&rings->prepare, on_prepare);
    uv_unref((uv_handle_t *)&rings->prepare);
    uv_unref((uv_handle_t *)&rings->busy);
}

void embd__rings_close(struct rings *rings)
{
    uv_close((uv_handle_t *)&rings->prepare, NULL);
    uv_close((uv_handle_t *)&rings->busy, NULL);
}
