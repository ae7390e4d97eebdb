/* method.c - the methods by number: what METHOD_LIST says, as functions. */
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

enum listener embd__method_listener(enum method method)
{
    static const enum listener listeners[] = {
#define METHOD_LISTENER(id, name, listener) listener,
        METHOD_LIST(METHOD_LISTENER)
#undef METHOD_LISTENER
    };
    return listeners[method];
}
