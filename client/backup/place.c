/* place.c - names and pieces of files of a place. */
#include "client/backup/place.h"

#include <string.h>

uint32_t place_pieces(uint64_t file_bytes)
{
    uint64_t n = file_bytes / PLACE_PIECE_BYTES + (file_bytes % PLACE_PIECE_BYTES != 0);
    return n == 0 ? 1 : (uint32_t)n;
}

size_t place_piece_bytes(uint64_t file_bytes, uint32_t piece)
{
    uint64_t left = file_bytes - (uint64_t)piece * PLACE_PIECE_BYTES;
    return left < PLACE_PIECE_BYTES ? (size_t)left : PLACE_PIECE_BYTES;
}

bool place_is_name(const char *name)
{
    static const char all[] = "abcdefghijklmnopqrstuvwxyz0123456789_.-/";
    size_t n = strlen(name);
    bool is = n > 0 && n < PLACE_NAME_BYTES && strspn(name, all) == n && name[n - 1] != '/';
    for (const char *part = name; is && part != NULL; part = strchr(part, '/')) {
        part += *part == '/' && part != name;
        is = *part != '/' && *part != '.';
    }
    return is;
}
