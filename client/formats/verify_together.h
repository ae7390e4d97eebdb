/* verify_together.h - embd__verify_chain by two threads, while servers have nothing to do yet. */
#ifndef EMBD_FORMATS_VERIFY_TOGETHER_H
#define EMBD_FORMATS_VERIFY_TOGETHER_H

#include "proto/stored/chain.h"
#include "proto/stored/ticker.h"

/* The same results. Of several parts that are damaged it may name another one. */
int embd__verify_together(const struct dump_chain *chain, const char *only, struct ticker *ticker,
                          struct embd__error *e);

#endif
