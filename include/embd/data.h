/* data.h - batches of samples: a builder of CSR batches, and data sets in files. */
#ifndef EMBD_DATA_H
#define EMBD_DATA_H

#include "embd/embd.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- building batches ---- */

/* A CSR batch that grows key by key within bounds that are set once. One thread at a time. */
typedef struct embd_csr embd_csr;

/* Makes an empty builder for at most `max_rows` rows and `max_keys` keys, and allocates its memory.
 * On failure `*csr_out` is NULL.
 *   EMBD_TOO_LARGE   a bound is over 2^31 - 1
 *   EMBD_NO_MEMORY */
EMBD_API int embd_csr_new(uint64_t max_rows, uint64_t max_keys, embd_csr **csr_out);

/* NULL is allowed. */
EMBD_API void embd_csr_free(embd_csr *csr);

/* Begins a row; one without keys is a row too. A builder is a whole batch after every call: there
 * is no closing row.
 *   EMBD_TOO_LARGE   max_rows rows are there; nothing has changed */
EMBD_API int embd_csr_row(embd_csr *csr);

/* Adds a key to the last row, with the weight 1 or the given one. A batch has weights from its
 * first weighted key on; keys before it then weigh 1. On failure nothing has changed.
 *   EMBD_INVALID     no row was begun, or the weight is not finite
 *   EMBD_TOO_LARGE   max_keys keys are there */
EMBD_API int embd_csr_push(embd_csr *csr, uint64_t key);
EMBD_API int embd_csr_push_weighted(embd_csr *csr, uint64_t key, float weight);

/* embd_csr_check_point remembers the rows and keys so far, as those of whole samples.
 * embd_csr_roll_back drops what came after the last check point (everything before any): the keys
 * of a sample that turned out to be bad. */
EMBD_API void embd_csr_check_point(embd_csr *csr);
EMBD_API void embd_csr_roll_back(embd_csr *csr);

/* Empties the builder and forgets its check point; the memory stays. */
EMBD_API void embd_csr_reset(embd_csr *csr);

/* Sets n_rows, offsets, n_keys, keys and weights of `part` to the builder's arrays, which are not
 * copied: they are valid until the builder is changed or freed. The other members stay. */
EMBD_API void embd_csr_part(const embd_csr *csr, embd_part *part);

/* ---- reading data sets ---- */

/* How samples lie in files. All numbers are little-endian.
 *
 * norm: binary files named by a list: line 1 is their count, then one path a line (embd_data_paths
 * says what it is relative to). A file has a header of 8 int64 (1 when samples carry checksums else
 * 0, number of samples, label_dim, dense_dim, slots, 3 times 0), then samples: float label[], float
 * dense[], and for each slot an int32 count and as many keys. With checksums, header and samples
 * are each preceded by their length in bytes, an int32, and followed by the sum of their bytes
 * modulo 256, one byte.
 *
 * raw: one file without a header: label[] and dense[], 4 bytes each, then one int32 key for each
 * slot. */
typedef enum embd_data_format { EMBD_DATA_FORMAT_NORM, EMBD_DATA_FORMAT_RAW } embd_data_format;

#define EMBD_DATA_DIM_MAX 65536 /* labels of a sample; dense values of a sample */

typedef struct embd_data_shape {
    uint32_t struct_bytes; /* sizeof(embd_data_shape) */
    embd_data_format format;
    uint32_t label_dim, dense_dim; /* 0..EMBD_DATA_DIM_MAX */
    uint32_t slots;                /* 1..EMBD_SLOTS_MAX */
    bool checksum;                 /* norm: with checksums */
    bool i64_keys; /* norm: keys are 8 bytes; otherwise 4, unsigned. No file says which */
    bool integers; /* raw: labels and dense values are int32; a dense x is read as log(x + 1) */
} embd_data_shape;

#define EMBD_DATA_SHAPE(...)                                                                       \
    {                                                                                              \
        .struct_bytes = sizeof(embd_data_shape), __VA_ARGS__                                       \
    }

