/* narrow.h - the shard is a replica with narrow rows: it follows another server's shard, keeps rows
 * as f16, i8 or another dtype and no optimizer state, and answers reads.
 *
 * Records of pushes are of no use without optimizer state. So it subscribes to each table
 * (proto/changes.h): a round has the rows that changed since the one before and the keys that are
 * gone, by one cut of the table there. Rows come rounded to nearest. A round is shown as a whole: a
 * table's rows are always those of one cut. Rounds follow one another in sweeps over all tables.
 *
 * It has no journal and nothing on disk: a start, a lost connection and a part that is not the next
 * one begin anew. Then a table is taken beside the one that is shown, and takes its place.
 *
 * Owner: the shard's thread. */
#ifndef EMBD_SERVICE_NARROW_H
#define EMBD_SERVICE_NARROW_H

#include "server/service/following.h"

struct narrow;
struct table;

/* Sets shard->narrow where config.is_narrow says so. EMBD_NO_MEMORY. */
int narrow_open(struct shard *shard, struct embd__error *e);
void narrow_close(struct shard *shard);

/* Takes answers, and asks. True: call it again soon. */
bool narrow_go_on(struct shard *shard);

/* ---- narrow_serving.c; the shard is one ---- */

/* Whether it answers that: tables always, reads once it has all of them. */
bool narrow_serves(const struct shard *shard, enum method method);
/* EMBD_UNSUPPORTED: says what the replica lacks, and whom to ask. */
int narrow_refuse_method(struct call *call);
/* That it is taking its tables. */
void narrow_tell(const struct shard *shard, char *text, size_t text_bytes);
/* EMBD_LOADING: a part of a round is in the table, and more is to come. */
int narrow_check_table(struct call *call, const struct table *table);
/* The same of the tables of a pull. Sets its reader's lag; EMBD_LOADING: it is further behind than
 * the pull allows. */
int narrow_check_pull(struct call *call);
/* records, bytes and position are 0, and it is compared with nothing. */
struct following_figures narrow_figures(const struct shard *shard);
/* As those of following.h: a row counts with the time since the cut of the round before its own. */
const struct histogram *narrow_freshness(const struct shard *shard);
uint64_t narrow_freshness_us(const struct shard *shard, double quantile);

#endif
