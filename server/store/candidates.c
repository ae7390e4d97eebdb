/* candidates.c - see candidates.h. */
#include "server/store/candidates.h"

uint64_t store_least_candidates = STORE_LEAST_CANDIDATES;
