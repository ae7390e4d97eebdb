/* identity_file.c - see identity_file.h. A small JSON object, replaced as a whole: written beside,
 * synced, renamed. What is read is checked: it is a file that people copy and edit. */
#include "server/identity/identity_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "proto/json_values.h"
#include "proto/limit.h"
#include "proto/placement_json.h"
#include "server/files/safe_open.h"
#include "server/log/log.h"

#define NAME       "identity.json"
#define LOCK       "identity.lock"
#define STAGED     NAME ".tmp"
#define FILE_BYTES (1u << 20)

static int failed(const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_IO, "'%s' of the data directory: %s", what, strerror(errno));
}

/* ---- the lock ---- */

static int refuse_lock(int fd, const char *path, struct embd__error *e)
{
    char holder[16] = "";
    ssize_t n = errno == EWOULDBLOCK ? pread(fd, holder, sizeof holder - 1, 0) : -1;
    if (n < 0)
        return failed(LOCK, e);
    holder[strcspn(holder, "\n")] = '\0';
    return embd__error_set(e, EMBD_IO,
                           "data directory '%.200s': another server uses it (process %s); give "
                           "each server a data_dir of its own",
                           path, holder);
}

int identity_lock(int dir, const char *path, int *lock_out, struct embd__error *e)
{
    char text[16];
    int n = snprintf(text, sizeof text, "%ld\n", (long)getpid());
    int fd = safe_open(dir, LOCK, O_RDWR | O_CREAT, 0600);
    if (fd < 0)
        return failed(LOCK, e);
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        refuse_lock(fd, path, e);
        close(fd);
        return e->status;
    }
    if (ftruncate(fd, 0) != 0 || pwrite(fd, text, (size_t)n, 0) != n)
        log_event(LOG_WARN, "identity_not_written",
                  "file=%s why=\"a second server cannot name the process that has it\"", LOCK);
    *lock_out = fd;
    return EMBD_OK;
}

/* ---- reading ---- */

static int refuse_file(const char *path, const char *what, struct embd__error *e)
{
    return embd__error_set(e, EMBD_CORRUPT,
                           "data directory '%.160s': %s %s; if the directory is this server's, "
                           "remove that file and start with --accept-empty",
                           path, NAME, what);
}

static bool read_hex(const json_t *object, const char *key, uint64_t *out)
{
    return embd__json_to_hex(json_object_get(object, key), out);
}

static bool read_count(const json_t *object, const char *key, uint64_t most, uint64_t *out)
{
    const json_t *value = json_object_get(object, key);
    *out = (uint64_t)json_integer_value(value);
    return json_is_integer(value) && json_integer_value(value) >= 0 && *out <= most;
}

static bool read_cluster(const json_t *object, char out[CLUSTER_ID_BYTES])
{
    const char *text = json_string_value(json_object_get(object, "cluster"));
    size_t n = text != NULL ? strlen(text) : 1;
    if ((n != 0 && n != CLUSTER_ID_BYTES - 1) || strspn(text, "0123456789abcdef") != n)
        return false;
    memcpy(out, text, n + 1);
    return true;
}

static bool read_shards(const json_t *object, struct identity_file *out)
{
    uint64_t first, n, all;
    if (!read_count(object, "cluster_shards", LIMIT_SHARDS, &all) ||
        !read_count(object, "first_shard", all, &first) || !read_count(object, "shards", all, &n) ||
        n == 0 || first + n > all)
        return false;
    out->first_shard = (uint32_t)first;
    out->n_shards = (uint32_t)n;
    out->cluster_shards = (uint32_t)all;
    return true;
}

static bool read_known(const json_t *object, struct identity_file *out)
{
    size_t i;
    const json_t *item, *list = json_object_get(object, "servers");
    json_array_foreach(list, i, item)
    {
        uint64_t shard;
        struct identity_known known;
        if (!read_count(item, "first_shard", out->cluster_shards - 1, &shard) ||
            !read_count(item, "epoch", INT64_MAX, &known.epoch) ||
            !read_hex(item, "start", &known.start))
            return false;
        out->known[shard] = known;
    }
    return json_is_array(list);
}

static bool read_accepted(const json_t *object, struct identity_file *out)
{
    size_t i;
    uint64_t n;
    const json_t *item, *list = json_object_get(object, "accepted");
    if (!read_count(object, "n_accepted", UINT32_MAX, &n) || !json_is_array(list))
        return false;
    json_array_foreach(list, i, item)
    {
        const char *when = json_string_value(json_object_get(item, "when"));
        const char *why = json_string_value(json_object_get(item, "why"));
        if (when == NULL || why == NULL || i >= IDENTITY_ACCEPTED_MAX)
            return false;
        snprintf(out->accepted[i].when, sizeof out->accepted[i].when, "%s", when);
        snprintf(out->accepted[i].why, sizeof out->accepted[i].why, "%s", why);
    }
    out->n_accepted = (uint32_t)n;
    return i == (n < IDENTITY_ACCEPTED_MAX ? n : IDENTITY_ACCEPTED_MAX);
}

