#include <embd/embd.h>
#include <stdio.h>

int main(int argc, char **argv)
{
    embd_client *client;
    embd_table *items;
    if (embd_connect(argc > 1 ? argv[1] : "127.0.0.1:7700", NULL, &client)) {
        fprintf(stderr, "%s\n", embd_error_text());
        return 1;
    }
    embd_schema schema;
    embd_schema_init(&schema); /* f32 rows, summed; first values uniform in [-0.05, 0.05) */
    snprintf(schema.name, sizeof schema.name, "items");
    schema.dim = 4;
    embd_optimizer_init(&schema.optimizer, EMBD_OPTIMIZER_ADAGRAD, 0.1f);

    uint64_t offsets[] = {0, 2, 3}; /* two bags of keys: {7, 9} and {7} */
    uint64_t keys[] = {7, 9, 7};    /* any 64-bit values */
    float rows[2][4], gradient[2][4] = {{1, 1, 1, 1}, {0.5f, 0, -0.5f, 1}};
    int status = embd_table_create(client, &schema);
    if (!status)
        status = embd_table_open(client, "items", &items);
    if (!status) {
        embd_part part =
            EMBD_PART(.table = items, .n_rows = 2, .offsets = offsets, .n_keys = 3, .keys = keys);
        part.values = &gradient[0][0];
        status = embd_push(client, &part, 1, NULL); /* one step for key 7 and one for key 9 */
        part.values = &rows[0][0];
        if (!status)
            status = embd_pull(client, &part, 1, NULL); /* the sum of each bag's rows */
    }
    if (status)
        fprintf(stderr, "%s\n", embd_error_text());
    for (int i = 0; !status && i < 2; i++)
        printf("%f %f %f %f\n", rows[i][0], rows[i][1], rows[i][2], rows[i][3]);
    embd_close(client);
    return status != 0;
}
