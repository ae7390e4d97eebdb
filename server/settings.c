/* settings.c - the list as a table. */
#include "server/settings.h"

#include <stdlib.h>
#include <string.h>

const struct setting_kind setting_kinds[SETTING_COUNT] = {
#define SETTING_KIND(id, key, where, value, help) {key, where, value, help},
    SETTING_LIST(SETTING_KIND)
#undef SETTING_KIND
};

int setting_find(const char *key, unsigned where)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        if ((setting_kinds[i].where & where) != 0 && strcmp(setting_kinds[i].key, key) == 0)
            return i;
    return -1;
}

void settings_fini(struct settings *settings)
{
    for (int i = 0; i < SETTING_COUNT; i++)
        free(settings->of[i].text);
    memset(settings, 0, sizeof *settings);
}
