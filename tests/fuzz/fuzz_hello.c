/* fuzz_hello.c - who is let in: any request to a shard that asks for tokens, and any list of
 * tokens.
 *
 * The first byte chooses. 0: the rest is a list of tokens, which is believed whole or not at all.
 * Else: the rest is the params of a request of the method that the byte names, from a peer that has
 * shown nothing; only the token of the list, in hello, gets it a grant. */
#include <stdlib.h>
#include <string.h>

#include "server/service/shard.h"

static struct shard *shard;
static struct access *access_list;

/* SHA-256 of TOKEN. */
#define TOKEN "embd_0123456789abcdef0123456789abcdef"
static const char list[] =
    "somebody trainer ads_ "
    "sha256:b23447efea96ec8daaf3176cddfd3f1fd19716b9cbf8c39a254b34f92d843786\n";

static void must(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    static const char *const address[] = {"127.0.0.1:7700"}, *const admin[] = {""};
    struct embd__error e = {0};
    (void)argc;
    (void)argv;
    must(access_read(list, sizeof list - 1, "list", &access_list, &e) == EMBD_OK);
    must(access_find(access_list, TOKEN) != NULL);
    const struct store_ops *ops = store_find("host", &e);
    const struct shard_config config = {.n_shards = 1,
                                        .cluster_name = "fuzz",
                                        .addresses = address,
                                        .admin_addresses = admin,
                                        .store = ops,
                                        .is_first = true,
                                        .access = access_list};
    must(ops != NULL && shard_open(&config, &shard, &e) == EMBD_OK);
    return 0;
}

static void read_list(const uint8_t *data, size_t n)
{
    struct embd__error e = {0};
    struct access *access;
    int status = access_read((const char *)data, n, "list", &access, &e);
    must((status == EMBD_OK) == (access != NULL) && (status == EMBD_OK) == (e.text[0] == '\0'));
    if (access != NULL)
        must(access_find(access, "") == NULL);
    access_drop(access);
}

static void on_answer(struct request *request)
{
    (void)request;
}

static size_t write_head(uint8_t *out, const char *method)
{
    size_t n = strlen(method);
    const uint8_t head[] = {0x94, 0, 1, (uint8_t)(0xa0 | n)};
    memcpy(out, head, sizeof head);
    memcpy(out + sizeof head, method, n);
    return sizeof head + n;
}

/* Whether the bytes have the token in them: without it nobody may come in. */
static bool has_token(const uint8_t *data, size_t n)
{
    return memmem(data, n, TOKEN, sizeof TOKEN - 1) != NULL;
}

static void ask(const char *method, const uint8_t *data, size_t n)
{
    uint8_t bytes[LIMIT_HEADER_BYTES + 64], head[LIMIT_HEADER_BYTES];
    struct shard_session session = {0};
    struct frame_scanner frame;
    struct embd__error e = {0};
    size_t used, at = write_head(bytes, method);
    if (n > LIMIT_HEADER_BYTES)
        return;
    memcpy(bytes + at, data, n);
    embd__frame_init(&frame, head, sizeof head, LIMIT_FRAME_BYTES);
    if (embd__frame_scan(&frame, bytes, at + n, &used, &e) != FRAME_DONE)
        return;
    struct request request = {.listener = LISTENER_DATA,
                              .session = &session,
                              .frame = &frame,
                              .on_answer = on_answer,
                              .received_ns = 1};
    embd__msg_init(&request.answer);
    shard_handle(shard, &request);
    must(session.grant == NULL || (strcmp(method, "hello") == 0 && has_token(data, n)));
    must(session.grant != NULL || request.answer.head_bytes > 0);
    shard_request_fini(shard, &request);
    shard_session_end(shard, &session);
    embd__msg_fini(&request.answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    if (data[0] == 0)
        read_list(data + 1, n - 1);
    else
        ask(data[0] < 128 ? "hello" : embd__method_name((enum method)(data[0] % METHOD_COUNT)),
            data + 1, n - 1);
    return 0;
}
