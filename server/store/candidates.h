/* candidates.h - how many candidates (keys seen fewer than admit_after times) a table of a shard
 * keeps: written once for all stores.
 *
 * A push or insert with keys that comes when there are as many as rows, and STORE_LEAST_CANDIDATES
 * at least, forgets all of them before it is judged: each of its keys without a row is seen for the
 * first time. So a table has fewer than that many, and those of one request. Nothing but the
 * numbers of rows and candidates decides, which a replay, a snapshot and any store have alike: no
 * order of keys has to be kept. Keys that come often are admitted between two times; most others
 * were seen once and would never have been. */
#ifndef EMBD_STORE_CANDIDATES_H
#define EMBD_STORE_CANDIDATES_H

#include <stdbool.h>
#include <stdint.h>

#define STORE_LEAST_CANDIDATES UINT64_C(1048576)
#define STORE_SIGHTS_MAX       0x3fffffffu /* that are counted of one */

/* STORE_LEAST_CANDIDATES; tests make it small before they open tables. */
extern uint64_t store_least_candidates;

static inline uint64_t candidates_most(uint64_t n_rows)
{
    return n_rows > store_least_candidates ? n_rows : store_least_candidates;
}

/* Whether a request that names keys forgets all candidates first. */
static inline bool candidates_are_forgotten(uint32_t admit_after, uint64_t n_rows,
                                            uint64_t n_candidates)
{
    return admit_after > 1 && n_candidates >= candidates_most(n_rows);
}

#endif
