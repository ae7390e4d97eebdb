/* recent.h - the last bytes of a journal's last segment, in memory, for servers that follow: large
 * records are written past the kernel's cache, and would have to be read from the disk while that
 * one is written to.
 *
 * There is one writer, whoever writes the file; any thread reads. A reader pins what it copies, and
 * nobody waits for a copy: where the writer comes to bytes that are being read, it forgets what it
 * had, and begins anew once nobody reads. Nothing has to be there: a reader takes the file then. */
#ifndef EMBD_JOURNAL_RECENT_H
#define EMBD_JOURNAL_RECENT_H

#include <stdbool.h>
#include <stdint.h>

#define RECENT_BYTES (UINT64_C(64) << 20)

struct recent;

/* Keeps nothing yet. NULL: no memory; the other functions allow it. */
struct recent *recent_new(void);
/* Nobody reads any more. */
void recent_free(struct recent *recent);

/* What it has is of another journal. By the writer. */
void recent_forget(struct recent *recent);
/* Whether the bytes are kept from the next write on. If not, their memory goes: at once, or when
 * who is at work with it is done. Any thread. */
void recent_keep(struct recent *recent, bool keeps);
/* Of memory. Any thread. */
uint64_t recent_bytes(const struct recent *recent);
/* The file of segment `number` has these bytes from `at` on. Zeros are between them and those that
 * were noted before, or they begin anew. */
void recent_note(struct recent *recent, uint64_t number, uint64_t at, const uint8_t *bytes,
                 uint64_t n);
/* Copies bytes of that file. False: not all of them are here. */
bool recent_read(struct recent *recent, uint64_t number, uint64_t at, uint8_t *out, uint64_t n);

#endif
