/* click_log.h - the data sets of the example, in the shape of the Criteo click logs: a label, DENSE
 * dense values and a key in each of SLOTS slots. Norm files of it have checksums and u32 keys, raw
 * files floats. */
#ifndef DLRM_CLICK_LOG_H
#define DLRM_CLICK_LOG_H

#include <embd/embd.h>

/* Writes norm files: `n` samples for training as `folder`/train and `n / 4` others as
 * `folder`/held-out. False, with a sentence on stderr. */
bool click_log_write(const char *folder, uint64_t n);

/* `name` is norm:LIST or raw:FILE. NULL, with a sentence on stderr. */
embd_reader *click_log_open(const char *name, uint32_t batch_samples, uint32_t threads);

#endif
