/* hugectr.h - what HugeCTR's sparse model folders and optimizer state files look like.
 *
 * A folder holds plain files, little-endian, whose rows belong together by their number alone:
 *
 *     key         int64 per row; tables of 32-bit keys have them zero-extended
 *     slot_id     u64 per row, the slot; only in localized embeddings, our tables with partition
 *                 slot
 *     emb_vector  float32[dim] per row
 *
 * A state file holds, for each state tensor and each GPU, that GPU's whole buffer [gpu_rows][dim]:
 * row r is that of the GPU's r-th key in `key`, rows beyond its keys are as they began, 0 or
 * adagrad's initial accumulator. A key belongs to GPU slot % n in localized embeddings, else to
 * key % n. Nothing in a state file says n or gpu_rows. A GPU has one row a key: a key in two of
 * its slots cannot be written.
 */
#ifndef EMBD_HUGECTR_HUGECTR_H
#define EMBD_HUGECTR_HUGECTR_H

#include "embd/hugectr.h"
#include "proto/errors.h"
#include "proto/stored/plainfile.h"

#define HUGECTR_GPUS_MAX 1024u
#define HUGECTR_KEY      "key"
#define HUGECTR_SLOT     "slot_id"
#define HUGECTR_VECTOR   "emb_vector"

static inline uint32_t embd__hugectr_gpu(const embd_schema *schema, uint32_t n_gpus, uint64_t slot,
                                         uint64_t key)
{
    uint64_t number = schema->partition == EMBD_PARTITION_SLOT ? slot : key;
    return (uint32_t)(number % n_gpus);
}

/* Checks the options of an export or import. EMBD_INVALID names the option, its value and limit. */
/* The caller's options, or the defaults. EMBD_INVALID: its struct_bytes. */
int embd__hugectr_take(embd_hugectr_options *own, const embd_hugectr_options *given,
                       struct embd__error *e);
int embd__hugectr_check(const embd_hugectr_options *options, struct embd__error *e);

/* State tensors of the table's optimizer in a state file, 1 or 2, each [dim] a row and in the order
 * in which we keep them too. EMBD_UNSUPPORTED: HugeCTR has no such optimizer, or it has no state.
 */
int embd__hugectr_tensors(const embd_schema *schema, uint32_t *n_out, struct embd__error *e);

/* A folder opened for reading. */
struct hugectr_folder {
    struct plain_file key, slot, vector; /* slot is open only if it was requested */
    uint64_t n_rows;
};

/* Opens the files and compares their sizes; dim 0: takes any whole number of floats per row.
 * `has_slots`: slot_id must be there. Otherwise it may not, unless `ignore_slots`. A file of
 * another name may never. EMBD_CORRUPT, EMBD_INVALID, EMBD_IO, with the file and the numbers;
 * nothing is open then. */
struct hugectr_wanted {
    uint32_t dim;
    bool has_slots, ignore_slots;
    const char *why_no_slots; /* said of a slot_id that may not be there */
};
int embd__hugectr_open(struct hugectr_folder *folder, const char *path,
                       const struct hugectr_wanted *wanted, struct embd__error *e);
void embd__hugectr_close(struct hugectr_folder *folder);

#endif
