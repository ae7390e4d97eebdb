/* sequence.h - backups that are made one behind the other, every minute or so: which one the next
 * is upon, and which ones go. Pure functions of a catalog.
 *
 * Of the increments upon one backup, only the last has others upon it. The servers know what
 * changed since their last seven cuts, and so few increments are upon one:
 *
 *   base <- a1   a2   a3   a4 <- b1   b2   b3   b4 <- c1
 *
 * A restore of c1 reads base, a4, b4 and c1. When they are an hour old, of all that are upon one
 * base the last stays, and what that is upon: here a4 and b4, but not a1 to a3. */
#ifndef EMBD_BACKUP_SEQUENCE_H
#define EMBD_BACKUP_SEQUENCE_H

#include "client/backup/catalog.h"

#define SEQUENCE_KNOWN       7u          /* cuts that servers know: server/snapshot/cuts_known.h */
#define SEQUENCE_UPON        4u          /* increments upon one backup */
#define SEQUENCE_CHAIN       256u        /* backups that a restore reads, at most */
#define SEQUENCE_CHAIN_BYTES (64u << 20) /* increments below that are no reason for a base */
#define SEQUENCE_DAY_S       86400u

/* The backup that the next one of this scope is upon; NULL: it has all rows. `now_s`: its time.
 * *is_due_out: all rows are due; with sequence->defers it is upon one all the same, within limits.
 */
const struct catalog_entry *sequence_upon(const struct catalog *catalog,
                                          const struct table_scope *scope,
                                          const struct backup_sequence *sequence, uint64_t now_s,
                                          bool *is_due_out);

/* Marks [catalog->n]: SEQUENCE_STAYS is set of what stays, and of all that it is upon:
 * - of the last `recent_s` seconds all;
 * - the newest backup, and the last one upon the base before;
 * - of the last day the last one upon each base;
 * - of the days before, `days` in all, the last base of each;
 * - what is not whole, or of another scope. */
enum { SEQUENCE_STAYS = 1, SEQUENCE_MET = 2 };
void sequence_thin(const struct catalog *catalog, const struct table_scope *scope,
                   const struct backup_sequence *sequence, uint64_t now_s, uint8_t *marks);

/* The beginning of their names: "archive-", with a number where the scope is not the usual one. */
#define SEQUENCE_PREFIX_BYTES 24u
void sequence_prefix(const struct table_scope *scope, char out[SEQUENCE_PREFIX_BYTES]);
/* Whether it is one of their names. */
bool sequence_is_name(const struct table_scope *scope, const char *name);

#endif