/* Which part of the data one of several trainers takes. */
typedef enum embd_data_share {
    EMBD_DATA_SHARE_FILES,   /* norm: files f of the list with f % workers == worker; reads those
                                alone */
    EMBD_DATA_SHARE_BATCHES, /* batches b with b % workers == worker; reads all, so that numbers of
                                batches differ by one at most */
} embd_data_share;

/* The folder that a path in a list is relative to, where it does not begin with '/'. */
typedef enum embd_data_paths {
    EMBD_DATA_PATHS_FOUND, /* the working directory, as HugeCTR opens it, or the list's folder:
                              wherever the first file lies that is there. Different files in both
                              places are an error */
    EMBD_DATA_PATHS_LIST,  /* the list's folder */
    EMBD_DATA_PATHS_WORKING_DIRECTORY,
} embd_data_paths;

/* Consecutive slots of a data set that belong together, because one table has their keys:
 * HugeCTR's DataReaderSparseParam. */
typedef struct embd_sparse_input {
    uint32_t slots;    /* 1..EMBD_SLOTS_MAX, those after the slots of the inputs before */
    uint32_t max_keys; /* a sample with more keys in one of the slots is bad; 0: any number */
    bool fixed_length; /* so is a sample with fewer; needs max_keys */
} embd_sparse_input;

/* Set by embd_reader_options_init first. */
typedef struct embd_reader_options {
    uint32_t struct_bytes;  /* sizeof(embd_reader_options) */
    uint32_t batch_samples; /* 1..1048576; default 1024 */
    uint32_t threads; /* 1..64 reader threads; default 1. Norm files, or stretches of a raw one, are
                         read in parallel; batches are the same for any number of threads */
    uint32_t batches_ahead; /* 1..1024 batches read before they are asked for, and at least 2 for
                               each thread; default 4 */
    uint32_t sample_keys;   /* 1..4194304, most keys of one sample; default 65536 */
    const uint64_t *slot_sizes; /* [slots] or NULL. A key of slot s must be below slot_sizes[s].
                                   Nothing is added to it: tables with slot_sizes do that. Copied */
    bool refuse_overlap; /* a key found in two slots is an error (needs memory for every distinct
                            key) */
    uint64_t max_bad_samples; /* more of them are an error; default UINT64_MAX */
    uint64_t max_bad_files;   /* default 10 */
    embd_data_share share;
    uint32_t worker, workers;        /* this trainer, and of how many; default 0 of 1 */
    embd_data_paths paths;           /* of lists; default EMBD_DATA_PATHS_FOUND */
    const embd_sparse_input *inputs; /* [n_inputs] or NULL. Their slots add up to those of the
                                        shape. Batches are divided by them. Copied */
    uint32_t n_inputs;               /* 0..EMBD_SLOTS_MAX; default 0 */
} embd_reader_options;

/* Sets the options to their defaults. */
#define embd_reader_options_init(options)                                                          \
    embd_reader_options_init_sized((options), (uint32_t)sizeof(embd_reader_options))
EMBD_API void embd_reader_options_init_sized(embd_reader_options *options, uint32_t struct_bytes);

/* The keys of one sparse input, for a part of a pull or push. */
typedef struct embd_batch_input {
    uint64_t n_rows;         /* n_samples * slots of the input; row = sample * slots + slot */
    const uint64_t *offsets; /* [n_rows + 1] */
    uint64_t n_keys;
    const uint64_t *keys; /* [n_keys] */
} embd_batch_input;

/* Samples in the order of the files. The arrays are the reader's, until embd_reader_release. */
typedef struct embd_batch {
    uint32_t n_samples;      /* batch_samples; less in the last batch, and before an error */
    const float *labels;     /* [n_samples][label_dim] */
    const float *dense;      /* [n_samples][dense_dim] */
    uint64_t n_rows;         /* n_samples * slots; row = sample * slots + slot */
    const uint64_t *offsets; /* [n_rows + 1] */
    uint64_t n_keys;
    const uint64_t *keys;           /* [n_keys] */
    const embd_batch_input *inputs; /* [n_inputs] of the options; NULL without any */
} embd_batch;

