/* certificate.c - see certificate.h. */
#include "tests/unit/certificate.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdio.h>
#include <sys/stat.h>

void certificate_write(const char *cert, const char *key)
{
    EVP_PKEY *pair = EVP_EC_gen("P-256");
    X509 *x = X509_new();
    assert_non_null(pair);
    X509_set_version(x, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(x), 1);
    X509_gmtime_adj(X509_getm_notBefore(x), -10);
    X509_gmtime_adj(X509_getm_notAfter(x), 3600);
    X509_set_pubkey(x, pair);
    X509_NAME_add_entry_by_txt(X509_get_subject_name(x), "CN", MBSTRING_ASC,
                               (const unsigned char *)"localhost", -1, -1, 0);
    X509_set_issuer_name(x, X509_get_subject_name(x));
    X509_EXTENSION *name = X509V3_EXT_conf_nid(NULL, NULL, NID_subject_alt_name, "DNS:localhost");
    X509_add_ext(x, name, -1);
    X509_EXTENSION_free(name);
    assert_true(X509_sign(x, pair, EVP_sha256()) > 0);
    FILE *out = fopen(cert, "w");
    PEM_write_X509(out, x);
    fclose(out);
    out = fopen(key, "w");
    PEM_write_PrivateKey(out, pair, NULL, NULL, 0, NULL, NULL);
    fclose(out);
    chmod(key, 0600);
    X509_free(x);
    EVP_PKEY_free(pair);
}
