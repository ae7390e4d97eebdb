/* trunk.c - see trunk.h. */
#include "client/io/trunk.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/io/channel.h"
#include "client/io/receive.h"
#include "proto/little.h"
#include "proto/trunk.h"

enum {
    IN_BYTES = 256 << 10,
    READS_PER_TURN = 16,
    TLS_READS_PER_TURN = 64, /* of CHANNEL_IN_BYTES, as many bytes */
    OUT_BYTES = 512 << 10,
    OUT_SPARE = 32 << 10,    /* of it, for what is not data: lines that open and close */
    FLUSH_BYTES = 128 << 10, /* the server can begin with so much */
    /* Less is not worth a connection more: requests of so few shards are large. */
    AUTO_SHARDS = 128,
    AUTO_OF_PROCESS = 4,
    LOOKS_AHEAD = 2, /* chunks */
};

enum trunk_state { TRUNK_OPENING, TRUNK_UP, TRUNK_LOST };

struct trunk {
    struct trunks *set;
    struct trunk *next;
    uint64_t process;
    char host[ADDRESS_HOST_MAX + 1]; /* as which TLS knows the server; "": without TLS */
    enum trunk_state state;
    struct trunk_carrier carrier;
    uv_poll_t poll;         /* of the channel's fd, if there is one */
    struct channel channel; /* fd -1: none */
    int error;              /* errno of its end; 0: the server has ended it */
    bool is_at_work;        /* is not freed now */
    bool is_full;           /* the socket takes no more for now */
    bool is_awaited;        /* a line waits until there is room again */
    uint32_t n_lines;       /* those that wait, too */
    struct trunk_reader reader;
    uint8_t *out; /* [OUT_BYTES], out_bytes of it to be sent */
    size_t out_bytes;
    struct trunk_line *lines[TRUNK_SLOTS];
    uint32_t numbers[TRUNK_SLOTS]; /* of the slot's next line */
};

/* ---- which ---- */

int embd__trunks_read(enum trunk_use *out, struct embd__error *e)
{
    static const char *const names[] = {"off", "auto", "on"};
    const char *text = getenv("EMBD_TRUNK");
    *out = TRUNK_AUTO;
    if (text == NULL || text[0] == '\0')
        return EMBD_OK;
    for (int i = 0; i < 3; i++)
        if (strcmp(text, names[i]) == 0) {
            *out = (enum trunk_use)i;
            return EMBD_OK;
        }
    return embd__error_set(e, EMBD_INVALID, "EMBD_TRUNK: '%.60s'; expected auto, on or off", text);
}

bool embd__trunks_suit(const struct trunks *trunks, const struct trunk_process *process,
                       uint32_t n_shards)
{
    if (trunks == NULL || trunks->use == TRUNK_NEVER || process->shards == 0)
        return false;
    return trunks->use == TRUNK_ALWAYS ||
           (n_shards >= AUTO_SHARDS && process->shards >= AUTO_OF_PROCESS);
}

/* ---- life ---- */

static void on_closed(uv_handle_t *handle)
{
    struct trunk *t = handle->data;
    free(t->out);
    free(t);
}

static void end(struct trunk *t)
{
    struct trunk **at = &t->set->list;
    while (*at != t)
        at = &(*at)->next;
    *at = t->next;
    if (t->set->list == NULL)
        uv_prepare_stop(&t->set->prepare);
    t->state = TRUNK_LOST;
    if (t->carrier.drop != NULL)
        t->carrier.drop(t->carrier.arg);
    int fd = t->channel.fd;
    embd__channel_close(&t->channel);
    if (fd < 0) {
        free(t->out);
        free(t);
        return;
    }
    uv_poll_stop(&t->poll);
    uv_close((uv_handle_t *)&t->poll, on_closed);
    close(fd);
}

/* Nobody needs it any more. */
static void end_if_unused(struct trunk *t)
{
    if (t->n_lines == 0 && !t->is_at_work)
        end(t);
}

/* Its lines end; those that waited for it go by connections of their own. */
static void lose(struct trunk *t, int error)
{
    bool was_at_work = t->is_at_work;
    t->state = TRUNK_LOST;
    t->error = error;
    t->is_at_work = true;
    for (uint32_t i = 0; i < TRUNK_SLOTS; i++) {
        struct trunk_line *line = t->lines[i];
        if (line != NULL && line->is_open)
            line->events->on_ready(line->owner, true, false);
        else if (line != NULL)
            line->events->on_lose(line->owner, EMBD_UNREACHABLE, "the server did not open a trunk");
        if (line != NULL && t->lines[i] == line) /* what it did not notice by itself */
            line->events->on_lose(line->owner, EMBD_CLOSED, "the trunk ended");
    }
    t->is_at_work = was_at_work;
    end_if_unused(t);
}

