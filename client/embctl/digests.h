/* digests.h - digests of tables, kept to be shown or compared. */
#ifndef EMBCTL_DIGESTS_H
#define EMBCTL_DIGESTS_H

#include "client/embctl/embctl.h"
#include "embd/admin.h"

struct kept_digest;

/* Zeroed before the first; freed by digests_fini. */
struct digests {
    struct kept_digest *list; /* [n] */
    size_t n;
};
void digests_fini(struct digests *digests);

/* A visit of embd_digest: keeps a copy in the struct digests that `arg` is. */
int digests_add(void *arg, const embd_table_digest *table);

void digests_print(const struct digests *digests);
/* Prints both, and where they differ. Returns EXIT_DONE or EXIT_DIFFERS. */
int digests_compare(const struct digests *here, const struct digests *there);

#endif
