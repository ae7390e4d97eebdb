/* foreignsok.c - folders of sok.dump (HugeCTR's sparse operation kit), whose files are
 *
 *     TABLE-key, TABLE-weight              one row after the other, of all GPUs
 *     TABLE-OPTIMIZER-SLOT                 a state of the same rows: "emb-Adam-m"
 *
 * Each begins with a head of 296 bytes: the table's name (256 bytes, filled with blanks, or all
 * blank), what the file is (0 keys, 1 rows, 2 a state), the slot's name (32 bytes), and the number
 * of its dtype; numbers are 32 bits, the highest byte first. No file says dim. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "client/embctl/foreignfiles.h"

#define HEAD_BYTES 296u
#define NAME_BYTES 256u
#define SLOT_BYTES 32u

enum file_kind { FILE_KEYS, FILE_ROWS, FILE_STATE };
static const char *const dtypes[] = {"int32",   "int64",   "uint32", "uint64",
                                     "float16", "float32", "float64"};
#define N_DTYPES (sizeof dtypes / sizeof *dtypes)

static uint32_t number_at(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static bool read_head(struct foreign_folder *f, const char *name, uint8_t *head)
{
    uint64_t bytes;
    const char *path = foreign_path(f, name);
    if (!path || !foreign_size(f, path, &bytes))
        return false;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    ssize_t n = fd < 0 ? -1 : read(fd, head, HEAD_BYTES);
    if (n < 0)
        foreign_fail(f, EMBD_IO, "%s: cannot read: %s", name, strerror(errno));
    else if (n != HEAD_BYTES)
        foreign_fail(f, EMBD_CORRUPT, "%s: has %" PRIu64 " bytes, expected a head of %u", name,
                     bytes, HEAD_BYTES);
    if (fd >= 0)
        close(fd);
    return f->status == EMBD_OK;
}

/* The dtype's number; the head must say that the file is what its name says. */
static uint32_t read_dtype(struct foreign_folder *f, const char *name, enum file_kind kind)
{
    uint8_t head[HEAD_BYTES];
    if (!read_head(f, name, head))
        return 0;
    uint32_t found = number_at(head + NAME_BYTES);
    uint32_t dtype = number_at(head + NAME_BYTES + 4 + SLOT_BYTES);
    if (found != (uint32_t)kind)
        foreign_fail(f, EMBD_CORRUPT,
                     "%s: its head says file type %" PRIu32 ", expected %d (0 keys, 1 rows, 2 a "
                     "state)",
                     name, found, (int)kind);
    else if (dtype >= N_DTYPES)
        foreign_fail(f, EMBD_CORRUPT, "%s: its head says dtype %" PRIu32 ", it can be 0 to %zu",
                     name, dtype, N_DTYPES - 1);
    return dtype;
}

static embd_arrays_key key_kind(struct foreign_folder *f, const char *name)
{
    uint32_t dtype = read_dtype(f, name, FILE_KEYS);
    if (dtype > 3)
        foreign_fail(f, EMBD_UNSUPPORTED,
                     "%s: keys are %s, expected int32, int64, uint32 or uint64", name,
                     dtypes[dtype < N_DTYPES ? dtype : 0]);
    return dtype == 0 ? EMBD_ARRAYS_I32 : dtype == 2 ? EMBD_ARRAYS_U32 : EMBD_ARRAYS_64;
}

static embd_dtype value_dtype(struct foreign_folder *f, const char *name, enum file_kind kind)
{
    uint32_t dtype = read_dtype(f, name, kind);
    if (f->status == EMBD_OK && dtype != 4 && dtype != 5)
        foreign_fail(f, EMBD_UNSUPPORTED, "%s: values are %s, expected float16 or float32", name,
                     dtypes[dtype]);
    return dtype == 4 ? EMBD_DTYPE_F16 : EMBD_DTYPE_F32;
}

/* Letters of the name of the table that a file belongs to: the longest one, since a table's name
 * may have dashes. 0: none. */
static size_t owner_of(const struct foreign_folder *f, const char *name)
{
    char keys[NAME_MAX + sizeof "-key"];
    for (size_t n = strnlen(name, NAME_MAX); n > 0; n--) {
        snprintf(keys, sizeof keys, "%.*s-key", (int)n, name);
        if (name[n] == '-' && foreign_has(f, keys))
            return n;
    }
    return 0;
}

/* Where `name` is TABLE-OPTIMIZER-SLOT, SLOT; else NULL. */
static const char *slot_of(const struct foreign_folder *f, const char *name, const char *table)
{
    size_t n = strlen(table);
    bool is_own = strncmp(name, table, n) == 0 && owner_of(f, name) == n;
    const char *dash = is_own ? strchr(name + n + 1, '-') : NULL;
    return dash && dash[1] ? dash + 1 : NULL;
}

static void add_slot(struct foreign_folder *f, struct foreign_table *t, const char *name)
{
    if (t->n_slots == FOREIGN_SLOTS_MAX) {
        foreign_fail(f, EMBD_UNSUPPORTED, "%s: table '%s' has more than %d states", name, t->name,
                     FOREIGN_SLOTS_MAX);
        return;
    }
    t->slots[t->n_slots++] = (struct foreign_slot){.name = slot_of(f, name, t->name),
                                                   .values = foreign_one(f, name),
                                                   .dtype = value_dtype(f, name, FILE_STATE)};
}

static void read_table(struct foreign_folder *f, const char *name)
{
    const char *keys = foreign_text(f, "%s-key", name), *rows = foreign_text(f, "%s-weight", name);
    struct foreign_table *t = keys && rows ? foreign_add(f, name) : NULL;
    if (!t)
        return;
    t->n_files = 1;
    t->head_bytes = HEAD_BYTES;
    t->keys = foreign_one(f, keys);
    t->values = foreign_one(f, rows);
    t->key = key_kind(f, keys);
    if (f->status == EMBD_OK)
        t->dtype = value_dtype(f, rows, FILE_ROWS);
    for (size_t i = 0; i < f->n_names && !f->a->skips_state && f->status == EMBD_OK; i++)
        if (slot_of(f, f->names[i], name))
            add_slot(f, t, f->names[i]);
    foreign_measure(f, t);
}

/* Whether the file belongs to a table of the folder. */
static bool is_known(const struct foreign_folder *f, const char *name)
{
    return owner_of(f, name) > 0 || !strcmp(name, "meta_info");
}

void foreign_read_sok(struct foreign_folder *f)
{
    for (size_t i = 0; i < f->n_names && f->status == EMBD_OK; i++) {
        const char *table = foreign_stem(f, f->names[i], "-key");
        if (table && foreign_wants(f, table))
            read_table(f, table);
        else if (!table && !is_known(f, f->names[i]))
            foreign_ignore(f, "%s", f->names[i]);
    }
}
