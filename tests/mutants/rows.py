"""Mutants of what embd takes from its references: each row of tests/REFERENCE.md that is named here has a test that
carries the row's id and fails for the mutant."""
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
ROUTE = of("keys and slots go to the shards they belong to", "test_route")
ORACLE = of("every optimizer and update rule follows its formula", "test_store_oracle")
VALUES = of("pulls and pushes equal the model bit for bit on 2 shards", "client_test_values", "embd-server")
CSR = of("the CSR builder", "formats_test_csr")
DATA = of("data sets are read and written as the format says", "formats_test_data_sets")
MODELS = of("2a S0.19, 2b S0.20", "embd-server", "embctl")
PARQUET = of("Parquet data sets are read, written and converted", "embd_python", "embd_python_files")
JOB = of("S3.17: HugeCTR's wide & deep job", "embd-server", "embctl", "embd_python", "embd_python_files")
FOREIGN = of("2e 2f 2g 2h: tables of DynamicEmb", "embd-server", "embctl", "embd_python", "embd_python_files")

MUTANTS = [
    ROUTE("S0.1", "slots go round the shards backwards", "proto/route.h", "return slot % n_shards;",
          "return (n_shards - slot % n_shards) % n_shards;"),
    MODELS("S0.4", "a workspace has room for one more column of state", "client/hugectr/hugectr.c", "((1 + n) * sizeof(float)",
           "((2 + n) * sizeof(float)"),
    PLACEMENT("S0.6", "a slot begins where the one before does", "proto/schema.c", "starts[s + 1] = starts[s] + sizes[s];",
              "starts[s + 1] = starts[s] + 0 * sizes[s];"),
    MODELS("S0.19", "rows go to the GPUs in the other order", "client/hugectr/hugectr.h",
           "return (uint32_t)(number % n_gpus);", "return n_gpus - 1 - (uint32_t)(number % n_gpus);"),
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
    PLACEMENT("S3.13", "pieces of a call's memory are not aligned", "client/call/arena.h", "    arena->used += size;",
              "    arena->used += bytes;"),
    DATA("S3.15", "paths of a list are never those of the working directory", "client/data/file_list.c",
         "*base = is_there ? EMBD_DATA_PATHS_LIST : EMBD_DATA_PATHS_WORKING_DIRECTORY;", "*base = EMBD_DATA_PATHS_LIST;"),
    PARQUET("S3.16", "a column's number is counted from 1", "client/python/embd/data/parquet.py",
            "schema.names[column.number]", "schema.names[column.number - 1]"),
    DATA("S3.17", "an input may have a key more than its greatest number", "client/data/norm_sample.c",
         "(uint32_t)count <= keys->most)", "(uint32_t)count <= keys->most + 1)"),
    JOB("S3.17", "adam's step is not that of the job's iteration", "client/embctl/jobs.c", "m->options.step = j->iteration;",
        "m->options.step = 0 * j->iteration;"),
    ROUTE("S4.1", "modulo takes the lower half of a key", "proto/route.h", "return (uint32_t)(key % n_shards);",
          "return (uint32_t)key % n_shards;"),
    CUDA("S4.3", "one flagged value is left out", "server/store/cuda/kernels/select.cu", "out, n_out, (int)n,",
         "out, n_out, (int)n - 1,"),
    PLACEMENT("S4.3", "running sums begin with the second row", "client/call/split.c",
              "offsets[r] = (uint32_t)work->offsets[r];", "offsets[r] = (uint32_t)work->offsets[r - (r > 1)];"),
    PLACEMENT("S4.8", "numbers beside keys are those of the keys before", "client/call/distinct.c",
              "numbers_out[begin + i] = number;", "numbers_out[begin + i] = number - (number > 0);"),
    EXCHANGE("S4.9", "a slot's sum leaves out its first row", "proto/combine.h", "        acc[c] = row[c];\n}\nEMBD_INLINE void embd__combine_add(",
             "        acc[c] = 0 * row[c];\n}\nEMBD_INLINE void embd__combine_add("),
    PARTIAL("S4.12", "partial sums are added from the last device", "server/store/nccl/kernels/parts.cu",
            "(uint64_t)device * n_rows + row;", "(uint64_t)(p.n_devices - 1 - device) * n_rows + row;"),
    EXCHANGE("S4.13", "a mean is divided by a key more", "client/call/pull.c",
             "embd__divisor(work->schema->combiner, n, weights)", "embd__divisor(work->schema->combiner, n + 1, weights)"),
    TABLE("S4.16", "equal keys of a push step one by one", "server/store/host/merge.c",
          "if (d->hash == hash && d->slot == slot) {", "if (0 && d->hash == hash && d->slot == slot) {"),
    TABLE("S4.16", "a key has its last gradient alone", "server/store/host/merge.c", "merge->next[d->last] = k;",
          "d->first = k;"),
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
