/* identity.c - see identity.h. */
#include "identity.h"

#include <stdlib.h>
#include <string.h>

#include "secret.h"

#define TOKEN_MAX 256u /* as a server takes it */

static const char *option_or(const char *option, const char *variable)
{
    const char *value = option != NULL ? option : getenv(variable);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static int take_token(const char *text, size_t n, const char *from, struct identity *out,
                      struct embd__error *e)
{
    while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
        n--;
    for (size_t i = 0; i < n; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return embd__error_set(e, EMBD_INVALID, "%.200s: byte %zu belongs to no token", from,
                                   i);
    if (n == 0 || n > TOKEN_MAX)
        return embd__error_set(e, EMBD_INVALID, "%.200s: a token has 1 to %u bytes, this %zu", from,
                               TOKEN_MAX, n);
    out->token = strndup(text, n);
    return out->token != NULL ? EMBD_OK
                              : embd__error_set(e, EMBD_NO_MEMORY, "no memory for a token");
}

static int read_token(const char *path, struct identity *out, struct embd__error *e)
{
    char text[TOKEN_MAX + 4];
    size_t n;
    int status = embd__secret_read(path, "token", text, sizeof text, &n, e);
    return status == EMBD_OK ? take_token(text, n, path, out, e) : status;
}

static int open_token(const embd_options *options, struct identity *out, struct embd__error *e)
{
    const char *path = options->token_file != NULL || options->token == NULL
                           ? option_or(options->token_file, "EMBD_TOKEN_FILE")
                           : NULL;
    const char *token = option_or(options->token, "EMBD_TOKEN");
    if (path == NULL)
        return token == NULL ? EMBD_OK : take_token(token, strlen(token), "the token", out, e);
    return read_token(path, out, e);
}

int embd__identity_open(const embd_options *options, struct identity *out, struct embd__error *e)
{
    *out = (struct identity){0};
    const struct tls_files files = {.ca = option_or(options->tls_ca, "EMBD_TLS_CA"),
                                    .cert = option_or(options->tls_cert, "EMBD_TLS_CERT"),
                                    .key = option_or(options->tls_key, "EMBD_TLS_KEY")};
    int status = open_token(options, out, e);
    if (status == EMBD_OK && files.ca != NULL)
        status = embd__tls_client(&files, &out->tls, e);
    else if (status == EMBD_OK && (files.cert != NULL || files.key != NULL))
        status = embd__error_set(e, EMBD_INVALID,
                                 "a TLS certificate is given, but not whom to believe (tls_ca)");
    if (status != EMBD_OK)
        embd__identity_fini(out);
    return status;
}

void embd__identity_fini(struct identity *identity)
{
    if (identity->token != NULL)
        explicit_bzero(identity->token, strlen(identity->token));
    free(identity->token);
    embd__tls_drop(identity->tls);
    *identity = (struct identity){0};
}
