/* address.c - "127.0.0.1:7700", "shards.example:7700", "[::1]:7700". */
#include "client/link/address.h"

#include <string.h>

static int refuse(struct embd__error *e, const char *text, size_t bytes, const char *why)
{
    return embd__error_set(e, EMBD_INVALID, "address \"%.*s\" %s; host:port is expected",
                           (int)(bytes > 300 ? 300 : bytes), text, why);
}

static bool port_is_valid(const char *port, size_t bytes)
{
    uint32_t value = 0;
    if (bytes == 0 || bytes > 5)
        return false;
    for (size_t i = 0; i < bytes; i++) {
        if (port[i] < '0' || port[i] > '9')
            return false;
        value = value * 10 + (uint32_t)(port[i] - '0');
    }
    return value >= 1 && value <= 65535;
}

int embd__address_read(const char *text, size_t bytes, struct address *out, struct embd__error *e)
{
    const char *colon = memrchr(text, ':', bytes);
    if (colon == NULL)
        return refuse(e, text, bytes, "has no port");
    const char *host = text, *port = colon + 1;
    size_t host_bytes = (size_t)(colon - text), port_bytes = bytes - host_bytes - 1;
    if (!port_is_valid(port, port_bytes))
        return refuse(e, text, bytes, "has a port that is not in 1..65535");
    if (host_bytes >= 2 && host[0] == '[' && host[host_bytes - 1] == ']') {
        host++;
        host_bytes -= 2;
    } else if (memchr(host, ':', host_bytes) != NULL) {
        return refuse(e, text, bytes, "has an IPv6 host without brackets");
    }
    if (host_bytes == 0 || host_bytes > ADDRESS_HOST_MAX)
        return refuse(e, text, bytes, "has a host that is empty or too long");
    memcpy(out->host, host, host_bytes);
    out->host[host_bytes] = '\0';
    memcpy(out->port, port, port_bytes);
    out->port[port_bytes] = '\0';
    return EMBD_OK;
}

const char *embd__address_next(const char *list, const char **item_out, size_t *bytes_out)
{
    const char *comma = strchr(list, ',');
    *item_out = list;
    *bytes_out = comma == NULL ? strlen(list) : (size_t)(comma - list);
    return comma == NULL ? NULL : comma + 1;
}
