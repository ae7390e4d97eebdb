/* device.h - memory of a GPU that a trainer lends to a server on its host: keys, rows and gradients
 * stay on GPUs, and no copy goes through the host.
 *
 * A memory is lent once, by its CUDA IPC handle. Pulls and pushes then name places in it. libembd
 * itself does not need CUDA: the caller brings the handle's bytes.
 *
 * All shards are on this host and have the store `cuda`, each a GPU or several of them one, and the
 * client is connected by their data sockets, or the server is in its process. Where that is not so,
 * EMBD_UNSUPPORTED or EMBD_UNKNOWN_METHOD says it, and embd_pull and embd_push go through the host.
 * Tables with slots are not taken.
 *
 * Of several shards each reads all keys in the memory, and takes those that are its own: together
 * they write each row once. Where keys move between shards, or the cluster gets more or fewer,
 * blocking calls follow; the memory is lent to new shards by the next call.
 *
 * Order: libembd knows no streams. What writes keys and gradients has ended before a call, and what
 * reads rows begins after it: synchronize the stream before the call. Calls block until the
 * server's kernels have ended. embd_device_pull_start and embd_device_push_start take their turn in
 * a stream instead, and the host does not wait.
 *
 * Lent memory stays allocated until embd_device_close has returned: CUDA does not define what
 * happens to memory that is freed while another process has it open. */
#ifndef EMBD_DEVICE_H
#define EMBD_DEVICE_H

#include "embd/embd.h"

