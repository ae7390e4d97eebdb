/* device_node.c - embd/device.h: calls in lent memory of a GPU that streams make, also as nodes of
 * CUDA graphs.
 *
 * The happy path: CUDA calls embd_device_node_run in a thread of its own when the stream comes
 * there, and the stream goes on when that returns. Nobody can be told of a failure then: the node
 * keeps the first one, and a push whose rows were not pulled is not made. */
#include <pthread.h>
#include <stdlib.h>

#include "client/core/client.h"
#include "client/core/device_part.h"

struct embd_device_node {
    embd_client *client;
    struct embd_device_node *next; /* of the client's */
    embd_device_node *needs;
    embd_device_part part;
    int (*call)(embd_client *client, const embd_device_part *part);
    bool has_failed;           /* its last run */
    struct embd__error failed; /* of the first run that failed since it was asked */
};

void embd__device_nodes_init(embd_client *client)
{
    pthread_mutex_init(&client->nodes_lock, NULL);
}

void embd__device_nodes_fini(embd_client *client)
{
    while (client->device_nodes != NULL)
        embd_device_node_free(client->device_nodes);
    pthread_mutex_destroy(&client->nodes_lock);
}

static int make(embd_client *client, const embd_device_part *given,
                int (*call)(embd_client *, const embd_device_part *), embd_device_node *needs,
                embd_device_node **node_out)
{
    embd_device_part part = {0};
    *node_out = NULL;
    if (embd__device_take(client, given, &part) != EMBD_OK ||
        embd__device_check_gates(part.keys_in) != EMBD_OK)
        return client->error.status;
    embd_device_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return embd__error_set(&client->error, EMBD_NO_MEMORY, "no memory for a node");
    *node = (embd_device_node){
        .client = client, .next = client->device_nodes, .needs = needs, .part = part, .call = call};
    node->part.struct_bytes = sizeof node->part;
    client->device_nodes = node;
    *node_out = node;
    return EMBD_OK;
}

int embd_device_pull_node(embd_client *client, const embd_device_part *part,
                          embd_device_node **node_out)
{
    return embd__error_keep(&client->error, make(client, part, embd_device_pull, NULL, node_out));
}

int embd_device_push_node(embd_client *client, const embd_device_part *part,
                          embd_device_node *needs, embd_device_node **node_out)
{
    return embd__error_keep(&client->error, make(client, part, embd_device_push, needs, node_out));
}

void embd_device_node_run(void *arg)
{
    embd_device_node *node = arg;
    embd_client *client = node->client;
    pthread_mutex_lock(&client->nodes_lock);
    client->error = (struct embd__error){0};
    if (node->needs != NULL && node->needs->has_failed)
        embd__error_set(&client->error, EMBD_CLOSED,
                        "not pushed: the rows of these gradients were not pulled");
    else
        node->call(client, &node->part);
    node->has_failed = client->error.status != EMBD_OK;
    if (node->has_failed && node->failed.status == EMBD_OK)
        node->failed = client->error;
    pthread_mutex_unlock(&client->nodes_lock);
}

int embd_device_node_status(embd_device_node *node)
{
    pthread_mutex_lock(&node->client->nodes_lock);
    struct embd__error failed = node->failed;
    node->failed = (struct embd__error){0};
    pthread_mutex_unlock(&node->client->nodes_lock);
    return embd__error_keep(&failed, failed.status);
}

void embd_device_node_free(embd_device_node *node)
{
    if (node == NULL)
        return;
    embd_device_node **at = &node->client->device_nodes;
    while (*at != node)
        at = &(*at)->next;
    *at = node->next;
    free(node);
}
