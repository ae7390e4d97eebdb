/* old_journal.h - files of a journal as earlier versions wrote them ("embdjnl2"): a header without
 * a secret, and checksums that anybody can make. */
#ifndef EMBD_TESTS_SERVER_OLD_JOURNAL_H
#define EMBD_TESTS_SERVER_OLD_JOURNAL_H

#include <stddef.h>

#include "server/journal/record.h"

void old_segment_header_write(uint8_t out[OLD_SEGMENT_HEADER_BYTES],
                              const struct segment_header *header);
uint64_t old_record_seal(uint8_t *record, uint64_t position, uint64_t synced, uint64_t chain,
                         uint64_t *bytes_out);

/* The same records and marks in an earlier version's segment or base; returns its bytes, which are
 * fewer. */
size_t old_journal_of(uint8_t *out, const uint8_t *file, size_t n);

#endif
