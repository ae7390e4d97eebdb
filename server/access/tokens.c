/* tokens.c - finds grants in a list: by token, by name, by principal. */
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "server/access/access_inside.h"

static const struct grant grant_of_peer = {.name = "peer",
                                           .role = ROLE_READER,
                                           .principal = 1,
                                           .most_tables = GRANT_UNLIMITED,
                                           .most_row_bytes = GRANT_UNLIMITED,
                                           .most_snapshots = GRANT_UNLIMITED,
                                           .most_snapshot_bytes = GRANT_UNLIMITED};

uint32_t access_count(const struct access *access)
{
    return access->n;
}

const struct grant *access_at(const struct access *access, uint32_t i)
{
    return &access->grants[i];
}

void access_peer_token(const struct access *access, char out[ACCESS_PEER_BYTES])
{
    uint8_t bytes[64] = "embd peer 1", hash[32];
    SHA256(bytes, sizeof bytes, hash);
    for (uint32_t i = 0; i < access->n; i++) {
        memcpy(bytes, hash, sizeof hash);
        memcpy(bytes + sizeof hash, access->grants[i].hash, sizeof hash);
        SHA256(bytes, sizeof bytes, hash);
    }
    char *at = stpcpy(out, "embd-peer-");
    for (size_t i = 0; i < sizeof hash; i++)
        at += snprintf(at, 3, "%02x", hash[i]);
}

/* Its hashes are made for tokens that begin so alone: others cost what they did. */
static bool is_peer(const struct access *access, const char *token, size_t n)
{
    char peer[ACCESS_PEER_BYTES];
    if (strncmp(token, "embd-peer-", 10) != 0)
        return false;
    access_peer_token(access, peer);
    return n == strlen(peer) && CRYPTO_memcmp(peer, token, n) == 0;
}

const struct grant *access_find(const struct access *access, const char *token)
{
    uint8_t hash[32];
    size_t n = strlen(token);
    const struct grant *found = is_peer(access, token, n) ? &grant_of_peer : NULL;
    if (n < TOKEN_BYTES_MIN || n > TOKEN_BYTES_MAX)
        return NULL;
    SHA256((const uint8_t *)token, n, hash);
    for (uint32_t i = 0; i < access->n; i++)
        if (CRYPTO_memcmp(access->grants[i].hash, hash, sizeof hash) == 0)
            found = &access->grants[i];
    return found;
}

const struct grant *access_named(const struct access *access, const char *name)
{
    for (uint32_t i = 0; i < access->n; i++)
        if (strcmp(access->grants[i].name, name) == 0)
            return &access->grants[i];
    return NULL;
}

bool access_has_principal(const struct access *access, uint64_t principal)
{
    uint32_t i = 0;
    while (i < access->n && access->grants[i].principal != principal)
        i++;
    return i < access->n;
}

const struct grant *access_find_again(const struct access *access, const struct grant *grant)
{
    for (uint32_t i = 0; i < access->n; i++)
        if (memcmp(&access->grants[i], grant, offsetof(struct grant, most_tables)) == 0)
            return &access->grants[i];
    return NULL;
}
