/* method.c - the methods by number: what METHOD_LIST says, as functions. */
#include <string.h>

#include "proto/message.h"

const char *embd__method_name(enum method method)
{
    static const char *const names[] = {
#define METHOD_NAME(id, name, listener) name,
        METHOD_LIST(METHOD_NAME)
#undef METHOD_NAME
    };
    return (unsigned)method < METHOD_COUNT ? names[method] : NULL;
}

int embd__method_find(const char *name, size_t bytes)
{
    static const uint8_t lengths[] = {
#define METHOD_LENGTH(id, name, listener) sizeof(name) - 1,
        METHOD_LIST(METHOD_LENGTH)
#undef METHOD_LENGTH
    };
    for (int i = 0; i < METHOD_COUNT; i++)
        if (lengths[i] == bytes && memcmp(embd__method_name((enum method)i), name, bytes) == 0)
            return i;
    return -1;
}

enum listener embd__method_listener(enum method method)
{
    static const enum listener listeners[] = {
#define METHOD_LISTENER(id, name, listener) listener,
        METHOD_LIST(METHOD_LISTENER)
#undef METHOD_LISTENER
    };
    return listeners[method];
}
