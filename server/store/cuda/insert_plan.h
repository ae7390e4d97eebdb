/* insert_plan.h - what a push, insert or load creates: counted first, then made. */
#ifndef EMBD_CUDA_INSERT_PLAN_H
#define EMBD_CUDA_INSERT_PLAN_H

#include "server/store/cuda/call.h"
#include "server/store/cuda/memory.h"

/* Lays out and enqueues the search for keys without a row, up to the report. 0 or a device's
 * status. */
void insert_plan_lay_out(struct call *call, struct arena *arena);
int insert_plan_start(struct call *call);

/* Instead of the start, where all keys probably have rows: looks them up, and sets the refs, the
 * items that a push sorts, and `misses` of the report. Where there are misses, the call has to be
 * started. */
int insert_plan_look(struct call *call, uint64_t *items);
/* The same where a pull has found them all, as call->found says. */
int insert_plan_compare(struct call *call);

/* Instead of the start, where all keys are probably new, and each comes once, as in pushes that
 * fill a table: they get entries and rows at once, behind the table's rows, without being looked up
 * before. `first`: as of insert_plan_commit. insert_plan_commit counts them, or, where is_wrong of
 * the report says so, insert_plan_unexpect takes them away, and the call has to be started.
 * insert_plan_may_expect: whether that is worth trying. */
bool insert_plan_may_expect(const struct call *call);
int insert_plan_expect(struct call *call, const struct first_push *first);
int insert_plan_unexpect(struct call *call);

/* The functions below need the report. */

/* Decides how many keys get a row, and takes memory for rows and entries. EMBD_FULL,
 * EMBD_NO_MEMORY in e: nothing changed. */
int insert_plan_reserve(struct call *call, bool may_drop, struct embd__error *e);
/* insert_plan_reserve, then enqueues the creation. `first`: a push for which
 * insert_plan_is_all_new is true, whose rows are then stepped as well; or NULL. */
int insert_plan_commit(struct call *call, bool may_drop, const struct first_push *first,
                       struct embd__error *e);
/* After insert_plan_reserve: every key of the request gets a row, and none was seen before. */
bool insert_plan_is_all_new(const struct call *call);
/* Sets and returns EMBD_FULL. */
int insert_plan_refuse(const struct call *call, uint64_t room, struct embd__error *e);

#endif