#ifdef __cplusplus
extern "C" {
#endif

#define EMBD_DEVICE_HANDLE_BYTES 64 /* of cudaIpcMemHandle_t and CUipcMemHandle */
#define EMBD_DEVICE_UUID_BYTES   16 /* of CUuuid */
#define EMBD_DEVICE_ALIGNMENT    16 /* of places of keys, rows and gradients */

/* Memory that is lent to the servers. Owner: the client's thread. */
typedef struct embd_device embd_device;

/* Lends the first `bytes` of an allocation.
 *   handle   [EMBD_DEVICE_HANDLE_BYTES] of cudaIpcGetMemHandle or cuIpcGetMemHandle, of the begin
 *            of an allocation that cudaMalloc or cuMemAlloc gave; copied
 *   uuid     [EMBD_DEVICE_UUID_BYTES] of its GPU: cudaDeviceProp.uuid or cuDeviceGetUuid; copied
 *   device   set to the memory, until embd_device_close; NULL after a failure
 * Blocks. A connection has at most 16. A failure of one of several shards names that shard, and the
 * memory is then lent to none.
 *
 * EMBD_UNSUPPORTED     a server is on another host, it has no GPU, its GPU cannot reach the memory,
 *                      or the cluster has several shards and it is of a version that took one
 * EMBD_UNKNOWN_METHOD  a server is of an earlier version
 * EMBD_INVALID         the allocation has fewer bytes, or `bytes` is 0 or above 2^44
 * EMBD_FULL            the connection has lent 16 memories
 * EMBD_NO_MEMORY, and those of embd_ping */
EMBD_API int embd_device_open(embd_client *client, const void *handle, const void *uuid,
                              uint64_t bytes, embd_device **device_out);

/* Lends memory of this process to a server in this process ("inproc:"): `bytes` from `memory` on, of
 * cudaMalloc, cuMemAlloc or an allocator over these, such as PyTorch's. Calls on it block: those in
 * the order of a stream, and nodes of graphs, are refused.
 *
 * EMBD_UNSUPPORTED  the server is another process, and those of embd_device_open
 * EMBD_INVALID      the allocation ends before, and those of embd_device_open */
EMBD_API int embd_device_open_here(embd_client *client, void *memory, uint64_t bytes,
                                   embd_device **device_out);

/* Ends it: the servers give the memory back, where they can be reached. Blocks. Before embd_close,
 * which ends all that are left. NULL is allowed. */
EMBD_API void embd_device_close(embd_device *device);

/* Returns whether a server and the trainer work on one GPU that serves one process at a time: a
 * pull then takes milliseconds while the trainer's kernels run. MPS (nvidia-cuda-mps-control) or a
 * GPU of its own for the server ends that. */
EMBD_API bool embd_device_takes_turns(const embd_device *device);

/* A pull or push of single keys of one table. Places are in bytes from the begin of the lent
 * memory, multiples of EMBD_DEVICE_ALIGNMENT. */
typedef struct embd_device_part {
    uint32_t struct_bytes; /* sizeof(embd_device_part) */
    embd_dtype dtype;      /* of rows and gradients: F32, F16 or BF16 */
    embd_table *table;
    uint64_t n_keys;
    embd_device *keys_in; /* [n_keys] of 64 bits */
    uint64_t keys_at;
    embd_device *rows_in; /* [n_keys][dim] of dtype: a pull's rows, a push's gradients */
    uint64_t rows_at;
    float lr;             /* of a push: the learning rate of this step; 0: the table's */
    uint8_t zero_missing; /* of a pull: zeros for keys without a row, else their first values */
    uint8_t padding[3];
    uint32_t n_gates; /* of calls in the order of a stream: gates that there are; 0: 1 */
    uint8_t padding_end[4];
} embd_device_part;

/* An initializer: embd_device_part part = EMBD_DEVICE_PART(.table = items). */
#define EMBD_DEVICE_PART(...)                                                                      \
    {                                                                                              \
        .struct_bytes = sizeof(embd_device_part), __VA_ARGS__                                      \
    }

/* Writes the rows of keys into lent memory. Rows are those of embd_pull, bit for bit. A key may
 * occur more than once. When it fails, rows may or may not have been written. Blocks.
 *
 * EMBD_INVALID       a place is not a multiple of 16, or beyond the lent bytes; no table
 * EMBD_UNSUPPORTED   the table has slots; the dtype is another
 * EMBD_TOO_LARGE     more than 4194304 keys
 * and those of embd_pull. */
EMBD_API int embd_device_pull(embd_client *client, const embd_device_part *part);

/* Makes one optimizer step with gradients in lent memory: what embd_push does with the same keys
 * and gradients, bit for bit. It has no number: one whose answer is lost is not repeated. One that
 * a server refuses since it ends waits for the server in its place, until the deadline. To a table
 * with durability `buffered` or `durable` the server copies it into the host's memory, for its
 * journal. Blocks until it is applied.
 *
 * EMBD_NOT_FINITE    a gradient is not finite, and the table admits finite ones: nothing changed
 * EMBD_TOO_LARGE     more than 4194304 keys, or gradients beyond the server's push_limit
 * EMBD_CLOSED, EMBD_DEADLINE: it may or may not have been applied. After EMBD_DEADLINE the server
 *   may still read keys and gradients: what changes there meanwhile may be part of the step
 * and those of embd_device_pull and embd_push. Of several shards some may have applied it: the
 * sentence says which, and the status is that of the first one that has not. EMBD_MOVED: some have,
 * or may have, applied it, and it stays so: keys have moved between shards meanwhile, or a shard
 * takes such memory no more. EMBD_UNSUPPORTED and EMBD_UNKNOWN_METHOD: none has. */
EMBD_API int embd_device_push(embd_client *client, const embd_device_part *part);

/* ---- in the order of a stream ---- */

/* A gate: memory of embd_buffer_new at a multiple of 64, which embd_buffer_is_shared says the
 * server shares, and which the caller registers with CUDA (cuMemHostRegister). Two of its words are
 * the caller's business:
 *
 *   EMBD_DEVICE_GATE_READY  uint32_t; the caller's stream writes a call's number here behind what
 *                           writes keys and gradients: cuStreamWriteValue32
 *   EMBD_DEVICE_GATE_DONE   uint32_t; becomes that number, or a later one, when rows are written,
 *                           or the push is applied, or the call has failed, and so have ended all
 *                           calls of the gate that were started before: the stream waits for it by
 *                           cuStreamWaitValue32 with CU_STREAM_WAIT_VALUE_GEQ
 *
 * Numbers of a gate rise from call to call, from 1 to EMBD_DEVICE_GATE_MOST; then take another
 * gate. Streams that share a gate are in one order. It stays until all its calls have ended. A call
 * that ends with EMBD_DEADLINE before its stream has come to the gate does nothing later.
 *
 * With several shards there is a gate for each, one behind the other in one buffer
 * (embd_device_part.n_gates). A call has the same number in all of them. Its stream writes that in
 * each gate of a shard that the call went to (embd_device_call_shards), and waits for each. */
#define EMBD_DEVICE_GATE_BYTES 128
#define EMBD_DEVICE_GATE_READY 0
#define EMBD_DEVICE_GATE_DONE  64
#define EMBD_DEVICE_GATE_MOST  2147483647

typedef struct embd_device_gate {
    void *words;     /* [n_gates of the part][EMBD_DEVICE_GATE_BYTES] */
    uint32_t number; /* of this call */
    uint32_t needs;  /* this one fails if that pull of the gate did: a push whose gradients are of
                        its rows; 0: none */
} embd_device_gate;

/* A call on its way. Owner: the client's thread. */
typedef struct embd_device_call embd_device_call;

/* embd_device_pull and embd_device_push in the order of a stream: they return when the request is
 * on its way, and nobody on the host waits. The server works when the stream has come to the gate;
 * requests of this client behind it wait for it, at most 60 s. No call fails without its word being
 * raised, also when the server dies: then rows were not written, and embd_device_wait says so.
 *   gate      copied
 *   call_out  set to the call, which embd_device_wait ends; NULL after a failure: then no word is
 *             raised, and the stream must not wait
 * Blocks only where the connection was lost and memory is lent again, until the deadline.
 *
 * EMBD_INVALID      the gates are not in memory that the server shares, a number is not in order,
 *                   or the cluster has more shards than there are gates: take as many as
 *                   embd_shard_count says, or more
 * EMBD_UNSUPPORTED  the client has no thread of its own (embd_options.own_thread), it shares no
 *                   memory with servers, or no more since a call ended without its answer, a server
 *                   is of an earlier version, or the cluster has several shards and n_gates is 0
 * and those of embd_device_pull that the client finds. */
EMBD_API int embd_device_pull_start(embd_client *client, const embd_device_part *part,
                                    const embd_device_gate *gate, embd_device_call **call_out);
EMBD_API int embd_device_push_start(embd_client *client, const embd_device_part *part,
                                    const embd_device_gate *gate, embd_device_call **call_out);

/* Returns how many shards the call went to: so many gates are its, from the first one on. */
EMBD_API uint32_t embd_device_call_shards(const embd_device_call *call);

/* Whether embd_device_wait would return at once. */
EMBD_API bool embd_device_is_done(embd_device_call *call);

/* Waits until the call has ended, frees it and returns its status: those of embd_device_pull and
 * embd_device_push. A call whose memory was lent on a connection that is lost meanwhile fails with
 * EMBD_INVALID or EMBD_CLOSED; a push may or may not have been applied. EMBD_MOVED: keys have moved
 * between shards, or the cluster has more. Shards that the sentence does not name have not made the
 * call, and the next one goes by the new map. Calls that have not ended end with embd_close. */
EMBD_API int embd_device_wait(embd_device_call *call);

/* ---- in a CUDA graph ---- */

/* A pull or push that a stream makes each time it comes there, also as a node of a graph:
 * cuLaunchHostFunc(stream, embd_device_node_run, node). The stream goes on when the call has ended.
 *
 * Nodes run in a thread of CUDA's. So their client serves nodes alone, and its other functions are
 * called only while no stream can come to a node. Nodes of a client run one at a time. A node stays
 * until no stream and no graph has it.
 * Owner: the client's thread. */
typedef struct embd_device_node embd_device_node;

/* Makes a node of a pull, or of a push.
 *   part      copied; its memories are lent by this client
 *   needs     a push fails, and changes nothing, where the last run of this node failed: the pull
 *             of the rows that its gradients are of. NULL: none
 *   node_out  set to the node, until embd_device_node_free or embd_close; NULL after a failure
 *
 * EMBD_INVALID, EMBD_TOO_LARGE, EMBD_UNSUPPORTED of the part; EMBD_NO_MEMORY. */
EMBD_API int embd_device_pull_node(embd_client *client, const embd_device_part *part,
                                   embd_device_node **node_out);
EMBD_API int embd_device_push_node(embd_client *client, const embd_device_part *part,
                                   embd_device_node *needs, embd_device_node **node_out);

/* Makes the call, of `node`: an embd_device_node. A CUhostFn. Blocks as embd_device_pull and
 * embd_device_push do. A failure is kept for embd_device_node_status. */
EMBD_API void embd_device_node_run(void *node);

/* Returns what the first run that failed since it was asked last failed with, and its text by
 * embd_error_text; EMBD_OK: none did. Any thread. */
EMBD_API int embd_device_node_status(embd_device_node *node);

/* No stream comes there any more. NULL is allowed. */
EMBD_API void embd_device_node_free(embd_device_node *node);

#ifdef __cplusplus
}
#endif
#endif
