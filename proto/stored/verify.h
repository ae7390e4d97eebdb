/* verify.h - checks the part files of a dump directory that was opened. */
#ifndef EMBD_STORED_VERIFY_H
#define EMBD_STORED_VERIFY_H

#include "proto/stored/chain.h"
#include "proto/stored/ticker.h"

/* Reads every part of the tables (`only`: of one) of all its snapshots and compares it with its
 * manifest. */
int embd__verify_chain(const struct dump_chain *chain, const char *only, struct ticker *ticker,
                       struct embd__error *e);

/* What that is made of: the rows of one part, and what a share has beside parts. */
int embd__verify_part(const struct dump_share *share, const struct manifest_part *part,
                      const embd_schema *schema, struct ticker *ticker, struct embd__error *e);
int embd__verify_others(const struct dump_share *share, struct ticker *ticker,
                        struct embd__error *e);

#endif
