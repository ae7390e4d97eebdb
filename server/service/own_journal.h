/* own_journal.h - a shard's journal is opened. */
#ifndef EMBD_SERVICE_OWN_JOURNAL_H
#define EMBD_SERVICE_OWN_JOURNAL_H

#include "server/service/state.h"

struct journal_config own_journal_config(const struct shard *shard);
/* It goes on there, as shard->commit.journal. */
int own_journal_open(struct shard *shard, const struct journal_end *end, struct embd__error *e);

#endif
