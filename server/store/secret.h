/* secret.h - random numbers of this process that the hash tables of keys go by, so that nobody can
 * choose keys that fall together. What a table holds does not depend on them; the order of a scan
 * does. */
#ifndef EMBD_STORE_SECRET_H
#define EMBD_STORE_SECRET_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct embd__error;

/* One is xored in before each of the two multiplications of a hash. */
struct store_secret {
    uint64_t first, second;
};

/* Zero until the first store_secret_draw. */
extern struct store_secret store_secret;

/* Draws it, once; any thread. EMBD_IO: the system gives no random numbers. */
int store_secret_draw(struct embd__error *e);

#ifdef __cplusplus
}
#endif

#endif
