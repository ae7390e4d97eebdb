/* click_log.h - the data sets of the example, in the shape of the Criteo click logs: a label, DENSE
 * dense values and a key in each of SLOTS slots. Norm files of it have checksums and u32 keys, raw
 * files floats. */
#ifndef DLRM_CLICK_LOG_H
#define DLRM_CLICK_LOG_H

#include <embd/embd.h>

/* Writes norm files: `n` samples for training as `folder`/train and `n / 4` others as
 * `folder`/held-out. False, with a sentence on stderr. */
bool click_log_write(const char *folder, uint64_t n);

/* What a data set is called: "norm:LIST" or "raw:FILE". False: `name` is neither. */
bool click_log_parse(const char *name, embd_data_format *format_out, const char **path_out);

/* `name` as above. NULL, with a sentence on stderr. */
embd_reader *click_log_open(const char *name, uint32_t batch_samples, uint32_t threads);

/* Takes back `now`, which may be NULL, and sets *next_out to the next batch, NULL at the end. */
bool click_log_next(embd_reader *reader, embd_batch *now, embd_batch **next_out);

#endif
