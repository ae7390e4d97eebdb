/* fuzz_etcd.c - any bytes as what etcd answers, and as the map of the cluster that lies there:
 * believed whole, within bounds, or refused with a sentence. libcurl is not asked: the bytes come
 * from where it would call back.
 *
 * The first byte says what is asked, 0: the rest is a map; the second, of an answer, is its HTTP
 * status and how its pieces are cut. */
#include <curl/curl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "server/member/etcd.h"
#include "server/member/map.h"

#define SHARDS 3u

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* ---- in libcurl's place ---- */

static const uint8_t *answer;
static size_t answer_bytes;
static uint8_t manner;
static size_t (*take)(char *data, size_t size, size_t n, void *arg);
static void *take_arg;

CURLcode __wrap_curl_easy_setopt(CURL *curl, CURLoption option, ...);
CURLMcode __wrap_curl_multi_add_handle(CURLM *transfers, CURL *curl);
CURLMcode __wrap_curl_multi_remove_handle(CURLM *transfers, CURL *curl);
CURLMcode __wrap_curl_multi_perform(CURLM *transfers, int *n_running_out);
CURLMsg *__wrap_curl_multi_info_read(CURLM *transfers, int *n_left_out);
CURLcode __wrap_curl_easy_getinfo(CURL *curl, CURLINFO info, long *code_out);

CURLcode __wrap_curl_easy_setopt(CURL *curl, CURLoption option, ...)
{
    va_list args;
    (void)curl;
    va_start(args, option);
    if (option == CURLOPT_WRITEFUNCTION)
        take = va_arg(args, size_t(*)(char *, size_t, size_t, void *));
    if (option == CURLOPT_WRITEDATA)
        take_arg = va_arg(args, void *);
    va_end(args);
    return CURLE_OK;
}

static CURLcode hand_over(void)
{
    size_t piece = manner & 0x40 ? 7 : answer_bytes;
    for (size_t at = 0; at < answer_bytes; at += piece) {
        size_t n = answer_bytes - at < piece ? answer_bytes - at : piece;
        char *copy = malloc(n); /* so that a step beyond is seen */
        memcpy(copy, answer + at, n);
        size_t taken = take(copy, 1, n, take_arg);
        free(copy);
        if (taken != n)
            return CURLE_WRITE_ERROR;
    }
    return manner & 0x20 ? CURLE_OPERATION_TIMEDOUT : CURLE_OK;
}

static CURLMsg ended = {.msg = CURLMSG_DONE};

CURLMcode __wrap_curl_multi_add_handle(CURLM *transfers, CURL *curl)
{
    (void)transfers;
    (void)curl;
    return CURLM_OK;
}

CURLMcode __wrap_curl_multi_remove_handle(CURLM *transfers, CURL *curl)
{
    (void)transfers;
    (void)curl;
    return CURLM_OK;
}

CURLMcode __wrap_curl_multi_perform(CURLM *transfers, int *n_running_out)
{
    (void)transfers;
    ended.data.result = hand_over();
    *n_running_out = 0;
    return CURLM_OK;
}

CURLMsg *__wrap_curl_multi_info_read(CURLM *transfers, int *n_left_out)
{
    (void)transfers;
    *n_left_out = 0;
    return &ended;
}

CURLcode __wrap_curl_easy_getinfo(CURL *curl, CURLINFO info, long *code_out)
{
    (void)curl;
    (void)info;
    *code_out = manner & 0x80 ? 401 : 200;
    return CURLE_OK;
}

/* ---- answers ---- */

static void ask(struct etcd *etcd, uint8_t question)
{
    struct embd__error e = {.status = EMBD_OK};
    struct etcd_value value = {0};
    bool is_so;
    int64_t lease = 0;
    int status = EMBD_OK;
    if (question % 5 == 0)
        status = etcd_get(etcd, "map", &value, &e);
    else if (question % 5 == 1)
        status = etcd_swap(etcd, "map", 7, "{}", 3, &is_so, &e);
    else if (question % 5 == 2)
        status = etcd_lease_grant(etcd, 10, &lease, &e);
    else if (question % 5 == 3)
        status = etcd_lease_keep(etcd, 5, &is_so, &e);
    else
        status = etcd_watch(etcd, "map", 9, 100, &is_so, &e);
    must(status == e.status && (status == EMBD_OK) == (e.text[0] == '\0'));
    must(status == EMBD_OK || value.text == NULL);
    must(value.text == NULL || strlen(value.text) <= ETCD_VALUE_BYTES);
    must(status != EMBD_OK || question % 5 != 2 || lease > 0);
    free(value.text);
}

static void read_answer(const uint8_t *data, size_t n)
{
    static const atomic_bool never;
    static struct etcd *etcd; /* one for all answers, as in the server */
    struct etcd_place place;
    struct embd__error e = {.status = EMBD_OK};
    if (etcd == NULL) {
        must(etcd_place_read("etcd://a:1,b:2/shop", &place, &e) == EMBD_OK);
        must(etcd_open(&place, &never, &etcd, &e) == EMBD_OK);
    }
    manner = data[1];
    answer = data + 2;
    answer_bytes = n - 2;
    ask(etcd, (uint8_t)(data[0] - 1));
}

/* ---- maps ---- */

static const struct member_server servers[] = {{"a", 0, 2}, {"b", 2, 1}};

static char **list_of(const char *text)
{
    char **list = calloc(SHARDS, sizeof *list);
    for (uint32_t i = 0; i < SHARDS; i++)
        list[i] = strdup(text);
    return list;
}

static void check_texts(char *const *list)
{
    for (uint32_t i = 0; i < SHARDS; i++) {
        must(strlen(list[i]) <= 300);
        for (const char *c = list[i]; *c != '\0'; c++)
            must(*c >= 0x20 && *c <= 0x7e);
    }
}

/* What is written on top of it is a map again, a newer one, that says the same. */
static void write_on(const char *text, const struct member_map *map, uint64_t version)
{
    struct embd__error e = {.status = EMBD_OK};
    struct member_map again;
    const struct member_standing standing = {MEMBERSHIP_HELD, 3, SHARDS, 4};
    char *newer = map_write(text, &servers[0], map, version, &standing, &e);
    if (newer == NULL)
        return;
    must(map_copy(map, &again, &e) == EMBD_OK);
    must(map_read(newer, servers, 2, &again, &e) == EMBD_OK && again.version > version);
    for (uint32_t i = 0; i < 2; i++)
        must(strcmp(again.addresses[i], map->addresses[i]) == 0);
    map_fini(&again);
    free(newer);
}

static void read_map(const uint8_t *data, size_t n)
{
    struct embd__error e = {.status = EMBD_OK};
    struct member_map map = {.n_shards = SHARDS,
                             .addresses = list_of("10.0.0.1:7700"),
                             .admin_addresses = list_of(""),
                             .admin_hosts = list_of("")};
    char *text = malloc(n + 1);
    memcpy(text, data, n);
    text[n] = '\0';
    int status = map_read(text, servers, 2, &map, &e);
    must((status == EMBD_OK) == (e.text[0] == '\0'));
    must(status != EMBD_OK || map.version > 0);
    check_texts(map.addresses);
    check_texts(map.admin_addresses);
    check_texts(map.admin_hosts);
    if (status == EMBD_OK) {
        free(map.addresses[1]);
        map.addresses[1] = strdup("10.0.0.2:7701");
        write_on(text, &map, map.version);
    }
    map_fini(&map);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n >= 2 && data[0] != 0)
        read_answer(data, n);
    else if (n >= 1)
        read_map(data + 1, n - 1);
    return 0;
}