typedef struct embd_reader_counts { /* of everything up to the last batch that was handed out */
    uint64_t samples;     /* good ones; with EMBD_DATA_SHARE_BATCHES also those of other workers */
    uint64_t bad_samples; /* dropped: wrong checksum, key out of range, counts that do not fit */
    uint64_t files;       /* read to their end; for raw files the stretches */
    uint64_t bad_files;   /* not readable, of another shape, or broken; samples before the fault
                             count */
} embd_reader_counts;

/* Reads a data set with threads of its own. The handle belongs to one thread at a time. */
typedef struct embd_reader embd_reader;

/* Starts reading: `path` is the list of norm files or the raw file. On failure `*reader_out` is
 * NULL.
 *   EMBD_INVALID     an option or a dimension, with its limit; a list's first file is not the same
 *                    in the list's folder and in the working directory
 *   EMBD_IO          `path` cannot be read
 *   EMBD_CORRUPT     it is not a list, or its size is not a whole number of raw samples
 *   EMBD_NO_MEMORY */
EMBD_API int embd_reader_open(const char *path, const embd_data_shape *shape,
                              const embd_reader_options *options, embd_reader **reader_out);

/* As embd_reader_open: the files of several lists, one list after the other. Also EMBD_INVALID:
 * `n_paths` is 0 or over 65536, or over 1 for the raw format. */
EMBD_API int embd_reader_open_lists(const char *const *paths, uint32_t n_paths,
                                    const embd_data_shape *shape,
                                    const embd_reader_options *options, embd_reader **reader_out);

/* Hands out the next batch; NULL at the end of the data. Several may be held at a time. Blocks
 * until it has been read. A bad sample is dropped and counted; a broken file ends at its fault and
 * is counted. A failure ends the reading: any later call returns the same.
 *   EMBD_CORRUPT     more bad samples or files than the options allow; a key in two slots with
 *                    refuse_overlap; bad samples and no good one. The batches before were handed
 *                    out
 *   EMBD_NO_MEMORY */
EMBD_API int embd_reader_next(embd_reader *reader, embd_batch **batch_out);

/* Takes a batch back; NULL is allowed. */
EMBD_API void embd_reader_release(embd_reader *reader, embd_batch *batch);

EMBD_API void embd_reader_count(const embd_reader *reader, embd_reader_counts *counts_out);

/* Returns the first fault that was counted, with file and sample; "" while there is none. No call
 * need have failed. After embd_reader_next failed it is the sentence of that. Valid until the next
 * call of this reader. */
EMBD_API const char *embd_reader_fault(const embd_reader *reader);

/* Stops the threads and frees the reader with its batches. NULL is allowed. */
EMBD_API void embd_reader_close(embd_reader *reader);

/* ---- writing data sets ---- */

typedef struct embd_writer embd_writer;

/* Begins a data set: norm files `path`.0000, `path`.0001, ... of `file_samples` samples each (0:
 * one file) and in the end their list `path`, or the raw file `path`. On failure `*writer_out` is
 * NULL.
 *   EMBD_EXISTS    `path` or a data file exists
 *   EMBD_INVALID   a dimension, with its limit; EMBD_IO, EMBD_NO_MEMORY */
EMBD_API int embd_writer_open(const char *path, const embd_data_shape *shape, uint64_t file_samples,
                              embd_writer **writer_out);

/* Adds samples as embd_batch has them: labels [n][label_dim], dense [n][dense_dim], offsets
 * [n * slots + 1] which may start anywhere, keys [offsets[n * slots]]. The arrays are copied.
 *   EMBD_INVALID   offsets fall, a key is too large for the key type, or in a raw file a slot has
 *                  not one key or a dense value is not the log(x + 1) of an int32 x. The samples
 *                  before that one are written
 *   EMBD_IO, EMBD_EXISTS: the next data file exists. Nothing is written after these two */
EMBD_API int embd_writer_add(embd_writer *writer, uint32_t n_samples, const float *labels,
                             const float *dense, const uint64_t *offsets, const uint64_t *keys);

/* Completes the data set, or removes what was written when that fails or writing failed, and frees
 * the writer. NULL is allowed. EMBD_IO, EMBD_EXISTS. */
EMBD_API int embd_writer_close(embd_writer *writer);

#ifdef __cplusplus
}
#endif
#endif
