/* text.c - see text.h. */
#include "server/net/http/text.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static bool grow(struct text *text, size_t by)
{
    size_t capacity = text->capacity > 0 ? text->capacity : 4096;
    while (capacity < text->n + by + 1)
        capacity *= 2;
    if (capacity == text->capacity)
        return true;
    char *p = realloc(text->p, capacity);
    text->has_failed = p == NULL;
    if (p == NULL)
        return false;
    text->p = p;
    text->capacity = capacity;
    return true;
}

void text_print(struct text *text, const char *format, ...)
{
    va_list arguments;
    if (text->has_failed)
        return;
    va_start(arguments, format);
    int n = vsnprintf(text->p != NULL ? text->p + text->n : NULL, text->capacity - text->n, format,
                      arguments);
    va_end(arguments);
    if (text->n + (size_t)n >= text->capacity) {
        if (!grow(text, (size_t)n))
            return;
        va_start(arguments, format);
        vsnprintf(text->p + text->n, text->capacity - text->n, format, arguments);
        va_end(arguments);
    }
    text->n += (size_t)n;
}

void text_json(struct text *text, const char *value)
{
    text_print(text, "\"");
    for (; *value != '\0'; value++)
        if (*value < ' ' || *value > '~' || *value == '"' || *value == '\\')
            text_print(text, "\\u%04x", (unsigned char)*value);
        else
            text_print(text, "%c", *value);
    text_print(text, "\"");
}

void text_fini(struct text *text)
{
    free(text->p);
    *text = (struct text){0};
}
