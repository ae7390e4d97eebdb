/* hugectr.h - model folders of HugeCTR, written and read.
 *
 * HugeCTR saves a sparse embedding as a folder of three plain files, whose rows belong together by
 * their number: `key` (int64), `slot_id` (uint64; localized embeddings only, here the tables with
 * partition = slot) and `emb_vector` (float32[dim]); and the optimizer's state as one file beside
 * it, which holds for each state tensor and each GPU that GPU's whole buffer,
 * float32[gpu_rows][dim]. A key belongs to GPU slot % n_gpus in slot tables, else to key % n_gpus;
 * keys count as unsigned. Keys are those stored: with slot_sizes, shifted by them. */
#ifndef EMBD_HUGECTR_H
#define EMBD_HUGECTR_H

#include "embd/admin.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Set by embd_hugectr_options_init first: one GPU, 64-bit keys, no state file, f32, step 0. */
typedef struct embd_hugectr_options {
    uint32_t struct_bytes; /* sizeof(embd_hugectr_options) */
    /* 1..1024. Export: rows are ordered by GPU, slot and key, on any number of shards. Import: of
     * the job that wrote state_file; without one it does not matter. */
    uint32_t n_gpus;
    bool u32_keys;          /* 32-bit keys: a greater one is refused */
    const char *state_file; /* the optimizer's state, to write or to read; NULL: none. momentum,
                               nesterov, adagrad, adam (m, then v) and ftrl (n, then z) have one */
    uint64_t gpu_rows; /* rows of a GPU's buffer in state_file. 0: on export as many as the fullest
                          GPU needs, on import what follows from the size of the file */
    embd_dtype state_dtype; /* of the floats of state_file: F32, or F16 for mixed precision */
    uint64_t step; /* import: pushes the table has seen, which adam's t counts; no file has it. At
                      most 2^47 */
    bool ignore_slots; /* import: a slot_id may be there although the table has no slots, and is not
                          read */
    bool check_only;   /* import: checks options, files and tables, and changes nothing */
} embd_hugectr_options;

/* Sets the options to their defaults. */
#define embd_hugectr_options_init(options)                                                         \
    embd_hugectr_options_init_sized((options), (uint32_t)sizeof(embd_hugectr_options))
EMBD_API void embd_hugectr_options_init_sized(embd_hugectr_options *options, uint32_t struct_bytes);

/* Writes a table as the new folder `folder`, one consistent cut. Pushes wait only for the moment of
 * the cut. Values are f32 whatever the table's dtype; keys that wait for a row (admit_after) are
 * left out. Written under a temporary name, synced and renamed, the state file first: a folder that
 * exists is whole and has its state file. Needs 24 bytes of memory a row (48 while they are
 * sorted), the shards' admin listeners, and room on the disk of `folder` for the rows, and the
 * states of a state file, once more. `options`, `report_out` and `progress` may be NULL. Blocks.
 *   EMBD_EXISTS          `folder` or the state file exists
 *   EMBD_INVALID         an option; a key beyond 32 bits, or in two slots of a GPU; gpu_rows is
 *                        less than a GPU's keys
 *   EMBD_UNSUPPORTED     a state file of an optimizer that HugeCTR has none for
 *   EMBD_UNKNOWN_TABLE
 *   EMBD_IO              names the file and the cause; others as embd_ping */
EMBD_API int embd_hugectr_export(embd_client *client, const char *table, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out);

/* Creates the table of `schema` and fills it from a folder, on any number of shards: rows go where
 * their slot (with partition = slot) or key belongs. A table that exists must be empty and of the
 * same definition. Values are rounded to the table's dtype. Without state_file the state is that of
 * new rows. Sizes, slots, and key widths are checked before anything changes; after a later failure
 * the table is dropped again if this call created it. The progress of checking comes first;
 * rows_done then begins again from 0. `options`, `report_out` (its pause_us is 0) and `progress`
 * may be NULL. Blocks.
 *   EMBD_EXISTS        the table has rows or another definition
 *   EMBD_CORRUPT       a file is missing, does not belong there, or has another size than the rows
 *                      of `key` and dim need; a slot_id is not below slots; a key is there twice;
 *                      state_file is of another n_gpus
 *   EMBD_INVALID       an option; a key beyond 32 bits with u32_keys; a slot_id file and a table
 *                      without slots
 *   EMBD_UNSUPPORTED   a state file for an optimizer that HugeCTR has none for
 *   EMBD_NOT_FINITE    a value or state, where the table does not admit that; names file, key and
 *                      column
 *   EMBD_FULL          more rows than a shard's capacity
 *   others             as embd_table_create and embd_load */
EMBD_API int embd_hugectr_import(embd_client *client, const embd_schema *schema, const char *folder,
                                 const embd_hugectr_options *options, embd_progress *progress,
                                 void *arg, embd_dump_report *report_out);

/* Sets `*rows_out` to the rows that HugeCTR has room for on each GPU where
 * workspace_size_per_gpu_in_mb is `workspace_mb`: workspace_mb * 2^20 / ((1 + n) * 4 * dim),
 * rounded down. n is the floats of state that it reserves for a column: sgd 0; momentum, nesterov
 * and adagrad 1; adam and ftrl 2; adam with lazy_global 3. dim, optimizer and name count alone.
 *   EMBD_UNSUPPORTED   HugeCTR has no such optimizer
 *   EMBD_INVALID       dim is 0, or workspace_mb over 2^32 - 1 */
EMBD_API int embd_hugectr_gpu_rows(const embd_schema *schema, uint64_t workspace_mb,
                                   uint64_t *rows_out);

/* Returns true where `dir` looks like a model folder of HugeCTR: it has a file `key` and no
 * manifest.json. */
EMBD_API bool embd_hugectr_is_folder(const char *dir);

/* Shows a model folder as embd_inspect shows a dump; its one table has no name and no schema. */
EMBD_API int embd_hugectr_inspect(const char *dir, uint64_t n_first,
                                  int (*visit_table)(void *arg, const embd_stored_table *table),
                                  int (*visit_row)(void *arg, const embd_stored_table *table,
                                                   uint32_t slot, uint64_t key,
                                                   const float *values),
                                  void *arg);

#ifdef __cplusplus
}
#endif
#endif