/* Version 2 is for maps that are not even. */
static bool read_placement(const json_t *object, uint64_t version, struct identity_file *out)
{
    struct embd__error why = {.status = EMBD_OK};
    const json_t *value = json_object_get(object, "placement");
    out->has_placement = value != NULL;
    if (value == NULL)
        return version == 1;
    return embd__placement_from_json(value, out->cluster_shards, &out->placement, &why) == EMBD_OK;
}

static bool read_text(const json_t *item, const char *key, char out[SHARD_ENTRY_BYTES])
{
    const char *text = json_string_value(json_object_get(item, key));
    return text != NULL && snprintf(out, SHARD_ENTRY_BYTES, "%s", text) < (int)SHARD_ENTRY_BYTES;
}

static bool read_members(const json_t *object, struct identity_file *out)
{
    size_t i;
    uint64_t first;
    const json_t *item, *list = json_object_get(object, "members");
    uint64_t most = 0;
    out->joins = json_is_true(json_object_get(object, "joins"));
    out->has_left = json_is_true(json_object_get(object, "left"));
    if (json_object_get(object, "most_shards") != NULL &&
        !read_count(object, "most_shards", LIMIT_SHARDS, &most))
        return false;
    out->most_shards = (uint32_t)most;
    if (list == NULL)
        return true;
    if (!json_is_array(list) || !read_count(object, "first_member", LIMIT_SHARDS, &first) ||
        json_array_size(list) > LIMIT_SHARDS - first)
        return false;
    out->members = calloc(json_array_size(list) + 1, sizeof *out->members);
    if (out->members == NULL)
        return false;
    out->first_member = (uint32_t)first;
    out->n_members = (uint32_t)json_array_size(list);
    json_array_foreach(list, i, item)
    {
        struct shard_entry *entry = &out->members[i];
        if (!read_text(item, "address", entry->address) ||
            !read_text(item, "admin", entry->admin) ||
            !read_text(item, "admin_tcp", entry->admin_tcp))
            return false;
    }
    return true;
}

static int read_object(const json_t *object, const char *path, struct identity_file *out,
                       struct embd__error *e)
{
    uint64_t version;
    const char *server = json_string_value(json_object_get(object, "server"));
    if (!read_count(object, "version", INT64_MAX, &version) || version == 0 || version > 2)
        return refuse_file(path, "is not of version 1 or 2", e);
    if (server == NULL || !read_shards(object, out) || !read_cluster(object, out->own.cluster) ||
        !read_count(object, "epoch", INT64_MAX, &out->own.epoch) ||
        !read_hex(object, "start", &out->own.start))
        return refuse_file(path, "lacks a field, or has one out of range", e);
    if (json_object_get(object, "history") != NULL && !read_hex(object, "history", &out->history))
        return refuse_file(path, "has a history out of range", e);
    out->is_moved = json_is_true(json_object_get(object, "moved"));
    out->is_moving = json_is_true(json_object_get(object, "moving"));
    if (!read_placement(object, version, out))
        return refuse_file(path, "has a placement that is not a map of its shards", e);
    snprintf(out->server, sizeof out->server, "%s", server);
    out->known = calloc(LIMIT_SHARDS, sizeof *out->known);
    if (out->known == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %s", NAME);
    if (!read_known(object, out) || !read_accepted(object, out) || !read_members(object, out))
        return refuse_file(path, "has a list that cannot be read", e);
    out->is_there = true;
    return EMBD_OK;
}

int identity_file_read(int dir, const char *path, struct identity_file *out, struct embd__error *e)
{
    json_error_t why;
    *out = (struct identity_file){.is_there = false};
    int fd = safe_open(dir, NAME, O_RDONLY, 0);
    if (fd < 0)
        return errno == ENOENT ? EMBD_OK : failed(NAME, e);
    char *text = malloc(FILE_BYTES);
    ssize_t n = text != NULL ? read(fd, text, FILE_BYTES) : 0;
    close(fd);
    json_t *object = n > 0 ? json_loadb(text, (size_t)n, JSON_REJECT_DUPLICATES, &why) : NULL;
    if (text == NULL)
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for %s", NAME);
    else if (n < 0)
        failed(NAME, e);
    else if (object == NULL)
        refuse_file(path, "is not JSON", e);
    else if (read_object(object, path, out, e) != EMBD_OK) {
        free(out->known);
        free(out->members);
        out->known = NULL;
        out->members = NULL;
    }
    json_decref(object);
    free(text);
    return e->status;
}

void identity_file_fini(struct identity_file *file)
{
    free(file->known);
    free(file->members);
}

/* ---- writing ---- */

static json_t *known_list(const struct identity_file *file)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < file->cluster_shards; i++)
        if (file->known[i].epoch > 0)
            json_array_append_new(list, json_pack("{s:i,s:I,s:o}", "first_shard", (int)i, "epoch",
                                                  (json_int_t)file->known[i].epoch, "start",
                                                  embd__json_hex(file->known[i].start)));
    return list;
}

