/* turns.h - who comes next: askers that were refused because another job ran, in their order. An
 * asker that asks again keeps its place; one that does not loses it. So whoever asks again and
 * again gets its turn, however often others ask. All admins are one asker.
 *
 * A trainer whose job has made changes wait for some time rests as long before its next one: so no
 * token has changes wait for more than half of the time. Admins do not rest. */
#ifndef EMBD_COORDINATOR_TURNS_H
#define EMBD_COORDINATOR_TURNS_H

#include <stdbool.h>
#include <stdint.h>

#define TURNS_MAX 64u /* further ones have no place */

/* A place is kept for so long: trainers ask again on their own, and soon. */
#define TURN_TRAINER_NS UINT64_C(500000000)
#define TURN_ADMIN_NS   UINT64_C(5000000000)

struct turns {
    struct {
        uint64_t principal; /* 0: an admin */
        uint64_t until_ns;
    } list[TURNS_MAX];
    uint32_t n;
    /* Trainers that rest. */
    struct {
        uint64_t principal, until_ns;
    } rests[TURNS_MAX];
    uint32_t n_rests;
};

/* Whether it is the asker's turn, if no job runs. */
bool turns_is_next(struct turns *turns, uint64_t principal, uint64_t now_ns);
/* The asker was refused. */
void turns_wait(struct turns *turns, uint64_t principal, uint64_t now_ns);
/* Whether another asker waits. */
bool turns_has_other(const struct turns *turns, uint64_t principal, uint64_t now_ns);
/* Its job begins. */
void turns_take(struct turns *turns, uint64_t principal);
/* Its job has ended, which held changes for so long. It has no place while it rests. */
void turns_rest(struct turns *turns, uint64_t principal, uint64_t held_ns, uint64_t now_ns);
/* How long it still rests. */
uint64_t turns_left_ns(const struct turns *turns, uint64_t principal, uint64_t now_ns);

#endif
