#include "server/store/secret.h"

#include <pthread.h>
#include <sys/random.h>

#include "proto/errors.h"

struct store_secret store_secret;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static bool is_drawn;

static void draw(void)
{
    is_drawn = getrandom(&store_secret, sizeof store_secret, 0) == sizeof store_secret;
}

int store_secret_draw(struct embd__error *e)
{
    pthread_once(&once, draw);
    return is_drawn ? EMBD_OK : embd__error_set(e, EMBD_IO, "the system gives no random numbers");
}
