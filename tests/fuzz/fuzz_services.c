/* fuzz_services.c - any bytes as a name server's answer: the services that are read from it have a
 * name and a port, and drawing lots among them loses none. */
#include "client/io/resolve.c"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static uint64_t sum_up(const struct service *services, uint32_t n)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n; i++) {
        size_t bytes = strnlen(services[i].host, sizeof services[i].host);
        if (services[i].port == 0 || bytes == 0 || bytes == sizeof services[i].host)
            abort();
        sum += (uint64_t)services[i].port * bytes;
    }
    return sum;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct service services[RESOLVED_MAX];
    static struct resolved found;
    uint32_t count = read_services(data, n < ANSWER_BYTES ? (int)n : ANSWER_BYTES, services);
    if (count > RESOLVED_MAX)
        abort();
    uint64_t before = sum_up(services, count);
    qsort(services, count, sizeof *services, by_priority);
    found.n = 0;
    for (uint32_t i = 0; i < count; i++) {
        draw(&services[i], count - i);
        add(&found, services[i].host, "1");
    }
    if (sum_up(services, count) != before || found.n != count)
        abort();
    return 0;
}
