/* error_text.c - the sentence of a thread's last failed call. libembd-data and libembd-hugectr use
 * that of libembd, so this file has nothing else that they link from here. */
#include <string.h>

#include "proto/errors.h"

static _Thread_local char sentence[LIMIT_ERROR_TEXT];

const char *embd_error_text(void)
{
    return sentence;
}

int embd__error_keep(const struct embd__error *e, int status)
{
    if (status != EMBD_OK && e->status != EMBD_OK)
        memcpy(sentence, e->text, sizeof sentence);
    return status;
}
