"""Mutants of what embd takes from its references: each row of tests/REFERENCE.md has one here, and a test that carries the
row's id fails for it."""
import pathlib
import sys
from dataclasses import dataclass, field

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "reference"))
from check_reference import ROWS, ids_of  # noqa: E402


@dataclass(frozen=True)
class Mutant:
    says: str    # what the program does wrong then
    path: str
    old: str     # occurs once in the file
    new: str
    test: str    # a part of the sentence of the ctest case that fails
    targets: tuple
    row: str = field(default="")  # of the reference: a failing test carries it


def of(test, *targets):
    """Mutants that one test catches."""
    return lambda row, says, path, old, new: Mutant(f"{row}: {says}", path, old, new, test, targets, row)


PLACEMENT = of("placement: index arithmetic", "reference_test_placement")
TABLE = of("the table: rows, first values", "reference_test_table")
EXCHANGE = of("the exchange: forward and backward", "reference_test_exchange", "embd-server")
GROUP = of("keys, rows and gradients go where the references", "test_nccl_group")
PARTIAL = of("partial sums of 3 devices", "test_nccl_partial")
CUDA = of("S4.3: the cuda store's kernels give the model's bits", "test_cuda_cases")
STORE_MEMORY = of("a host store that runs out of memory", "test_store_memory")
SCAN = of("a scan of a shard, loaded elsewhere", "test-shard-scan")
COPY = of("a snapshot of a shard, loaded elsewhere", "test-shard-copy")
SCHEMA = of("schemas are checked by field", "test_schema")
MANIFEST = of("manifests keep 64-bit numbers", "test_manifest")
ROUTE = of("keys and slots go to the shards they belong to", "test_route")
ORACLE = of("every optimizer and update rule follows its formula", "test_store_oracle")
VALUES = of("pulls and pushes equal the model bit for bit on 2 shards", "client_test_values", "embd-server")
CSR = of("the CSR builder", "formats_test_csr")
DATA = of("data sets are read and written as the format says", "formats_test_data_sets")
MODELS = of("2a S0.19, 2b S0.20", "embd-server", "embctl")
PARQUET = of("Parquet data sets are read, written and converted", "embd_python", "embd_python_files")
JOB = of("S3.17: HugeCTR's wide & deep job", "embd-server", "embctl", "embd_python", "embd_python_files")
CALLS = of("Python: tables, pulls, pushes and started calls do as in C", "embd-server", "embctl", "embd_python", "embd_python_files")
FOREIGN = of("2e 2f 2g 2h: tables of DynamicEmb", "embd-server", "embctl", "embd_python", "embd_python_files")

