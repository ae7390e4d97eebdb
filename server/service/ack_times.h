/* ack_times.h - when records of this shard's journal were acknowledged, so that a follower is told
 * how old those are that it gets.
 *
 * A turn of the shard acknowledges some records; the first of them is noted with the time. Of the
 * last moments each millisecond has a note, of the last 100 s each tenth of a second. A record
 * between two notes counts as old as the first of them: ages are never too small, but for the turn
 * in which the acknowledgement was sent.
 *
 * Kept from the first question of a follower on. Owner: the shard's thread. */
#ifndef EMBD_SERVICE_ACK_TIMES_H
#define EMBD_SERVICE_ACK_TIMES_H

#include <stdint.h>

struct ack_times;

/* Records from `position` on will be noted; of earlier ones nothing is known. NULL: no memory. */
struct ack_times *ack_times_new(uint64_t position);
void ack_times_free(struct ack_times *times);
/* Records before `end` are applied, or are being applied: none of those that are not noted yet was
 * acknowledged earlier than in this turn. */
void ack_times_note(struct ack_times *times, uint64_t end, uint64_t now_ns);
/* How long ago that record was acknowledged, in us; FOLLOW_AGE_MOST_US: as long or longer, or not
 * known. */
uint64_t ack_times_age_us(const struct ack_times *times, uint64_t position, uint64_t now_ns);

#endif
