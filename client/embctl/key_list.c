#include "key_list.h"

#include <stdlib.h>

#include "embctl.h"

void key_list_add(struct key_list *list, struct argp_state *state, const char *text)
{
    uint64_t *grown = reallocarray(list->keys, list->n + 1, sizeof *grown);
    if (!grown)
        argp_failure(state, EXIT_FAILED, 0, "out of memory");
    list->keys = grown;
    if (!read_uint(text, UINT64_MAX, &list->keys[list->n++]))
        argp_error(state, "key is '%s'; it can be 0 to 18446744073709551615, or 0x and hex digits",
                   text);
}
