/* verify.h - checks the part files of a dump directory that was opened. */
#ifndef EMBD_STORED_VERIFY_H
#define EMBD_STORED_VERIFY_H

#include "proto/stored/chain.h"
#include "proto/stored/ticker.h"

/* Reads every part of the tables (`only`: of one) of all its snapshots and compares it with its
 * manifest. */
int embd__verify_chain(const struct dump_chain *chain, const char *only, struct ticker *ticker,
                       struct embd__error *e);

#endif
