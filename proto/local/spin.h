/* spin.h - whether a thread that waits for a ring or a socket looks at it for some microseconds, or
 * sleeps at once. It looks where that was worth it the last times: after a look in vain it sleeps
 * at once for a number of times, which doubles up to SPIN_SKIPS_MOST. To have lost the processor
 * meanwhile is in vain, too: others need it. So a client that calls now and then costs next to
 * nothing.
 *
 * Reads no clock. Owner: the thread. */
#ifndef EMBD_PROTO_LOCAL_SPIN_H
#define EMBD_PROTO_LOCAL_SPIN_H

#include <stdbool.h>
#include <stdint.h>

#define SPIN_MOST_US    1000u
#define SPIN_DEFAULT_US 50u
#define SPIN_SKIPS_MOST 64u
/* Between two looks: longer than anything but another thread takes. */
#define SPIN_AWAY_NS 100000u

struct spin {
    uint64_t most_ns; /* 0: never */
    uint64_t since_ns, looked_ns;
    bool is_on;
    uint32_t n_skips; /* to sleep at once, so often */
    uint32_t penalty; /* n_skips after the last look in vain */
};

/* Whether the thread would not sleep at once. */
static inline bool embd__spin_is_worth(const struct spin *spin)
{
    return spin->most_ns > 0 && spin->n_skips == 0;
}

/* The bytes came while the thread looked. */
static inline void embd__spin_paid(struct spin *spin)
{
    spin->penalty = spin->n_skips = 0;
    spin->is_on = false;
}

/* It is there. */
static inline void embd__spin_found(struct spin *spin)
{
    if (spin->is_on)
        embd__spin_paid(spin);
}

static inline bool embd__spin_begin(struct spin *spin, uint64_t now_ns)
{
    if (spin->n_skips > 0) {
        spin->n_skips--;
        return false;
    }
    spin->is_on = true;
    spin->since_ns = spin->looked_ns = now_ns;
    return true;
}

/* It is not there at `now_ns`: whether to look again. False: sleep. */
static inline bool embd__spin_goes_on(struct spin *spin, uint64_t now_ns)
{
    if (spin->most_ns == 0)
        return false;
    if (!spin->is_on)
        return embd__spin_begin(spin, now_ns);
    bool was_away = now_ns - spin->looked_ns > SPIN_AWAY_NS;
    spin->looked_ns = now_ns;
    if (!was_away && now_ns - spin->since_ns < spin->most_ns)
        return true;
    spin->is_on = false;
    spin->penalty = spin->penalty == 0 ? 1 : spin->penalty * 2;
    if (spin->penalty > SPIN_SKIPS_MOST)
        spin->penalty = SPIN_SKIPS_MOST;
    spin->n_skips = spin->penalty;
    return false;
}

/* Between two looks of one thread at the same word. */
static inline void embd__spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

#endif
