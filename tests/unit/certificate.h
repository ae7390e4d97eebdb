/* certificate.h - a pair of files for both ends of a test. */
#ifndef EMBD_TESTS_CERTIFICATE_H
#define EMBD_TESTS_CERTIFICATE_H

/* One for "localhost" that has signed itself, and its key, valid for an hour. */
void certificate_write(const char *cert, const char *key);

#endif