MUTANTS = [
    ROUTE("S0.1", "slots go round the shards backwards", "proto/route.h", "return slot % n_shards;",
          "return (n_shards - slot % n_shards) % n_shards;"),
    PLACEMENT("S0.2", "two slots after one another lie on one shard", "proto/route.h", "return slot % n_shards;",
              "return slot / 2 % n_shards;"),
    TABLE("S0.3", "a row's slot is not kept", "server/store/host/keys.c", "index_put(&store->index, d->hash, d->slot, d->ref);",
          "index_put(&store->index, d->hash, 0 * d->slot, d->ref);"),
    MODELS("S0.4", "a workspace has room for one more column of state", "client/hugectr/hugectr.c", "((1 + n) * sizeof(float)",
           "((2 + n) * sizeof(float)"),
    TABLE("S0.5", "a row is counted without its state", "server/store/host/host.c", ".row_bytes = store->rows.capacity * store->rows.stride,",
          ".row_bytes = store->rows.capacity * store->value_bytes,"),
    PLACEMENT("S0.6", "a slot begins where the one before does", "proto/schema.c", "starts[s + 1] = starts[s] + sizes[s];",
              "starts[s + 1] = starts[s] + 0 * sizes[s];"),
    TABLE("S0.7", "slots have the bound of the first", "server/store/host/values.c",
          "store->slot_bounds[i] = embd__initializer_slot_bound(s->slot_sizes[i]);",
          "store->slot_bounds[i] = embd__initializer_slot_bound(s->slot_sizes[0]);"),
    MANIFEST("S0.8", "a manifest may have a slot size more than slots", "proto/schema_json.c", "n != schema->slots)",
             "n != schema->slots && n != schema->slots + 1)"),
    PLACEMENT("S0.9", "a share has the offsets of the batch", "client/call/split.c",
              "f->offsets[f->n_rows++] = f->n_keys;", "f->offsets[f->n_rows++] = (uint32_t)walk.begin;"),
    PLACEMENT("S0.10", "a share has as many offsets as rows", "client/call/split.c", "offsets += n_rows + 1;",
              "offsets += n_rows;"),
    EXCHANGE("S0.11", "answers of all shards come to one place", "client/call/pull.c",
             "to += rows_kept(work, &work->shares[s]) * work->row_bytes;",
             "to += 0 * rows_kept(work, &work->shares[s]) * work->row_bytes;"),
    PLACEMENT("S0.12", "rows of all shards begin at one place", "client/call/split.c", "        rows += n_rows;",
              "        rows += 0 * n_rows;"),
    PLACEMENT("S0.13", "the first row is of the second slot", "client/call/split.c",
              ".slot = work->schema->slots - 1}", ".slot = 0}"),
    PLACEMENT("S0.14", "a row's place is that in its share", "client/call/split.c",
              "f->rows[f->n_rows] = (uint32_t)walk.r;", "f->rows[f->n_rows] = f->n_rows;"),
    PLACEMENT("S0.15", "a row travels with its local slot", "client/call/split.c",
              "f->slots[f->n_rows] = (uint16_t)walk.slot;",
              "f->slots[f->n_rows] = (uint16_t)(walk.slot / split->n_shards);"),
    EXCHANGE("S0.16", "rows of a batch are slot by slot", "client/call/split.c",
             "walk->slot = walk->slot + 1 == work->schema->slots ? 0 : walk->slot + 1;",
             "walk->slot = (uint32_t)(walk->r * work->schema->slots / work->n_batch_rows);"),
    EXCHANGE("S0.17", "a share has the batch's first gradients", "client/call/push.c", "rows == NULL ? i : rows[i]", "i"),
    EXCHANGE("S0.18", "a key of a mean gets its row's whole gradient", "proto/combine.h",
             "return divisor == 1.0f ? weight : weight / divisor;", "return divisor == 0.0f ? weight / divisor : weight;"),
    MODELS("S0.19", "rows go to the GPUs in the other order", "client/hugectr/hugectr.h",
           "return (uint32_t)(number % n_gpus);", "return n_gpus - 1 - (uint32_t)(number % n_gpus);"),
    MODELS("S0.20", "a tensor begins with the second GPU's", "client/hugectr/hugectr_state.c",
           "uint64_t buffer = (uint64_t)tensor * r->n_gpus + gpu;", "uint64_t buffer = (uint64_t)gpu * r->n_tensors + tensor;"),
    EXCHANGE("S0.21", "rows are as many as shards divide", "client/call/pull.c",
             "r < work->n_rows; r++, to += work->dim)",
             "r < work->n_rows / call->n_shards * call->n_shards; r++, to += work->dim)"),
    EXCHANGE("S0.22", "rows are taken as the shards sent them", "client/call/pull.c",
             "const float *row = rows + work->numbers[i] * dim;", "const float *row = rows + i * dim;"),
    COPY("S0.23", "a blob has the bytes of its last piece", "server/snapshot/snapshot_blob.c",
         "parts->blobs[parts->n_blobs - 1].bytes += piece->bytes;", "parts->blobs[parts->n_blobs - 1].bytes = piece->bytes;"),
    EXCHANGE("S1.1", "the first shard is asked for nothing", "client/call/messages.c", "for (b.shard = 0; b.shard < call->n_shards",
             "for (b.shard = call->n_shards > 1; b.shard < call->n_shards"),
    PLACEMENT("S1.2", "a key's place is that in its group", "client/call/split.c", "from[at] = i;", "from[at] = at;"),
    PLACEMENT("S1.3", "groups are taken for equally long", "client/call/split.c", "        keys += n_keys;",
              "        keys += work->n_keys / split->n_shards;"),
    EXCHANGE("S1.4", "all groups go to the first shard", "client/call/messages.c",
             "message->x.link = call->client->shards[shard].link;", "message->x.link = call->client->shards[0].link;"),
    PLACEMENT("S1.5", "a shard gets keys divided by the shards", "client/call/split.c", "placed[at] = keys[i];",
              "placed[at] = keys[i] / split->n_shards;"),
    EXCHANGE("S1.6", "the row after a key's is gathered", "server/store/host/pull.c",
             "record = rows_at(&tables->rows, ref - 1);", "record = rows_at(&tables->rows, ref);"),
    EXCHANGE("S1.7", "rows lie as they came", "client/call/pull.c",
             "float *to = values + (size_t)from[i] * work->dim;",
             "float *to = values + (size_t)i * work->dim;"),
    EXCHANGE("S1.8", "a key gets the row of the key's place", "client/call/pull.c",
             "rows_to_f32(to, rows + work->numbers[i] * work->row_bytes,",
             "rows_to_f32(to, rows + i * work->row_bytes,"),
    EXCHANGE("S1.9", "a key asked for twice has its last gradient", "client/call/push.c",
             "    else if (scale == NULL)\n        embd__combine_add(run, grad, sums->dim);",
             "    else if (scale == NULL)\n        embd__combine_first(run, grad, sums->dim);"),
    CSR("S2.1", "a part has as many rows as there may be", "client/data/csr.c", "part->n_rows = csr->n_rows;",
        "part->n_rows = csr->max_rows;"),
    STORE_MEMORY("S2.2", "buffers lie as malloc has them", "server/store/host/memory.c", "return aligned_alloc(64, (bytes + 63) & ~(size_t)63);",
                 "return aligned_alloc(16, (bytes + 15) & ~(size_t)15);"),
    SCAN("S2.3", "a scan ends with its first block", "server/service/handle_scan.c", '"done", scan->cursor == UINT64_MAX);',
         '"done", true);'),
    SCHEMA("S2.4", "numbers of a schema have 32 bits", "proto/schema_field_wire.c", "                         embd__field_uint(map,",
           "                         (uint32_t)embd__field_uint(map,"),
    EXCHANGE("S2.5", "all shards have the first one's address", "client/core/client.c", "client->shards[shard].address : NULL;",
             "client->shards[0].address : NULL;"),
    MANIFEST("S2.6", "a step has 32 bits", "proto/manifest.c", 'table->step = embd__member_u64(', 'table->step = (uint32_t)embd__member_u64('),
    EXCHANGE("S2.7", "keys of the lower range go to the first shard", "proto/placement.h", "p->of_vshard[embd__mix64_high(key) >> 54]",
             "p->of_vshard[key >> 54]"),
    EXCHANGE("S2.8", "an empty slot is one zero and no row of them", "client/call/pull.c",
             "memset(work->part->values + (size_t)r * work->dim, 0, work->dim * sizeof(float));",
             "memset(work->part->values + (size_t)r * work->dim, 0, sizeof(float));"),
    PLACEMENT("S2.9", "keys of rows are spread whatever the partition", "client/call/split.c",
              "embd__placement_shard(split->placement, partition, walk.slot, work->keys[i]);",
              "embd__placement_shard(split->placement, EMBD_PARTITION_HASH, walk.slot, work->keys[i]);"),
    DATA("S2.10", "the rest of a chunk is its beginning", "client/data/reader.c",
         "embd__chunk_append(batch, r->now, r->n_taken, n,", "embd__chunk_append(batch, r->now, 0, n,"),
    DATA("S3.1", "a list may name more files than it says", "client/data/file_list.c",
         'status = wrong(r, "more files than line 1 promises", e);', "status = EMBD_OK;"),
    DATA("S3.2", "a header may have other slots", "client/data/norm_sample.c", 'fields[4], shape->slots, e)',
         'fields[4], (uint64_t)fields[4], e)'),
    DATA("S3.3", "a checksum is no sum", "client/data/norm_sample.c", "sum = (uint8_t)(sum + p[i]);",
         "sum = (uint8_t)(sum ^ p[i]);"),
    DATA("S3.4", "a key in two slots is a key", "client/data/overlap.c", "if (o->slots[cell] == slot + 1)",
         "if (o->slots[cell] != 0)"),
    DATA("S3.5", "a raw label is off by one", "client/data/raw_sample.c", "labels[i] = (float)load(p);",
         "labels[i] = (float)load(p) + 1;"),
    PARQUET("S3.5b", "columns are taken in the order of their names", "client/python/embd/data/parquet.py",
            "for i, name in enumerate(columns[group]):", "for i, name in enumerate(sorted(columns[group])):"),
    DATA("S3.5c", "65 threads are taken", "client/data/data_plan.c", "o->threads, 1, LIMIT_READERS, e)",
         "o->threads, 1, 2 * LIMIT_READERS, e)"),
    DATA("S3.6", "a key may be as large as its slot", "client/data/norm_sample.c", "        beyond |= key >= size;",
         "        beyond |= key > size;"),
    CSR("S3.7", "a row ends where it began", "client/data/csr.c", "    csr->offsets[csr->n_rows] = csr->n_keys;\n    return EMBD_OK;",
        "    return EMBD_OK;"),
    CSR("S3.8", "a roll-back keeps the keys", "client/data/csr.c", "csr->n_keys = csr->mark_keys;", "(void)csr->mark_keys;"),
    CSR("S3.9", "a row more than the bound is taken", "client/data/csr.c", "if (csr->n_rows == csr->max_rows)",
        "if (csr->n_rows > csr->max_rows)"),
    CSR("S3.10", "a part has the row before last's keys", "client/data/csr.c", "part->n_keys = csr->n_keys;",
        "part->n_keys = csr->n_keys - (csr->n_keys > 0);"),
    VALUES("S3.11", "gradients are cut to the wire's dtype, not rounded", "client/call/push.c",
           "embd__grads_from_f32(to, call->wire, from, work->dim, n, &chance, row);",
           "if (call->wire == EMBD_DTYPE_F16 || call->wire == EMBD_DTYPE_BF16)\n"
           "        for (size_t i = 0; i < (size_t)n * work->dim; i++) {\n"
           "            union { float f; uint32_t u; } x = {.f = from[i]};\n"
           "            x.u &= call->wire == EMBD_DTYPE_F16 ? 0xffffe000u : 0xffff0000u;\n"
           "            embd__from_f32(to + 2 * i, call->wire, &x.f, 1);\n        }\n    else\n"
           "        embd__grads_from_f32(to, call->wire, from, work->dim, n, &chance, row);"),
    STORE_MEMORY("S3.12", "large buffers are never given back", "server/store/host/memory.c", "        munmap(memory, bytes);",
                 "        (void)bytes;"),
    PLACEMENT("S3.13", "pieces of a call's memory are not aligned", "client/call/arena.h", "    arena->used += size;",
              "    arena->used += bytes;"),
    PLACEMENT("S3.14", "numbers of rows are those before grouping", "client/call/split.c",
              "work->numbers[i] = place_of[work->numbers[i]];", "(void)place_of[work->numbers[i]];"),
    DATA("S3.15", "paths of a list are never those of the working directory", "client/data/file_list.c",
         "*base = is_there ? EMBD_DATA_PATHS_LIST : EMBD_DATA_PATHS_WORKING_DIRECTORY;", "*base = EMBD_DATA_PATHS_LIST;"),
    PARQUET("S3.16", "a column's number is counted from 1", "client/python/embd/data/parquet.py",
            "schema.names[column.number]", "schema.names[column.number - 1]"),
    DATA("S3.17", "an input may have a key more than its greatest number", "client/data/norm_sample.c",
         "(uint32_t)count <= keys->most)", "(uint32_t)count <= keys->most + 1)"),
    JOB("S3.17", "adam's step is not that of the job's iteration", "client/embctl/jobs.c", "m->options.step = j->iteration;",
        "m->options.step = 0 * j->iteration;"),
    CALLS("S3.18", "entries of a COO tensor are taken as they stand", "client/python/embd/sparse.py",
          "order = np.lexsort((places[-1], rows))", "order = np.arange(keys.size)"),
    DATA("S3.19", "samples are filtered although no share was asked for", "client/data/data_plan.c", ".workers = 1,", ".workers = 2,"),
    ROUTE("S4.1", "modulo takes the lower half of a key", "proto/route.h", "return (uint32_t)(key % n_shards);",
          "return (uint32_t)key % n_shards;"),
    PLACEMENT("S4.2", "a row begins one key early", "client/call/split.c",
              "f->offsets[f->n_rows++] = f->n_keys;", "f->offsets[f->n_rows++] = f->n_keys - (f->n_keys > 0);"),
    CUDA("S4.3", "one flagged value is left out", "server/store/cuda/kernels/select.cu", "out, n_out, (int)n,",
         "out, n_out, (int)n - 1,"),
    PLACEMENT("S4.3", "running sums begin with the second row", "client/call/split.c",
              "offsets[r] = (uint32_t)work->offsets[r];", "offsets[r] = (uint32_t)work->offsets[r - (r > 1)];"),
    PLACEMENT("S4.4", "the last offset is the batch's", "client/call/split.c", "f->offsets[f->n_rows] = f->n_keys;",
              "f->offsets[f->n_rows] = work->n_keys;"),
    TABLE("S4.5", "a key beyond the room is told and has a row", "server/store/host/keys.c", "    if (*room == 0)\n        return EMBD_KEY_FULL;",
          "    if (*room == 0 && store->merge.n == 0)\n        return EMBD_KEY_FULL;"),
    EXCHANGE("S4.6", "missing keys have first values, whatever was asked for", "server/store/host/pull.c",
             "if (pull->zero_missing)", "if (pull->zero_missing && store->dim == 0)"),
    EXCHANGE("S4.7", "pulls that want zeros create rows, and others none", "server/engine/insert.c", "EMBD_CREATE_ON_PULL && !part->in.zero_missing &&",
             "EMBD_CREATE_ON_PULL && part->in.zero_missing &&"),
    PLACEMENT("S4.8", "numbers beside keys are those of the keys before", "client/call/distinct.c",
              "numbers_out[begin + i] = number;", "numbers_out[begin + i] = number - (number > 0);"),
    EXCHANGE("S4.9", "a slot's sum leaves out its first row", "proto/combine.h", "        acc[c] = row[c];\n}\nEMBD_INLINE void embd__combine_add(",
             "        acc[c] = 0 * row[c];\n}\nEMBD_INLINE void embd__combine_add("),
    EXCHANGE("S4.10", "partial sums are taken for whole rows in order", "client/call/pull.c",
             "uint32_t r = share->rows[i];", "uint32_t r = i;"),
    EXCHANGE("S4.11", "sum is called mean", "proto/names.c", '{"concat", "sum", "mean", "sqrtn", NULL}', '{"concat", "mean", "sum", "sqrtn", NULL}'),
    PARTIAL("S4.12", "partial sums are added from the last device", "server/store/nccl/kernels/parts.cu",
            "(uint64_t)device * n_rows + row;", "(uint64_t)(p.n_devices - 1 - device) * n_rows + row;"),
    EXCHANGE("S4.13", "a mean is divided by a key more", "client/call/pull.c",
             "embd__divisor(work->schema->combiner, n, weights)", "embd__divisor(work->schema->combiner, n + 1, weights)"),
    GROUP("S4.14", "a mean is divided by the keys of the first device", "server/store/nccl/kernels/parts.cu",
          "embd__divisor(view.divide, end - begin, weights)", "embd__divisor(view.divide, p.grouped[row + 1] - p.grouped[row], weights)"),
    EXCHANGE("S4.15", "a row that goes to several shards is not divided", "client/call/push.c",
             "(combiner == EMBD_COMBINER_MEAN || combiner == EMBD_COMBINER_SQRTN);", "(combiner == EMBD_COMBINER_SQRTN);"),
    TABLE("S4.16", "equal keys of a push step one by one", "server/store/host/merge.c",
          "if (d->hash == hash && d->slot == slot) {", "if (0 && d->hash == hash && d->slot == slot) {"),
    TABLE("S4.16", "a key has its last gradient alone", "server/store/host/merge.c", "merge->next[d->last] = k;",
          "d->first = k;"),
    TABLE("S4.17", "room is as large as the rows there are", "server/store/host/host.c", ".row_bytes = store->rows.capacity * store->rows.stride,",
          ".row_bytes = host_rows(store) * store->rows.stride,"),
    EXCHANGE("S4.18", "raw rows are pooled", "client/call/sending.c",
             "EMBD_COMBINER_CONCAT && !part->raw && !is_erase;", "EMBD_COMBINER_CONCAT && !is_erase;"),
    EXCHANGE("S4.19", "a weight is not given back to the gradient", "client/call/push.c",
             "scales[i] = embd__key_scale(work->weights[i], divisor);", "scales[i] = embd__key_scale(1.0f, divisor);"),
    MODELS("S4.20", "a MB is a million bytes", "client/hugectr/hugectr.c", "(workspace_mb << 20)", "(workspace_mb * 1000000)"),
    MODELS("2a", "a slot_id is not looked at", "client/hugectr/hugectr_import.c",
           "m.has_slots = status == EMBD_OK && own_schema.partition == EMBD_PARTITION_SLOT;", "m.has_slots = false;"),
    MODELS("2b", "the step of an import is not set", "client/hugectr/filling.c",
           "embd__copy_fill_set_step(f->target, f->step)", "embd__copy_fill_set_step(f->target, 0)"),
    DATA("2c", "a file's header has no checksum flag", "client/data/writer.c",
         "s->checksum, (int64_t)w->n_in_file", "0, (int64_t)w->n_in_file"),
    ORACLE("2d", "adam has no bias correction", "server/store/optimizer.h",
           "(float)((double)p.lr * sqrt(correction2) / correction1)", "(float)((double)p.lr + 0 * (correction2 + correction1))"),
    ORACLE("2d", "nesterov looks no step ahead", "server/store/optimizer.h", "p.one_plus_momentum = 1.0f + o->momentum;",
           "p.one_plus_momentum = 1.0f;"),
    ORACLE("2d", "global momentum leaves rows that are not pushed", "server/store/optimizer.h",
           "return o->update == EMBD_UPDATE_GLOBAL &&\n           (o->kind == EMBD_OPTIMIZER_MOMENTUM ||",
           "return o->update == EMBD_UPDATE_GLOBAL &&\n           ("),
    FOREIGN("2e", "adam's steps are not counted", "client/embctl/foreigndynamicemb.c",
            't->step = count_of(f, t, args, "iters");', 't->step = 0 * count_of(f, t, args, "iters");'),
    FOREIGN("2f", "numbers of a head have the lowest byte first", "client/embctl/foreignsok.c",
            "(uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3]",
            "(uint32_t)at[3] << 24 | (uint32_t)at[2] << 16 | (uint32_t)at[1] << 8 | at[0]"),
    FOREIGN("2g", "states with keys of their own are not looked up", "client/hugectr/arrays_source.c",
            "if (row != KEYINDEX_NONE)", "if (row == 0)"),
    FOREIGN("2h", "counts are not kept", "client/hugectr/arrays_source.c", "= !counts ? 1.0f", "= counts ? 1.0f"),
]
