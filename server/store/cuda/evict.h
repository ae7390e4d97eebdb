/* evict.h - on_full = evict_...: removes rows to make room, by the rules of use.h. */
#ifndef EMBD_CUDA_EVICT_H
#define EMBD_CUDA_EVICT_H

#include "server/store/cuda/call.h"
#include "server/store/cuda/compact.h"

/* With the report: if keys need more rows than there is room, evicts, once per call, and enqueues
 * the plan again; *again is set then. EMBD_FULL, EMBD_NO_MEMORY: nothing changed. */
int evict_others(struct call *call, bool *again, struct embd__error *e);
/* The same without effect: counts the rows that would go and takes the memory for it. Waits. */
int evict_decide(struct call *call, bool may_drop, uint64_t *n_out, struct embd__error *e);

/* The steps of a pass. A group takes them on all of its devices. Functions that return a number
 * only enqueue, and return 0 or a device's status. */
struct evict_pass {
    struct evict_view view;
    uint32_t *marks;
    struct removal removal;
    void *survey_memory, *removal_memory; /* of the device */
};
/* With the report: counts the rows that may go, which are those that the request does not name. */
int evict_survey(const struct call *call, struct evict_pass *pass, struct use_survey *pinned);
/* With the survey: notes the step before which no row expires. */
void evict_note_survey(struct store *store, const struct use_survey *found);
/* Whether a pass would find nothing, because no row can have expired. */
bool evict_is_vain(const struct store *store);
/* How many rows a pass removes at most, where `missing` rows are missing. */
uint64_t evict_most(const embd_schema *s, uint64_t missing);
/* Takes all memory for n evicted and n_new new rows. */
int evict_reserve(struct call *call, struct evict_pass *pass, uint64_t n, uint64_t n_new);
/* Removes the rows of view.choice, n > 0 of them. Enqueue the plan again afterwards. */
int evict_chosen(struct call *call, struct evict_pass *pass, uint64_t n);
void evict_free(const struct store *store, struct evict_pass *pass);

#endif
