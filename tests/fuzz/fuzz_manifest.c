/* fuzz_manifest.c - any bytes as manifest.json; what is believed must be written and read back the
 * same. */
#include <stdlib.h>
#include <string.h>

#include "proto/partfile.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct manifest first, second;
    struct embd__error e = {0};
    if (embd__manifest_read((const char *)data, n, &first, &e) != EMBD_OK)
        return 0;
    char *text = embd__manifest_write(&first);
    if (text == NULL || embd__manifest_read(text, strlen(text), &second, &e) != EMBD_OK)
        abort();
    char *again = embd__manifest_write(&second);
    if (again == NULL || strcmp(text, again) != 0)
        abort();
    free(text);
    free(again);
    embd__manifest_fini(&first);
    embd__manifest_fini(&second);
    return 0;
}