/* ---- sending ---- */

static void put_head(struct trunk *t, uint32_t kind, uint32_t stream, uint32_t value)
{
    if (t->state != TRUNK_UP || t->out_bytes + TRUNK_HEAD_BYTES > OUT_BYTES)
        return;
    embd__trunk_head(t->out + t->out_bytes, kind, stream, value);
    t->out_bytes += TRUNK_HEAD_BYTES;
}

static void want_write(struct trunk *t, bool is_full);

/* 0, or a negative errno. */
static int flush(struct trunk *t)
{
    size_t sent = 0;
    int error = embd__channel_flush(&t->channel);
    bool is_full = false;
    while (sent < t->out_bytes && error == 0 && !is_full) {
        struct iovec iov = {t->out + sent, t->out_bytes - sent};
        ssize_t n = embd__channel_send(&t->channel, &iov, 1);
        if (n >= 0)
            sent += (size_t)n;
        else if (n == -EAGAIN)
            is_full = true;
        else
            error = (int)n;
    }
    t->out_bytes -= sent;
    if (sent > 0 && t->out_bytes > 0)
        memmove(t->out, t->out + sent, t->out_bytes);
    want_write(t, is_full || embd__channel_is_pending(&t->channel));
    return error;
}

void embd__trunks_flush_all(struct trunks *trunks)
{
    struct trunk *next;
    for (struct trunk *t = trunks->list; t != NULL; t = next) {
        next = t->next;
        if (t->state != TRUNK_UP || t->out_bytes == 0 || t->is_full || t->is_at_work)
            continue;
        int error = flush(t);
        if (error < 0)
            lose(t, -error);
    }
}

static size_t room(const struct trunk *t)
{
    size_t used = t->out_bytes + OUT_SPARE + TRUNK_HEAD_BYTES;
    return used < OUT_BYTES ? OUT_BYTES - used : 0;
}

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* One chunk, of as many bytes as may go. */
ssize_t embd__trunk_send(struct trunk_line *line, const struct iovec *iov, size_t n)
{
    struct trunk *t = line->trunk;
    size_t total = 0, most;
    if (t->state == TRUNK_LOST)
        return t->error != 0 ? -t->error : -EPIPE;
    if (t->out_bytes >= FLUSH_BYTES && !t->is_full && flush(t) < 0)
        return -EPIPE;
    most = least(least(room(t), line->credit), TRUNK_DATA_BYTES);
    t->is_awaited |= room(t) == 0;
    uint8_t *head = t->out + t->out_bytes, *to = head + TRUNK_HEAD_BYTES;
    for (size_t i = 0; i < n && total < most; i++) {
        size_t bytes = least(iov[i].iov_len, most - total);
        memcpy(to + total, iov[i].iov_base, bytes);
        total += bytes;
    }
    line->is_waiting = total == 0;
    if (total == 0)
        return -EAGAIN;
    put_head(t, TRUNK_DATA, line->number, (uint32_t)total);
    t->out_bytes += total;
    line->credit -= (uint32_t)total;
    return (ssize_t)total;
}

/* Those that wait may send again. */
static void unblock(struct trunk *t)
{
    t->is_awaited = false;
    for (uint32_t i = 0; i < TRUNK_SLOTS && room(t) > 0 && t->state == TRUNK_UP; i++) {
        struct trunk_line *line = t->lines[i];
        if (line != NULL && line->is_waiting && line->credit > 0)
            line->events->on_ready(line->owner, false, true);
    }
}

/* ---- receiving ---- */

ssize_t embd__trunk_receive(const struct trunk_line *line)
{
    if (line->has_ended)
        return 0;
    return line->trunk->state == TRUNK_LOST ? -line->trunk->error : -EAGAIN;
}

const struct embd__error *embd__trunk_error(const struct trunk_line *line)
{
    return &line->trunk->channel.error;
}

static struct trunk_line *line_of(const struct trunk *t, uint32_t number)
{
    struct trunk_line *line = t->lines[embd__trunk_slot(number)];
    return line != NULL && line->is_open && line->number == number ? line : NULL;
}

static void on_chunk(struct trunk *t)
{
    const struct trunk_chunk *chunk = &t->reader.chunk;
    struct trunk_line *line = line_of(t, chunk->stream);
    if (line == NULL || chunk->kind == TRUNK_DATA)
        return;
    if (chunk->kind == TRUNK_CREDIT) {
        uint32_t most = TRUNK_WINDOW_BYTES - line->credit;
        line->credit += chunk->value < most ? chunk->value : most;
        if (line->is_waiting && room(t) > 0)
            line->events->on_ready(line->owner, false, true);
        return;
    }
    line->has_ended = true;
    line->events->on_ready(line->owner, true, false);
}

