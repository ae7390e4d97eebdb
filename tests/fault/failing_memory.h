/* failing_memory.h - the N-th piece of memory that embd's own code asks for is refused, N = 1, 2, …
 * until nothing is refused any more. Linked in with --wrap, so that it works under sanitizers too,
 * which then see what the error paths leak and touch. */
#ifndef EMBD_TESTS_FAILING_MEMORY_H
#define EMBD_TESTS_FAILING_MEMORY_H

#include <stdbool.h>
#include <stdint.h>

/* From now on: the n-th is refused, once. On any thread. */
void memory_fail(uint64_t n);
/* Nothing is refused for a while; and as before. */
void memory_pause(void);
void memory_go_on(void);
/* Nothing is refused any more. Returns whether something was. */
bool memory_end(void);

#endif
