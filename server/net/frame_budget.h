/* frame_budget.h - how much memory the process gives to its peers: for connections, for what is
 * received on them, and for what their answers take. Charged before memory is taken.
 *
 * Who is charged, with what, and what follows where nothing is left:
 *
 *   a connection   its struct, and for TLS what OpenSSL was measured to take   told BUSY and closed
 *   bytes          that are read, and may have to be kept                      nothing is read
 *   a request      struct exchange, and a buffer for each bin                  it waits; then BUSY
 *   an answer      a chunk to make rows in                                     it waits
 *
 * Heads of answers and ciphertext on its way out are there already when they are charged; they are
 * bounded for each connection. Buffers that nobody has are not charged: of these a shard keeps an
 * eighth of the limit at most, for some seconds (frame_memory.h).
 *
 * So that all get on: connections have half at most, which leaves a frame its room; and what is
 * received leaves a 32nd part to new connections and to answers, whose end gives memory back. */
#ifndef EMBD_FRAME_BUDGET_H
#define EMBD_FRAME_BUDGET_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Shared by all threads of the process. */
struct frame_budget {
    _Atomic uint64_t used;
    _Atomic uint64_t connections; /* of it */
    uint64_t limit;
};

/* For what is received. False, and nothing is taken, when it would pass the limit. */
bool frame_budget_take(struct frame_budget *budget, uint64_t bytes);
/* The same for what is answered. */
bool frame_budget_take_answer(struct frame_budget *budget, uint64_t bytes);
/* Takes it in any case: for memory that is there already, and bounded by other means. */
void frame_budget_force(struct frame_budget *budget, uint64_t bytes);
void frame_budget_give(struct frame_budget *budget, uint64_t bytes);

/* For connections. */
bool frame_budget_take_connection(struct frame_budget *budget, uint64_t bytes);
void frame_budget_give_connection(struct frame_budget *budget, uint64_t bytes);

/* Little is left: time to read in small steps. */
bool frame_budget_is_tight(const struct frame_budget *budget);

#endif
