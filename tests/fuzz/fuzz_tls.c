/* fuzz_tls.c - TLS from strangers: any bytes to a server's session, and a handshake between our two
 * ends of which bytes were changed on the way.
 *
 * The first byte chooses. 0: the rest is what a peer sends. Else: the rest is pairs of how many
 * bytes go unharmed and what the next one is XORed with, either way. Whatever happens, no plaintext
 * comes out that was not put in, and only an untouched handshake ends well. */
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/tls/tls.h"

static struct tls_context *server_context, *client_context;

static const char said[] = "what the client says";

static void must(int ok)
{
    if (!ok)
        abort();
}

/* A certificate for "fuzz", signed by itself. */
static X509 *make_certificate(EVP_PKEY *key)
{
    X509 *cert = X509_new();
    ASN1_INTEGER_set(X509_get_serialNumber(cert), 1);
    X509_gmtime_adj(X509_getm_notBefore(cert), -3600);
    X509_gmtime_adj(X509_getm_notAfter(cert), 365l * 24 * 3600);
    X509_set_version(cert, 2);
    X509_set_pubkey(cert, key);
    X509_NAME *name = X509_get_subject_name(cert);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC, (const uint8_t *)"fuzz", -1, -1, 0);
    X509_set_issuer_name(cert, name);
    X509_EXTENSION *names = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:fuzz");
    must(names != NULL && X509_add_ext(cert, names, -1) && X509_sign(cert, key, EVP_sha256()) > 0);
    X509_EXTENSION_free(names);
    return cert;
}

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc;
    (void)argv;
    char folder[] = "/tmp/embd-fuzz-tls-XXXXXX", cert_path[64], key_path[64];
    struct embd__error e = {0};
    must(mkdtemp(folder) != NULL);
    snprintf(cert_path, sizeof cert_path, "%s/cert.pem", folder);
    snprintf(key_path, sizeof key_path, "%s/key.pem", folder);
    umask(077);
    EVP_PKEY *key = EVP_EC_gen("P-256");
    X509 *cert = make_certificate(key);
    FILE *file = fopen(cert_path, "w");
    must(file != NULL && PEM_write_X509(file, cert) && fclose(file) == 0);
    file = fopen(key_path, "w");
    must(file != NULL && PEM_write_PrivateKey(file, key, NULL, NULL, 0, NULL, NULL) &&
         fclose(file) == 0);
    const struct tls_files server = {.cert = cert_path, .key = key_path};
    const struct tls_files client = {.ca = cert_path};
    must(embd__tls_server(&server, &server_context, &e) == EMBD_OK &&
         embd__tls_client(&client, &client_context, &e) == EMBD_OK);
    unlink(cert_path);
    unlink(key_path);
    rmdir(folder);
    X509_free(cert);
    EVP_PKEY_free(key);
    return 0;
}

/* Reads all plaintext; false: the session has ended. */
static bool read_all(struct tls_session *s, char *out, size_t room, size_t *n_out)
{
    struct embd__error e = {0};
    for (;;) {
        long n = embd__tls_read(s, out + *n_out, room - *n_out, &e);
        if (n <= 0)
            return n == 0;
        *n_out += (size_t)n;
        if (*n_out == room)
            return true;
    }
}

static void feed_stranger(const uint8_t *data, size_t n)
{
    struct embd__error e = {0};
    struct tls_session *s;
    char plain[4096];
    size_t got = 0, step = n / 3 + 1, out;
    must(embd__tls_open(server_context, NULL, &s, &e) == EMBD_OK);
    for (size_t at = 0; at < n; at += step) {
        embd__tls_feed(s, data + at, n - at < step ? n - at : step);
        if (!read_all(s, plain, sizeof plain, &got) || embd__tls_keep(s, &e) != EMBD_OK)
            break;
    }
    must(got == 0 && !embd__tls_is_up(s));
    uint8_t *rest = embd__tls_detach(s, &step, &out);
    free(rest);
    embd__tls_close(s);
}

/* ---- a handshake under way ---- */

struct harm {
    const uint8_t *pairs;
    size_t n, spared;
    bool was_done;
};

static void hurt(struct harm *harm, uint8_t *bytes, size_t n)
{
    for (size_t i = 0; i < n && harm->n >= 2; i++) {
        if (harm->spared < harm->pairs[0]) {
            harm->spared++;
            continue;
        }
        bytes[i] ^= harm->pairs[1];
        harm->was_done |= harm->pairs[1] != 0;
        harm->spared = 0;
        harm->pairs += 2;
        harm->n -= 2;
    }
}

/* Carries what one end has to say to the other. Returns whether anything was said. */
static bool carry(struct tls_session *from, struct tls_session *to, struct harm *harm, char *heard,
                  size_t room, size_t *n_heard, bool *alive)
{
    size_t first, n;
    uint8_t *bytes = embd__tls_detach(from, &first, &n);
    if (bytes == NULL)
        return false;
    hurt(harm, bytes + first, n);
    embd__tls_feed(to, bytes + first, n);
    *alive = *alive && read_all(to, heard, room, n_heard);
    embd__tls_feed(to, NULL, 0);
    free(bytes);
    return true;
}

static void shake_hands(const uint8_t *data, size_t n)
{
    struct embd__error e = {0};
    struct tls_session *client = NULL, *server = NULL;
    struct harm harm = {data, n, 0, false};
    char heard[256], answered[256];
    size_t n_heard = 0, n_answered = 0;
    bool alive = true, has_spoken = false, goes_on = true;
    must(embd__tls_open(server_context, NULL, &server, &e) == EMBD_OK &&
         embd__tls_open(client_context, "fuzz", &client, &e) == EMBD_OK);
    must(embd__tls_handshake(client, &e) == EMBD_OK);
    while (goes_on && alive) {
        if (embd__tls_is_up(client) && !has_spoken) {
            has_spoken = true;
            alive = embd__tls_write(client, said, sizeof said, &e) == EMBD_OK;
        }
        goes_on = carry(client, server, &harm, heard, sizeof heard, &n_heard, &alive);
        goes_on |= carry(server, client, &harm, answered, sizeof answered, &n_answered, &alive);
    }
    must(n_answered == 0 && n_heard <= sizeof said && memcmp(heard, said, n_heard) == 0);
    must(harm.was_done || n_heard == sizeof said);
    embd__tls_end(client);
    embd__tls_close(client);
    embd__tls_close(server);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n == 0)
        return 0;
    if (data[0] == 0)
        feed_stranger(data + 1, n - 1);
    else
        shake_hands(data + 1, n - 1);
    return 0;
}
