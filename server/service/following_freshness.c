/* following_freshness.c - how long after its acknowledgement a change was here, as a histogram.
 *
 * Each record that comes behind the base is a probe. The other server says how old the first record
 * of an answer is, and how long the question waited there. The question arrived there after it was
 * sent, so
 *
 *     acknowledged >= sent + waited - age
 *
 * by the clock here: durations of two clocks are added, and no moment of the other one is believed.
 * Once all records of the answer are applied, all of them count with the time since then. So none
 * was here later than the histogram says, and it says too much by the way of the question, and by
 * what the answer's records are apart.
 *
 * Records that nobody could read yet do not count: those of a base, and those behind it that were
 * there when it was asked for. A server of an earlier version says no ages: then none counts. */
#include "server/service/following_inside.h"

/* Answers that are asked for again are counted then. */
void following_forget_probes(struct following *f)
{
    f->freshness.n = 0;
}

/* Before f->came is the answer's. Some of it this journal may have had at the start. */
void following_note_probe(struct shard *shard, const struct follow_answer *found, uint64_t sent_ns)
{
    struct following *f = shard->following;
    struct following_freshness *fresh = &f->freshness;
    uint64_t applied = shard->commit.applied.position;
    uint64_t from = applied > f->came.position ? applied : f->came.position;
    uint64_t n = found->position > from ? found->position - from : 0;
    if (!found->has_age || n == 0 || f->state != FOLLOWING_RECORDS || f->catches_up)
        return;
    int64_t acked_ns =
        (int64_t)(sent_ns + found->waited_us * 1000) - (int64_t)(found->age_us * 1000);
    if (fresh->n == FOLLOWING_PROBES) { /* too many: the last one stands for this one, too */
        struct following_probe *last = &fresh->probes[fresh->n - 1];
        last->end = found->position;
        last->n += n;
        last->acked_ns = last->acked_ns < acked_ns ? last->acked_ns : acked_ns;
        return;
    }
    fresh->probes[fresh->n++] = (struct following_probe){found->position, n, acked_ns};
}

static void turn_window(struct following_freshness *fresh, uint64_t now_ns)
{
    if (now_ns - fresh->turned_ns < STAGES_WINDOW_NS)
        return;
    fresh->before[1] = fresh->before[0];
    fresh->before[0] = fresh->all;
    fresh->turned_ns = now_ns;
}

void following_count_probes(struct shard *shard)
{
    struct following_freshness *fresh = &shard->following->freshness;
    uint64_t now_ns = clock_ns();
    uint32_t n = 0;
    while (n < fresh->n && fresh->probes[n].end <= shard->commit.applied.position) {
        const struct following_probe *probe = &fresh->probes[n++];
        int64_t ns = (int64_t)now_ns - probe->acked_ns;
        histogram_add(&fresh->all, ns > 0 ? (uint64_t)ns : 0, probe->n);
    }
    for (uint32_t i = n; i < fresh->n; i++)
        fresh->probes[i - n] = fresh->probes[i];
    fresh->n -= n;
    turn_window(fresh, now_ns);
}

uint64_t following_freshness_us(const struct shard *shard, double quantile)
{
    const struct following_freshness *fresh = &shard->following->freshness;
    return histogram_quantile(&fresh->all, &fresh->before[1], quantile) / 1000;
}

const struct histogram *following_freshness(const struct shard *shard)
{
    return shard->following != NULL ? &shard->following->freshness.all : NULL;
}
