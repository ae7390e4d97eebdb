/* inproc.c - see inproc.h. The library stays loaded: threads of its servers may run in it. */
#include "client/io/inproc.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static const char prefix[] = "inproc:";

static struct {
    pthread_mutex_t mutex;
    const struct embd__inproc_library *library; /* NULL: not loaded */
} loaded = {.mutex = PTHREAD_MUTEX_INITIALIZER};

bool embd__inproc_is(const char *servers)
{
    return strncmp(servers, prefix, sizeof prefix - 1) == 0;
}

/* ---- loading ---- */

/* Beside the library, or program, that this code is in; else where the system looks. */
static void *open_library(void)
{
    char path[4096];
    Dl_info own;
    const char *slash = dladdr(prefix, &own) != 0 ? strrchr(own.dli_fname, '/') : NULL;
    int flags = RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE;
    void *library = NULL;
    if (slash != NULL &&
        (size_t)snprintf(path, sizeof path, "%.*s/%s", (int)(slash - own.dli_fname), own.dli_fname,
                         EMBD_INPROC_LIBRARY) < sizeof path)
        library = dlopen(path, flags);
    return library != NULL ? library : dlopen(EMBD_INPROC_LIBRARY, flags);
}

static int load(struct embd__error *e)
{
    void *library = open_library();
    const struct embd__inproc_library *found =
        library != NULL ? dlsym(library, "embd__inproc_library") : NULL;
    if (found == NULL)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "inproc: cannot load %s: %.300s; install the package "
                               "libembd-inproc, or connect to a server's address",
                               EMBD_INPROC_LIBRARY, dlerror());
    if (strcmp(found->version, EMBD_VERSION) != 0)
        return embd__error_set(e, EMBD_UNSUPPORTED,
                               "inproc: %s is of release %.40s, and libembd of %s; install the "
                               "same release of both",
                               EMBD_INPROC_LIBRARY, found->version, EMBD_VERSION);
    loaded.library = found;
    return EMBD_OK;
}

/* ---- servers ---- */

int embd__inproc_open(const char *servers, const struct dialer **out, struct embd__error *e)
{
    pthread_mutex_lock(&loaded.mutex);
    int status = loaded.library != NULL ? EMBD_OK : load(e);
    const struct embd__inproc_library *library = loaded.library;
    pthread_mutex_unlock(&loaded.mutex);
    return status != EMBD_OK ? status : library->open(servers + sizeof prefix - 1, out, e);
}

void embd__inproc_close(const struct dialer *dialer)
{
    if (dialer != NULL)
        loaded.library->close(dialer);
}
