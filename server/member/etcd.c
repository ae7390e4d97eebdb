/* etcd.c - asks etcd by HTTP.
 *
 * The happy path: a request is JSON with keys and values in base64, posted to the member that
 * answered last; its answer is JSON again, with 64-bit numbers as text. A member that does not
 * answer is skipped. A watch is an answer that does not end: its first line says that it has begun,
 * the second has the change, and nothing else is awaited.
 *
 * If etcd requires a login, the user's password gives a token, which goes with every request until
 * etcd refuses it; then a new one is requested.
 *
 * Answers of etcd are checked like those of other peers: they are bounded, and an answer of another
 * kind is EMBD_PROTOCOL. */
#include "server/member/etcd.h"

#include <curl/curl.h>
#include <errno.h>
#include <jansson.h>
#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define ANSWER_BYTES    (2 * (size_t)ETCD_VALUE_BYTES)
#define CONNECT_MS      1000L
#define POLL_MS         1000 /* at most, between two looks at the clock */
#define BASE64_BYTES(n) (((n) + 2) / 3 * 4 + 1)
#define TOKEN_BYTES     4096u /* of etcd's tokens, which may be signed */
#define HTTP_WHO        401   /* the token is not known, or not any more */

struct etcd {
    struct etcd_place place;
    uint32_t member; /* that answered last */
    CURL *curl;
    CURLM *transfers;           /* the one of `curl`, which etcd_wake can interrupt */
    struct curl_slist *headers; /* with a token, or without */
    bool has_token;
    const atomic_bool *stops;
    char *answer; /* [ANSWER_BYTES + 1] */
    size_t answer_bytes;
    bool is_watch, has_changed;
    uint32_t patience_ms;
    atomic_bool is_nudged;
};

/* ---- asking ---- */

static bool is_event(const struct etcd *etcd)
{
    return memmem(etcd->answer, etcd->answer_bytes, "\"events\"", 8) != NULL ||
           memmem(etcd->answer, etcd->answer_bytes, "\"canceled\"", 10) != NULL;
}

/* Fewer bytes than given end the transfer. */
static size_t on_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct etcd *etcd = arg;
    size_t bytes = size * n;
    if (bytes > ANSWER_BYTES - etcd->answer_bytes)
        return 0;
    memcpy(etcd->answer + etcd->answer_bytes, data, bytes);
    etcd->answer_bytes += bytes;
    etcd->answer[etcd->answer_bytes] = '\0';
    etcd->has_changed = etcd->is_watch && is_event(etcd);
    return etcd->has_changed ? 0 : bytes;
}

static bool has_tls(const struct etcd *etcd)
{
    return etcd->place.ca[0] != '\0';
}