static json_t *accepted_list(const struct identity_file *file)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < file->n_accepted && i < IDENTITY_ACCEPTED_MAX; i++)
        json_array_append_new(list, json_pack("{s:s,s:s}", "when", file->accepted[i].when, "why",
                                              file->accepted[i].why));
    return list;
}

/* NULL: it is not written, as an earlier version would have it. */
static json_t *placement_of(const struct identity_file *file)
{
    bool is_first = file->placement.is_even && file->placement.version == 1;
    return file->has_placement && !is_first ? embd__placement_to_json(&file->placement) : NULL;
}

/* NULL: there are none. */
static json_t *member_list(const struct identity_file *file)
{
    json_t *list = file->n_members > 0 ? json_array() : NULL;
    for (uint32_t i = 0; i < file->n_members; i++)
        json_array_append_new(list, json_pack("{s:s,s:s,s:s}", "address", file->members[i].address,
                                              "admin", file->members[i].admin, "admin_tcp",
                                              file->members[i].admin_tcp));
    return list;
}

/* malloc'd; NULL: out of memory. Servers of earlier versions, which know the even map alone, do not
 * read version 2. */
static char *write_text(const struct identity_file *file)
{
    json_t *object = json_pack(
        "{s:i,s:s,s:s,s:i,s:i,s:i,s:I,s:o,s:o,s:o,s:i,s:o,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*,s:o*}",
        "version", file->has_placement && !file->placement.is_even ? 2 : 1, "cluster",
        file->own.cluster, "server", file->server, "first_shard", (int)file->first_shard, "shards",
        (int)file->n_shards, "cluster_shards", (int)file->cluster_shards, "epoch",
        (json_int_t)file->own.epoch, "start", embd__json_hex(file->own.start), "history",
        embd__json_hex(file->history), "servers", known_list(file), "n_accepted",
        (int)file->n_accepted, "accepted", accepted_list(file), "placement", placement_of(file),
        "moved", file->is_moved ? json_true() : NULL, "moving",
        file->is_moving ? json_true() : NULL, "joins", file->joins ? json_true() : NULL,
        "first_member", file->n_members > 0 ? json_integer(file->first_member) : NULL, "members",
        member_list(file), "most_shards",
        file->most_shards > 0 ? json_integer(file->most_shards) : NULL, "left",
        file->has_left ? json_true() : NULL);
    char *text = object != NULL ? json_dumps(object, JSON_INDENT(1)) : NULL;
    json_decref(object);
    return text;
}

/* 0 or errno. */
static int write_staged(int dir, const char *text)
{
    size_t n = strlen(text);
    int fd = safe_open(dir, STAGED, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0)
        return errno;
    errno = ENOSPC; /* what a short write leaves unsaid */
    int error = pwrite(fd, text, n, 0) == (ssize_t)n && fsync(fd) == 0 ? 0 : errno;
    close(fd);
    return error;
}

int identity_file_write(int dir, const struct identity_file *file, struct embd__error *e)
{
    char *text = write_text(file);
    if (text == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for %s", NAME);
    errno = write_staged(dir, text);
    free(text);
    if (errno != 0 || renameat(dir, STAGED, dir, NAME) != 0 || fsync(dir) != 0)
        return failed(NAME, e);
    return EMBD_OK;
}

/* ---- journals ---- */

int identity_find_journals(int dir, uint32_t first_shard, uint32_t n_shards, bool *own_out,
                           int64_t *other_out, struct embd__error *e)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *names = fd < 0 ? NULL : fdopendir(fd);
    *own_out = false;
    *other_out = -1;
    if (names == NULL) {
        if (fd >= 0)
            close(fd);
        return failed(".", e);
    }
    errno = 0;
    for (struct dirent *entry; (entry = readdir(names)) != NULL;) {
        unsigned shard;
        unsigned long long number;
        if (sscanf(entry->d_name, "journal.%u.%llu", &shard, &number) != 2)
            continue;
        if (shard >= first_shard && shard - first_shard < n_shards)
            *own_out = true;
        else
            *other_out = shard;
    }
    if (errno != 0)
        failed(".", e);
    closedir(names);
    return e->status;
}