/* With many lines what each of them needs is in no near cache. p[0 .. n) is what follows the chunk
 * that is at work, unchecked. */
static void look_ahead(const struct trunk *t, const uint8_t *p, size_t n)
{
    for (uint32_t i = 0; i < LOOKS_AHEAD && n >= TRUNK_HEAD_BYTES; i++) {
        bool is_data = embd__get_u32(p) == TRUNK_DATA;
        uint32_t slot = embd__trunk_slot(embd__get_u32(p + 4)), value = embd__get_u32(p + 8);
        size_t bytes = TRUNK_HEAD_BYTES + (is_data ? (size_t)value : 0);
        const struct trunk_line *line = is_data && slot < TRUNK_SLOTS ? t->lines[slot] : NULL;
        if (line != NULL)
            line->events->on_soon(line->owner, i == 0);
        if (bytes > n)
            return;
        p += bytes;
        n -= bytes;
    }
}

/* 0, or errno. */
static int eat(struct trunk *t, uint8_t *p, size_t n)
{
    size_t at = 0, used;
    while (at < n) {
        int event = embd__trunk_read(&t->reader, false, p + at, n - at, &used, &t->channel.error);
        if (event < 0)
            return EPROTO;
        bool is_data = event == TRUNK_BYTES;
        struct trunk_line *line = is_data ? line_of(t, t->reader.chunk.stream) : NULL;
        if (event == TRUNK_CHUNK)
            on_chunk(t);
        if (line != NULL) {
            look_ahead(t, p + at + used, n - at - used);
            line->events->on_bytes(line->owner, p + at, used);
        }
        at += used;
    }
    return 0;
}

/* True: it has ended; *error_out says how. Nothing tells of what a TLS session still has: it is
 * read until that has nothing, and the channel ends the turn. */
static bool receive(struct trunk *t, int *error_out)
{
    bool has_session = t->channel.tls != NULL;
    embd__channel_begin_turn(&t->channel, TLS_READS_PER_TURN);
    for (int i = 0; i < READS_PER_TURN || has_session; i++) {
        uint8_t *in = t->set->in + RECEIVE_BEFORE_BYTES;
        struct iovec iov = {in, IN_BYTES};
        ssize_t n = embd__channel_receive(&t->channel, &iov, 1);
        *error_out = n < 0 ? (int)-n : 0;
        if (n == -EAGAIN)
            return false;
        if (n <= 0)
            return true;
        t->set->read_ns = uv_hrtime();
        *error_out = eat(t, in, (size_t)n);
        if (*error_out != 0)
            return true;
        if (n < IN_BYTES && !has_session)
            return false;
    }
    return false;
}

static void on_poll(uv_poll_t *poll, int status, int events);

static void watch_again(struct trunk *t)
{
    uv_poll_start(&t->poll, t->is_full ? UV_READABLE | UV_WRITABLE : UV_READABLE, on_poll);
}

static void on_poll(uv_poll_t *poll, int status, int events)
{
    struct trunk *t = poll->data;
    int error = 0;
    bool has_ended = false;
    t->is_at_work = true;
    if ((events & UV_WRITABLE) != 0) {
        error = -flush(t);
        has_ended = error != 0;
    }
    if (!has_ended && (status < 0 || (events & UV_READABLE) != 0))
        has_ended = receive(t, &error);
    if (!has_ended && !t->is_full && embd__channel_is_pending(&t->channel)) {
        error = -flush(t); /* what TLS answers by itself */
        has_ended = error != 0;
    }
    if (!has_ended && status < 0)
        watch_again(t);
    if (!has_ended && t->is_awaited && !t->is_full)
        unblock(t);
    t->is_at_work = false;
    if (has_ended)
        lose(t, error);
    else
        end_if_unused(t);
}

static void want_write(struct trunk *t, bool is_full)
{
    bool was_full = t->is_full;
    t->is_full = is_full;
    if (was_full != is_full)
        watch_again(t);
}

/* ---- lines ---- */

static void open_line(struct trunk *t, struct trunk_line *line)
{
    line->number = t->numbers[embd__trunk_slot(line->number)];
    line->is_open = true;
    put_head(t, TRUNK_OPEN, line->number, line->shard);
    line->events->on_open(line->owner);
}

void embd__trunk_line_close(struct trunk_line *line)
{
    struct trunk *t = line->trunk;
    uint32_t slot = embd__trunk_slot(line->number);
    if (t == NULL)
        return;
    if (line->is_open) {
        put_head(t, TRUNK_CLOSE, line->number, 0);
        t->numbers[slot] = embd__trunk_next(line->number);
    }
    t->lines[slot] = NULL;
    line->trunk = NULL;
    line->is_open = false;
    t->n_lines--;
    end_if_unused(t);
}

