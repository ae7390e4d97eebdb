/* judge.c - see judge.h.
 *
 * Others of another cluster count if they are more than those of the directory's own: if only two
 * servers differ, nothing says which one is wrong, and both are refused. */
#include "server/identity/judge.h"

#include <string.h>

static bool is_of(const struct identity_answer *answer, const char *cluster)
{
    return answer->is_there && answer->cluster[0] != '\0' && strcmp(answer->cluster, cluster) == 0;
}

static uint32_t count(const struct identity_answer *answers, uint32_t n, const char *cluster)
{
    uint32_t found = 0;
    for (uint32_t i = 0; i < n; i++)
        found += is_of(&answers[i], cluster);
    return found;
}

/* The cluster that most are of; on a tie the directory's own, else the first that answers. */
static void find_cluster(const struct identity_own *own, const struct identity_answer *answers,
                         uint32_t n, struct verdict *out)
{
    uint32_t most = own->cluster[0] != '\0' ? count(answers, n, own->cluster) : 0;
    memcpy(out->cluster, own->cluster, sizeof out->cluster);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t alike = answers[i].is_there ? count(answers, n, answers[i].cluster) : 0;
        out->is_heard = out->is_heard || alike > 0;
        if (alike <= most)
            continue;
        most = alike;
        out->witness = i;
        memcpy(out->cluster, answers[i].cluster, sizeof out->cluster);
    }
}

/* The server of that cluster that knows the latest of this one. */
static const struct identity_answer *find_witness(const struct identity_answer *answers, uint32_t n,
                                                  struct verdict *out)
{
    const struct identity_answer *witness = NULL;
    for (uint32_t i = 0; i < n; i++) {
        if (!is_of(&answers[i], out->cluster) ||
            (witness != NULL && answers[i].known_epoch <= witness->known_epoch))
            continue;
        witness = &answers[i];
        out->witness = i;
    }
    return witness;
}

static bool has_tables(const struct identity_answer *answers, uint32_t n, const char *cluster)
{
    for (uint32_t i = 0; i < n; i++)
        if (is_of(&answers[i], cluster) && answers[i].tables > 0)
            return true;
    return false;
}

void judge(const struct identity_own *own, const struct identity_answer *answers, uint32_t n,
           struct verdict *out)
{
    *out = (struct verdict){.judgement = JUDGED_OWN};
    find_cluster(own, answers, n, out);
    if (own->cluster[0] != '\0' && strcmp(own->cluster, out->cluster) != 0)
        out->judgement = JUDGED_FOREIGN;
    const struct identity_answer *witness = find_witness(answers, n, out);
    if (witness == NULL || witness->known_epoch == 0)
        return;
    out->greatest_epoch = witness->known_epoch;
    if (out->judgement == JUDGED_FOREIGN)
        return;
    bool is_later = witness->known_epoch > own->epoch ||
                    (witness->known_epoch == own->epoch && witness->known_start != own->start);
    if (own->cluster[0] != '\0' || own->has_journal)
        out->judgement = is_later ? JUDGED_OLDER : JUDGED_OWN;
    else if (has_tables(answers, n, out->cluster))
        out->judgement = JUDGED_EMPTY;
}
