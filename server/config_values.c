/* config_values.c - a value comes from the flag, else from the server's own entry in the file, else
 * from the top of the file, else from the default that its reader is given. */
#include "server/config_values.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/net/http/host.h"

int config_complain(struct embd__error *e, int status, enum setting_id id, const struct setting *at,
                    const char *format, ...)
{
    char text[LIMIT_ERROR_TEXT], flag[32];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    snprintf(flag, sizeof flag, "--%s", setting_kinds[id].key);
    for (char *c = flag; *c != '\0'; c++)
        *c = *c == '_' ? '-' : *c;
    if (at->file != NULL && at->line == 0)
        return embd__error_set(e, status, "%s: %s: %s", at->file, setting_kinds[id].key, text);
    if (at->file != NULL)
        return embd__error_set(e, status, "%s:%u:%u: %s: %s", at->file, at->line, at->column,
                               setting_kinds[id].key, text);
    return embd__error_set(e, status, "%s: %s", flag, text);
}

const struct setting *config_pick(const struct sources *from, const struct settings *server,
                                  bool with_flags, enum setting_id id)
{
    if (with_flags && from->flags.of[id].text != NULL)
        return &from->flags.of[id];
    if (server != NULL && server->of[id].text != NULL)
        return &server->of[id];
    return &from->file.top.of[id];
}

int config_count(enum setting_id id, const struct setting *at, uint64_t min, uint64_t max,
                 uint64_t absent, uint64_t *out, struct embd__error *e)
{
    *out = absent;
    if (at->text == NULL)
        return EMBD_OK;
    char *end;
    errno = 0;
    bool is_number = at->text[0] >= '0' && at->text[0] <= '9';
    *out = strtoull(at->text, &end, 10);
    if (!is_number || *end != '\0' || errno != 0)
        return config_complain(e, EMBD_INVALID, id, at, "'%.60s' is not a whole number", at->text);
    if (*out < min || *out > max)
        return config_complain(e, EMBD_INVALID, id, at, "%s is out of range, expected %llu to %llu",
                               at->text, (unsigned long long)min, (unsigned long long)max);
    return EMBD_OK;
}

int config_yes(enum setting_id id, const struct setting *at, bool *out, struct embd__error *e)
{
    *out = at->text != NULL && strcmp(at->text, "yes") == 0;
    if (at->text == NULL || *out || strcmp(at->text, "no") == 0)
        return EMBD_OK;
    return config_complain(e, EMBD_INVALID, id, at, "'%.60s' is not yes or no", at->text);
}

uint64_t config_memory_bytes(void)
{
    return host_memory_limit();
}

int config_size(enum setting_id id, const struct setting *at, uint64_t min, uint64_t max,
                uint64_t absent, uint64_t *out, struct embd__error *e)
{
    *out = absent;
    if (at->text == NULL)
        return EMBD_OK;
    char *end;
    errno = 0;
    uint64_t number = strtoull(at->text, &end, 10), unit = 1;
    bool is_part = strcmp(end, "%") == 0;
    bool is_size = at->text[0] >= '0' && at->text[0] <= '9' && errno == 0;
    if (strcmp(end, "K") == 0)
        unit = 1u << 10;
    else if (strcmp(end, "M") == 0)
        unit = 1u << 20;
    else if (strcmp(end, "G") == 0)
        unit = 1u << 30;
    else if (is_part)
        unit = config_memory_bytes() / 100;
    else if (*end != '\0')
        is_size = false;
    if (!is_size || (is_part && number > 100))
        return config_complain(e, EMBD_INVALID, id, at,
                               "'%.60s' is not a size, expected bytes, 512M, 2G or 25%%", at->text);
    if (__builtin_mul_overflow(number, unit, out) || *out < min || *out > max)
        return config_complain(e, EMBD_INVALID, id, at,
                               "'%.60s' is out of range, expected %llu to %llu bytes", at->text,
                               (unsigned long long)min, (unsigned long long)max);
    return EMBD_OK;
}

int config_text(enum setting_id id, const struct setting *at, const char *absent, char *out,
                size_t out_bytes, struct embd__error *e)
{
    const char *text = at->text != NULL ? at->text : absent;
    if (at->text != NULL && *text == '\0')
        return config_complain(e, EMBD_INVALID, id, at, "is empty");
    if (strlen(text) >= out_bytes)
        return config_complain(e, EMBD_INVALID, id, at, "has %zu bytes, the limit is %zu",
                               strlen(text), out_bytes - 1);
    snprintf(out, out_bytes, "%s", text);
    return EMBD_OK;
}