int embd__trunk_fd(const struct trunk_line *line)
{
    return line->trunk->channel.fd;
}

/* ---- opening ---- */

static bool watch(struct trunk *t, const struct channel *channel)
{
    struct channel own = *channel;
    int fd = own.fd;
    if (fd < 0)
        return false;
    if (uv_poll_init(t->set->loop, &t->poll, fd) != 0) {
        embd__channel_close(&own);
        close(fd);
        return false;
    }
    t->channel = own;
    t->poll.data = t;
    t->state = TRUNK_UP;
    uv_poll_start(&t->poll, UV_READABLE, on_poll);
    return true;
}

void embd__trunk_start(struct trunk *t, const struct channel *channel)
{
    t->carrier.drop = NULL;
    bool is_up = watch(t, channel);
    t->is_at_work = true;
    for (uint32_t i = 0; is_up && i < TRUNK_SLOTS; i++)
        if (t->lines[i] != NULL)
            open_line(t, t->lines[i]);
    t->is_at_work = false;
    if (!is_up)
        lose(t, ECONNREFUSED);
    else
        end_if_unused(t);
}

static void on_prepare(uv_prepare_t *prepare)
{
    embd__trunks_flush_all(prepare->data);
}

/* NULL: no memory. */
static struct trunk *trunk_new(struct trunks *set, const struct link_config *config,
                               uint64_t process, const char *host, struct embd__error *e)
{
    struct trunk *t = calloc(1, sizeof *t);
    if (set->in == NULL)
        set->in = aligned_alloc(RECEIVE_ALIGNMENT, RECEIVE_BEFORE_BYTES + IN_BYTES);
    if (t != NULL)
        t->out = malloc(OUT_BYTES);
    if (t == NULL || t->out == NULL || set->in == NULL) {
        if (t != NULL)
            free(t->out);
        free(t);
        embd__error_set(e, EMBD_NO_MEMORY, "no memory for a trunk");
        return NULL;
    }
    t->set = set;
    t->process = process;
    snprintf(t->host, sizeof t->host, "%s", host);
    t->channel.fd = -1;
    for (uint32_t i = 0; i < TRUNK_SLOTS; i++)
        t->numbers[i] = i;
    t->next = set->list;
    set->list = t;
    uv_prepare_start(&set->prepare, on_prepare);
    if (set->carry(t, set->loop, config, &t->carrier, e) == EMBD_OK)
        return t;
    end(t);
    return NULL;
}

/* A server could say another's number: with TLS it is asked for none but the shards of its name. */
static bool is_to(const struct trunk *t, uint64_t process, const char *host)
{
    return t->process == process && strcmp(t->host, host) == 0 && t->state != TRUNK_LOST;
}

static struct trunk *find(const struct trunks *trunks, uint64_t process, const char *host)
{
    struct trunk *t = trunks->list;
    while (t != NULL && !is_to(t, process, host))
        t = t->next;
    return t;
}

int embd__trunk_line_open(struct trunks *trunks, struct trunk_line *line, uint64_t process,
                          const char *host, const struct link_config *config, struct embd__error *e)
{
    struct trunk *t = find(trunks, process, host);
    uint32_t slot = 0;
    if (t == NULL && (t = trunk_new(trunks, config, process, host, e)) == NULL)
        return e->status;
    while (slot < TRUNK_SLOTS && t->lines[slot] != NULL)
        slot++;
    if (slot == TRUNK_SLOTS)
        return embd__error_set(e, EMBD_NO_MEMORY, "the trunk has %u lines", TRUNK_SLOTS);
    t->lines[slot] = line;
    t->n_lines++;
    line->trunk = t;
    line->number = slot;
    line->credit = TRUNK_WINDOW_BYTES;
    line->is_open = line->is_waiting = line->has_ended = false;
    if (t->state == TRUNK_UP)
        open_line(t, line);
    return EMBD_OK;
}

/* ---- the loop's ---- */

int embd__trunks_init(struct trunks *trunks, uv_loop_t *loop, enum trunk_use use,
                      struct embd__error *e)
{
    *trunks = (struct trunks){.loop = loop, .use = use};
    if (!msgpack_zone_init(&trunks->zone, 1024))
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for answers");
    uv_prepare_init(loop, &trunks->prepare);
    trunks->prepare.data = trunks;
    uv_unref((uv_handle_t *)&trunks->prepare);
    return EMBD_OK;
}

void embd__trunks_close(struct trunks *trunks)
{
    uv_close((uv_handle_t *)&trunks->prepare, NULL);
}

void embd__trunks_fini(struct trunks *trunks)
{
    free(trunks->in);
    msgpack_zone_destroy(&trunks->zone);
}