static void set_tls(const struct etcd *etcd)
{
    const struct etcd_place *place = &etcd->place;
    curl_easy_setopt(etcd->curl, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    if (strcmp(place->ca, "system") != 0) {
        curl_easy_setopt(etcd->curl, CURLOPT_CAINFO, place->ca);
        curl_easy_setopt(etcd->curl, CURLOPT_CAPATH, NULL);
    }
    if (place->cert[0] != '\0') {
        curl_easy_setopt(etcd->curl, CURLOPT_SSLCERT, place->cert);
        curl_easy_setopt(etcd->curl, CURLOPT_SSLKEY, place->key);
    }
}

/* The headers of requests from now on. `token` NULL: no login. */
static int set_token(struct etcd *etcd, const char *token, struct embd__error *e)
{
    struct curl_slist *all = curl_slist_append(NULL, "Content-Type: application/json"), *longer;
    if (token != NULL && all != NULL) {
        char line[TOKEN_BYTES + 20];
        snprintf(line, sizeof line, "Authorization: %s", token);
        longer = curl_slist_append(all, line);
        if (longer == NULL)
            curl_slist_free_all(all);
        all = longer;
    }
    if (all == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for etcd");
    curl_easy_setopt(etcd->curl, CURLOPT_HTTPHEADER, all);
    curl_slist_free_all(etcd->headers);
    etcd->headers = all;
    etcd->has_token = token != NULL;
    return EMBD_OK;
}

int etcd_open(const struct etcd_place *place, const atomic_bool *stops, struct etcd **out,
              struct embd__error *e)
{
    *out = NULL;
    if (etcd_place_check(place, e) != EMBD_OK)
        return e->status;
    struct etcd *etcd = calloc(1, sizeof *etcd);
    if (etcd == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for etcd");
    etcd->place = *place;
    etcd->stops = stops;
    etcd->patience_ms = ETCD_ANSWER_MS;
    etcd->answer = malloc(ANSWER_BYTES + 1);
    curl_global_init(CURL_GLOBAL_ALL);
    etcd->curl = curl_easy_init();
    etcd->transfers = curl_multi_init();
    if (etcd->answer == NULL || etcd->curl == NULL || etcd->transfers == NULL ||
        set_token(etcd, NULL, e) != EMBD_OK) {
        etcd_close(etcd);
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for etcd");
    }
    if (has_tls(etcd))
        set_tls(etcd);
    curl_easy_setopt(etcd->curl, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(etcd->curl, CURLOPT_PROXY, "");
    curl_easy_setopt(etcd->curl, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    curl_easy_setopt(etcd->curl, CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
    curl_easy_setopt(etcd->curl, CURLOPT_WRITEFUNCTION, on_bytes);
    curl_easy_setopt(etcd->curl, CURLOPT_WRITEDATA, etcd);
    *out = etcd;
    return EMBD_OK;
}

void etcd_close(struct etcd *etcd)
{
    if (etcd == NULL)
        return;
    curl_multi_cleanup(etcd->transfers);
    curl_easy_cleanup(etcd->curl);
    curl_slist_free_all(etcd->headers);
    free(etcd->answer);
    free(etcd);
}

void etcd_wake(struct etcd *etcd)
{
    curl_multi_wakeup(etcd->transfers);
}

void etcd_nudge(struct etcd *etcd)
{
    atomic_store(&etcd->is_nudged, true);
    curl_multi_wakeup(etcd->transfers);
}

void etcd_set_patience(struct etcd *etcd, uint32_t ms)
{
    etcd->patience_ms = ms;
    curl_easy_setopt(etcd->curl, CURLOPT_CONNECTTIMEOUT_MS, (long)ms);
}

static bool is_to_end(struct etcd *etcd)
{
    return atomic_load(etcd->stops) || (etcd->is_watch && atomic_load(&etcd->is_nudged));
}

/* The question is asked, and answered, or failed, or given up since the process ends. */
static CURLcode perform(struct etcd *etcd)
{
    CURLcode result = CURLE_ABORTED_BY_CALLBACK;
    CURLMcode status = curl_multi_add_handle(etcd->transfers, etcd->curl);
    const CURLMsg *message = NULL;
    int n_running = 1, n_left;
    while (status == CURLM_OK && message == NULL && !is_to_end(etcd)) {
        status = curl_multi_perform(etcd->transfers, &n_running);
        message = curl_multi_info_read(etcd->transfers, &n_left);
        if (message == NULL && status == CURLM_OK)
            status = curl_multi_poll(etcd->transfers, NULL, 0, POLL_MS, NULL);
    }
    if (message != NULL)
        result = message->data.result;
    else if (status != CURLM_OK)
        result = CURLE_OUT_OF_MEMORY;
    curl_multi_remove_handle(etcd->transfers, etcd->curl);
    return result;
}

static bool is_watch_at_rest(const struct etcd *etcd, CURLcode result, long code)
{
    return etcd->is_watch && result == CURLE_OPERATION_TIMEDOUT && code == 200;
}

/* One member. Its answer is in etcd->answer; *code_out: of HTTP, or 0. */
static int post_one(struct etcd *etcd, const char *path, const char *body, uint32_t timeout_ms,
                    long *code_out, struct embd__error *e)
{
    char url[512], own[CURL_ERROR_SIZE] = "";
    const char *member = etcd->place.members[etcd->member];
    long code = *code_out = 0;
    snprintf(url, sizeof url, "%s://%s%s", has_tls(etcd) ? "https" : "http", member, path);
    etcd->answer_bytes = 0;
    etcd->answer[0] = '\0';
    etcd->has_changed = false;
    curl_easy_setopt(etcd->curl, CURLOPT_URL, url);
    curl_easy_setopt(etcd->curl, CURLOPT_POSTFIELDS, body);
    curl_easy_setopt(etcd->curl, CURLOPT_TIMEOUT_MS, (long)timeout_ms);
    curl_easy_setopt(etcd->curl, CURLOPT_ERRORBUFFER, own);
    CURLcode result = perform(etcd);
    curl_easy_setopt(etcd->curl, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_getinfo(etcd->curl, CURLINFO_RESPONSE_CODE, &code);
    *code_out = code;
    if (atomic_load(etcd->stops))
        return embd__error_set(e, EMBD_CLOSED, "etcd: the process ends");
    if (etcd->is_watch && atomic_exchange(&etcd->is_nudged, false))
        return EMBD_OK;
    if (result != CURLE_OK && !etcd->has_changed && !is_watch_at_rest(etcd, result, code))
        return embd__error_set(e, EMBD_UNREACHABLE, "etcd %s: %.200s", member,
                               own[0] != '\0' ? own : curl_easy_strerror(result));
    if (code != 200)
        return embd__error_set(e, EMBD_UNREACHABLE, "etcd %s: HTTP %ld %.200s", member, code,
                               etcd->answer);
    return EMBD_OK;
}

/* The answer's object; NULL with the error set. */
static json_t *read_answer(const struct etcd *etcd, struct embd__error *e)
{
    json_error_t why;
    json_t *object = json_loadb(etcd->answer, etcd->answer_bytes, JSON_DISABLE_EOF_CHECK, &why);
    if (json_is_object(object))
        return object;
    json_decref(object);
    embd__error_set(e, EMBD_PROTOCOL, "etcd %s: the answer is not a JSON object",
                    etcd->place.members[etcd->member]);
    return NULL;
}

static int take_token(struct etcd *etcd, struct embd__error *e)
{
    json_t *answer = read_answer(etcd, e);
    const char *token = json_string_value(json_object_get(answer, "token"));
    if (answer != NULL &&
        (token == NULL || strlen(token) >= TOKEN_BYTES || token[strcspn(token, "\r\n")] != '\0'))
        embd__error_set(e, EMBD_PROTOCOL, "etcd %s: the answer has no token",
                        etcd->place.members[etcd->member]);
    else if (answer != NULL)
        set_token(etcd, token, e);
    json_decref(answer);
    return e->status;
}

/* The password for a token. The file is read every time, so that it may be changed. */
static int log_in(struct etcd *etcd, struct embd__error *e)
{
    struct etcd_login login;
    bool is_watch = etcd->is_watch;
    long code;
    if (etcd_login_read(etcd->place.login, &login, e) != EMBD_OK)
        return e->status;
    json_t *object = json_pack("{s:s,s:s}", "name", login.user, "password", login.password);
    explicit_bzero(&login, sizeof login);
    char *body = object != NULL ? json_dumps(object, JSON_COMPACT) : NULL;
    json_decref(object);
    if (body == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request to etcd");
    etcd->is_watch = false;
    int status = set_token(etcd, NULL, e);
    if (status == EMBD_OK)
        status = post_one(etcd, "/v3/auth/authenticate", body, etcd->patience_ms, &code, e);
    etcd->is_watch = is_watch;
    explicit_bzero(body, strlen(body));
    free(body);
    return status == EMBD_OK ? take_token(etcd, e) : status;
}

/* With a login where etcd requires one: a token that etcd refuses is renewed once. */
static int post_as(struct etcd *etcd, const char *path, const char *body, uint32_t timeout_ms,
                   struct embd__error *e)
{
    long code;
    bool is_known = etcd->place.login[0] != '\0', is_fresh = false;
    for (;;) {
        if (is_known && !etcd->has_token) {
            if (log_in(etcd, e) != EMBD_OK)
                return e->status;
            is_fresh = true;
        }
        int status = post_one(etcd, path, body, timeout_ms, &code, e);
        if (status == EMBD_OK || code != HTTP_WHO || !is_known || is_fresh)
            return status;
        e->status = EMBD_OK;
        etcd->has_token = false;
    }
}

static int post(struct etcd *etcd, const char *path, json_t *body, uint32_t timeout_ms,
                struct embd__error *e)
{
    char *text = body != NULL ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (text == NULL)
        return embd__error_set(e, EMBD_NO_MEMORY, "no memory for a request to etcd");
    int status = EMBD_UNREACHABLE;
    for (uint32_t i = 0; i < etcd->place.n_members && status == EMBD_UNREACHABLE; i++) {
        struct embd__error own = {.status = EMBD_OK};
        status = post_as(etcd, path, text, timeout_ms, &own);
        if (status == EMBD_UNREACHABLE)
            etcd->member = (etcd->member + 1) % etcd->place.n_members;
        if (status != EMBD_OK) {
            e->status = EMBD_OK;
            embd__error_set(e, status, "%s", own.text);
        }
    }
    if (status == EMBD_OK)
        e->status = EMBD_OK;
    free(text);
    return status;
}

/* ---- values ---- */

/* A number, as JSON or as text; 0 if absent, as in protobuf. */
static int64_t number_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    return json_is_string(value) ? strtoll(json_string_value(value), NULL, 10)
                                 : (int64_t)json_integer_value(value);
}

static json_t *text_of(uint64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)number);
    return json_string(text);
}

/* Bytes as base64, or NULL. */
static json_t *packed(const char *bytes, size_t n)
{
    unsigned char *text = malloc(BASE64_BYTES(n));
    if (text == NULL)
        return NULL;
    EVP_EncodeBlock(text, (const unsigned char *)bytes, (int)n);
    json_t *out = json_string((const char *)text);
    free(text);
    return out;
}

static json_t *packed_key(const struct etcd *etcd, const char *key)
{
    char full[ETCD_KEY_BYTES];
    int n = snprintf(full, sizeof full, "%s/%s", etcd->place.prefix, key);
    return n < 0 || (size_t)n >= sizeof full ? NULL : packed(full, (size_t)n);
}

/* The bytes of base64 with a zero at their end; NULL: it is not base64. */
static char *unpacked(const char *text)
{
    size_t n = strlen(text), padding = 0;
    while (padding < 2 && padding < n && text[n - 1 - padding] == '=')
        padding++;
    char *out = malloc(n + 1);
    int bytes = out == NULL
                    ? -1
                    : EVP_DecodeBlock((unsigned char *)out, (const unsigned char *)text, (int)n);
    if (bytes < (int)padding || n > ETCD_VALUE_BYTES) {
        free(out);
        return NULL;
    }
    out[(size_t)bytes - padding] = '\0';
    return out;
}

int etcd_get_newer(struct etcd *etcd, const char *key, uint64_t mod_revision,
                   struct etcd_value *out, struct embd__error *e)
{
    *out = (struct etcd_value){0};
    json_t *body = json_pack("{s:o,s:o}", "key", packed_key(etcd, key), "min_mod_revision",
                             text_of(mod_revision + (mod_revision > 0)));
    if (post(etcd, "/v3/kv/range", body, etcd->patience_ms, e) != EMBD_OK)
        return e->status;
    json_t *answer = read_answer(etcd, e);
    if (answer == NULL)
        return e->status;
    const json_t *entry = json_array_get(json_object_get(answer, "kvs"), 0);
    const char *value = json_string_value(json_object_get(entry, "value"));
    out->revision = (uint64_t)number_of(json_object_get(answer, "header"), "revision");
    if (entry != NULL) {
        out->text = unpacked(value != NULL ? value : "");
        out->mod_revision = (uint64_t)number_of(entry, "mod_revision");
        if (out->text == NULL || out->mod_revision == 0)
            embd__error_set(e, EMBD_PROTOCOL, "etcd: the value of %s cannot be read", key);
    }
    if (e->status != EMBD_OK) {
        free(out->text);
        out->text = NULL;
    }
    json_decref(answer);
    return e->status;
}

int etcd_get(struct etcd *etcd, const char *key, struct etcd_value *out, struct embd__error *e)
{
    return etcd_get_newer(etcd, key, 0, out, e);
}

static json_t *list_guards(const struct etcd *etcd, const struct etcd_guard *guards, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list,
                              json_pack("{s:o,s:s,s:s,s:o}", "key", packed_key(etcd, guards[i].key),
                                        "target", "MOD", "result", "EQUAL", "mod_revision",
                                        text_of(guards[i].mod_revision)));
    return list;
}

static json_t *assignment(const struct etcd *etcd, const struct etcd_put *put)
{
    return json_pack("{s:{s:o,s:o,s:o}}", "request_put", "key", packed_key(etcd, put->key), "value",
                     packed(put->value, strlen(put->value)), "lease",
                     text_of((uint64_t)put->lease));
}

static json_t *removal(const struct etcd *etcd, const struct etcd_put *put)
{
    return json_pack("{s:{s:o}}", "request_delete_range", "key", packed_key(etcd, put->key));
}

static json_t *list_puts(const struct etcd *etcd, const struct etcd_put *puts, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, puts[i].value == NULL ? removal(etcd, &puts[i])
                                                          : assignment(etcd, &puts[i]));
    return list;
}

int etcd_commit(struct etcd *etcd, const struct etcd_guard *guards, uint32_t n_guards,
                const struct etcd_put *puts, uint32_t n_puts, uint64_t *won_out,
                struct embd__error *e)
{
    json_t *compare = list_guards(etcd, guards, n_guards), *success = list_puts(etcd, puts, n_puts);
    bool is_whole = json_array_size(compare) == n_guards && json_array_size(success) == n_puts;
    json_t *body = is_whole ? json_pack("{s:O,s:O}", "compare", compare, "success", success) : NULL;
    json_decref(compare);
    json_decref(success);
    *won_out = 0;
    if (post(etcd, "/v3/kv/txn", body, etcd->patience_ms, e) != EMBD_OK)
        return e->status;
    json_t *answer = read_answer(etcd, e);
    if (json_is_true(json_object_get(answer, "succeeded")))
        *won_out = (uint64_t)number_of(json_object_get(answer, "header"), "revision");
    json_decref(answer);
    return e->status;
}

int etcd_swap(struct etcd *etcd, const char *key, uint64_t mod_revision, const char *value,
              int64_t lease, bool *won_out, struct embd__error *e)
{
    const struct etcd_guard guard = {key, mod_revision};
    const struct etcd_put put = {key, value, lease};
    uint64_t revision;
    int status = etcd_commit(etcd, &guard, 1, &put, 1, &revision, e);
    *won_out = revision != 0;
    return status;
}

/* ---- folders ---- */

/* False: there is no memory. */
static bool take_item(const struct etcd *etcd, const char *folder, const json_t *entry,
                      struct etcd_item *out, bool *fits_out)
{
    const char *key = json_string_value(json_object_get(entry, "key")),
               *value = json_string_value(json_object_get(entry, "value"));
    char *name = unpacked(key != NULL ? key : "");
    size_t skipped = strlen(etcd->place.prefix) + 1 + strlen(folder);
    *fits_out = name != NULL && strlen(name) > skipped && strlen(name) - skipped < sizeof out->name;
    if (*fits_out) {
        snprintf(out->name, sizeof out->name, "%s", name + skipped);
        out->text = unpacked(value != NULL ? value : "");
    }
    free(name);
    return !*fits_out || out->text != NULL;
}

int etcd_list(struct etcd *etcd, const char *folder, struct etcd_item *items, uint32_t most,
              uint32_t *n_out, struct embd__error *e)
{
    char end[ETCD_KEY_BYTES];
    *n_out = 0;
    snprintf(end, sizeof end, "%s", folder);
    end[strlen(end) - 1]++; /* the slash: behind all that begin with the folder */
    json_t *body = json_pack("{s:o,s:o,s:o}", "key", packed_key(etcd, folder), "range_end",
                             packed_key(etcd, end), "limit", text_of(most));
    if (post(etcd, "/v3/kv/range", body, etcd->patience_ms, e) != EMBD_OK)
        return e->status;
    json_t *answer = read_answer(etcd, e), *list = json_object_get(answer, "kvs");
    for (size_t i = 0; i < json_array_size(list) && *n_out < most && e->status == EMBD_OK; i++) {
        bool fits;
        if (!take_item(etcd, folder, json_array_get(list, i), &items[*n_out], &fits))
            embd__error_set(e, EMBD_PROTOCOL, "etcd: a value below %s cannot be read", folder);
        else
            *n_out += fits;
    }
    for (; e->status != EMBD_OK && *n_out > 0; --*n_out)
        free(items[*n_out - 1].text);
    json_decref(answer);
    return e->status;
}

/* ---- leases ---- */

int etcd_lease_grant(struct etcd *etcd, uint32_t seconds, int64_t *lease_out, struct embd__error *e)
{
    json_t *body = json_pack("{s:o}", "TTL", text_of(seconds));
    if (post(etcd, "/v3/lease/grant", body, etcd->patience_ms, e) != EMBD_OK)
        return e->status;
    json_t *answer = read_answer(etcd, e);
    *lease_out = number_of(answer, "ID");
    if (answer != NULL && *lease_out <= 0)
        embd__error_set(e, EMBD_PROTOCOL, "etcd: the answer has no lease id");
    json_decref(answer);
    return e->status;
}

int etcd_lease_keep(struct etcd *etcd, int64_t lease, bool *lives_out, struct embd__error *e)
{
    json_t *body = json_pack("{s:o}", "ID", text_of((uint64_t)lease));
    *lives_out = false;
    if (post(etcd, "/v3/lease/keepalive", body, etcd->patience_ms, e) != EMBD_OK)
        return e->status;
    json_t *answer = read_answer(etcd, e);
    *lives_out = number_of(json_object_get(answer, "result"), "TTL") > 0;
    json_decref(answer);
    return e->status;
}

int etcd_lease_revoke(struct etcd *etcd, int64_t lease, struct embd__error *e)
{
    json_t *body = json_pack("{s:o}", "ID", text_of((uint64_t)lease));
    return post(etcd, "/v3/lease/revoke", body, etcd->patience_ms, e);
}

/* ---- watching ---- */

int etcd_watch(struct etcd *etcd, const char *key, uint64_t revision, uint32_t timeout_ms,
               bool *changed_out, struct embd__error *e)
{
    json_t *body = json_pack("{s:{s:o,s:o}}", "create_request", "key", packed_key(etcd, key),
                             "start_revision", text_of(revision + 1));
    etcd->is_watch = true;
    int status = post(etcd, "/v3/watch", body, timeout_ms, e);
    *changed_out = status == EMBD_OK && etcd->has_changed;
    etcd->is_watch = false;
    return status;
}
