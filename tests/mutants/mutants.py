"""Mutants: one line of the program is changed, and the test that is there for it has to fail.

    ninja mutants                                     # all of them: some minutes
    /usr/bin/python3 tests/mutants/mutants.py --most 3 --build build/mutants
    /usr/bin/python3 tests/mutants/mutants.py --check # only whether each can still be made, of every row

Copies the sources to BUILD/source, builds there what the tests need, runs them once as they are, and then once for each
mutant. Prints a line for each: caught, or SURVIVED. A mutant of a row of tests/REFERENCE.md (rows.py) is caught by a test that
carries the row's id. Exit status 1 if one survived or a test fails without a mutant.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import time

import rows

ROOT = pathlib.Path(__file__).resolve().parents[2]
COPIED = "CMakeLists.txt", "CMakePresets.json", "include", "proto", "client", "server", "tests", "deploy", "LICENSE", "README.md"
LAUNCHERS = ["-DCMAKE_C_COMPILER_LAUNCHER=ccache", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache"] if shutil.which("ccache") else []


def of(test, *targets):
    """Mutants that one test catches."""
    return lambda says, path, old, new: rows.Mutant(says, path, old, new, test, targets)


TOKENS = of("each role may do what it may", "embd-server", "embctl")
STREAMS = of("a stream is opened before its first push", "test-shard-streams")
AGAIN = of("a push of a round that comes again", "test-shard-rounds-again")
PUSHERS = of("a push of a pusher is applied once", "test-shard-pushers")
QUOTAS = of("a token's tables and rows stay within its limits", "embd-server", "embctl")
TURNS = of("whose requests take long gets no more of a shard", "embd-server", "embd-fast-clock")
JOURNAL = of("the tables after a start from a journal are those before it", "test-shard-journal")
PEERS = of("idle, slow and never-reading peers", "embd-server", "embctl")
DISK = of("serves others while its disk is busy", "embd-server", "embctl", "embd-gated-disk")
SYNCED = of("files of a journal are on disk before", "test-journal-synced")
KEYED = of("rows that are put are got with their state", "test-shard-keyed")
ENGINE = of("an engine does what the model does", "test-engine")
QUEUE = of("the host store searches rows to evict over many pushes", "test_store_eviction_queue")
REPLACE = of("tables of a running cluster go back to a snapshot", "embd-server", "embctl")
HISTORIES = of("random histories of tables", "test-histories", "embd-server", "embd-cuda-emulated", "embd-nccl-emulated")
MEMORY = of("pushes that need more than row_memory", "embd-server", "embctl")
PAGES = of("the HTTP port shows metrics", "embd-server")
FRAME = of("the frame scanner reads every MessagePack format", "test_frame")
PARTIAL = of("a snapshot of some tables has these", "embd-server", "embctl")
CASES = of("the host store gives the model's bits for every optimizer", "test_store_cases")
FROZEN = of("a cut of the host store is the table as it was", "test_store_frozen")
SWEEPS = of("a shard serves others between slices", "test-shard-sweeps")
LATE = of("a push of very many keys is applied in slices", "test-shard-late")
REFUSALS = of("a shard on the cuda store refuses whole what finds no room", "test_cuda_refusals")
EXPECTED = of("keys that a cuda store expects to be new", "test_cuda_expected")
FAILURES = of("a cuda store without memory changes nothing", "test_cuda_failures")
EARLY = of("large pulls of a GPU are sent while it makes them", "embd-server", "embd-cuda-emulated")
PIECES = of("a large pull of the cuda store is made piece by piece", "test_cuda_pieces")
ANSWERED = of("a large pull of the cuda store is answered while it is made", "test_cuda_early_pulls")
LENT = of("keys, rows and gradients in memory that a GPU's owner lends", "test_cuda_lent")
OWN = of("of a call in lent memory each cuda store takes the keys of its set", "test_cuda_own")
RACED = of("a cuda store takes keys of its set alone, also where their owner writes others", "test_cuda_own_hostile")
SHARES = of("in memory of a GPU the shards of a cluster do together what one does", "test_cuda_own_requests")
LENDING = of("requests that name memory of a GPU do what others do", "test_cuda_lent_requests")
DURABILITY = of("kill -9 while a table becomes durable", "embd-server", "embctl", "embd-gated-disk")
MOVES = of("keys move between shards while trainers go on", "embd-server", "embctl", "embd_python", "embd_python_files")
FOLLOWED = of("keys move in a cluster that is followed", "embd-server", "embctl")
DIES = of("servers or the coordinator die at each step", "embd-server", "embctl", "embd-gated-disk")
DURABLE = of("the durability of a table is set while trainers push", "embd-server", "embctl")
VECTORS = of("proto/vectors has the oracle's bits", "embd-server", "embd-cuda-emulated", "vectors-oracle")

MUTANTS = [
    ENGINE("a stream goes back with a table that is one of several it pushed to", "server/engine/rolled.c",
           "? CONCERNS_ALL : CONCERNS_SOME", "? CONCERNS_ALL : CONCERNS_ALL"),
    EARLY("bytes that are not made yet are sent", "server/net/outlet.c", "return x->request.is_partial && is_bin ?",
          "return x->request.is_partial && !is_bin ?"),
    EARLY("a part in shared memory is answered before it is there", "server/service/handle_pull.c", "&& !has_into &&", "&&"),
    PIECES("rows are told of before they are made", "server/store/cuda/pull.c", "piece_end(call, n - 1)", "piece_end(call, n)"),
    ANSWERED("an answer begins that may still be refused", "server/engine/pull.c", "op->n_sure == op->n_calls &&", "true &&"),
    ANSWERED("rows that the device has not made go on without an end", "server/service/handle_pull.c",
             "request->has_answer = false;", "request->has_answer = true;"),
    ENGINE("a worker without scores gives its keys 0 in a round", "server/engine/rounds/step.c", "in->scores[k] : -INFINITY;",
           "in->scores[k] : 0.0f;"),
    QUEUE("a row whose score falls is not among those that go", "server/store/host/eviction_queue.c",
          "if (!was_queued && !store->use_rule.scores)", "if (!was_queued)"),
    REPLACE("a base does not say which tables streams have pushed to", "server/journal/compaction.c", ".sets = s->sets,",
            ".sets = NULL,"),
    MOVES("keys that went stay where they had come to", "server/coordinator/move_rows.c", "p->is_gone = count == 0;",
          "if (count == 0) p->n_candidates = 0;"),
    MOVES("keys that wait for admission stay", "server/service/moving_read.c", "if (!read->is_final && !is_gone(&part))",
          "if (!is_gone(&part))"),
    MOVES("rows stay where they were, too", "server/service/moving_sweep.c", "erase->n += scan.n_rows;", ""),
    MOVES("an increment is upon an earlier map", "server/service/moving.c", "shard->cuts = (struct cuts_known){0};", ""),
    MOVES("the directory keeps the earlier map", "server/identity/placement.c",
          "keep(identity, place);\n        identity->file.is_moved = true;", ""),
    FOLLOWED("a follower goes by a map whose rows have not come", "server/service/following_records.c",
             " || following_holds(shard, &record))", ")"),
    FOLLOWED("a follower's shard that is prepared stands still", "server/service/following_records.c",
             "shard->hold.holders != NULL ||", "hold_is_on(&shard->hold) ||"),
    FOLLOWED("a base does not say the map", "server/journal/compaction.c", "c->is_placed_told = !is_told(&c->placed);",
             "c->is_placed_told = true;"),
    FOLLOWED("a promoted server gives versions of the one before", "server/service/moving.c", "return next < first ? first : next;",
             "return next;"),
    MOVES("a round has no rows that changed since the one before", "server/service/moving_scan.c",
          "subscriber_end_round(shard, subscriber);", "subscriber->from_now = true, subscriber_end_round(shard, subscriber);"),
    MOVES("pushes go on while the last rows are read", "server/coordinator/move_job.c",
          "change_map(m);\n    cluster_release(job->peers, job->n_shards, &pause_us);",
          "cluster_release(job->peers, job->n_shards, &pause_us);\n    change_map(m);"),
    DIES("a shard in doubt asks nobody", "server/service/doubt.c",
         "identity_ask_decision(identity, shard->engine.prepared.decision);", "DECISION_REFUSED;"),
    DIES("shard 0 refuses what is on its way to the disk", "server/service/doubt.c",
         "if (staging->deciding == decision && shard->commit.is_alone)", "if (0)"),
    DIES("shard 0 makes what it has refused", "server/service/doubt.c", "staging->replacer = NULL;", "staging->done = 0;"),
    DIES("a shard in doubt takes changes", "server/service/staging.c", "hold->is_locked = shard->engine.prepared.id != 0;",
         "hold->is_locked = false;"),
    DIES("a shard that starts in doubt is ready", "server/service/recovery.c",
         "if (!shard->has_failed && shard->engine.prepared.id != 0)", "if (0)"),
    DIES("a coordinator has nobody prepare", "server/coordinator/cluster_replace.c", 'run_phase(&r, "prepare", 1, n,',
         'run_phase(&r, "prepare", n, n,'),
    DIES("a base lacks what is prepared", "server/journal/compaction.c", "!staged_is_journaled(&engine->tables, engine->prepared.id))",
         "true)"),
    DIES("a base lacks the decision", "server/journal/compaction.c", "c->decided = engine->decided;", "c->decided = 0;"),
    DURABILITY("a table is journaled before its base is on disk", "server/service/handle_tables.c",
               'embd__msg_field_bool(m, "pending", true);', 'embd__msg_field_bool(m, "pending", false);'),
    DURABLE("a stream's push to a table that joined the journal is applied again after a start", "server/engine/foreign.c",
            "    if (last <= entry->last)\n", "    if (last < UINT64_MAX)\n"),
    DURABLE("a base does not say that a table has left the journal", "server/journal/compaction.c",
            "if (joining_is_left(tables->by_name[i]))", "if (joining_is_left(tables->by_name[i]) && 0)"),
    VECTORS("a push's scale is read and has no effect", "server/service/work.c", "return scales ? scale_push(op, e) : EMBD_OK;",
            "return EMBD_OK;"),
    VECTORS("divided weights may be infinite", "server/engine/scale.c", "if (bad < in->n_keys)", "if (0 && bad < in->n_keys)"),
    VECTORS("a gradient is divided by the weight's sum, also of sqrtn", "server/engine/scale.c",
            "float divisor = embd__divisor(part->table->schema.s.combiner,", "float divisor = embd__divisor(EMBD_COMBINER_MEAN,"),
    FRAME("bytes packed as str are no bins", "proto/frame.c", "return is_bin_as_str(s) ? open_bin", "return 0 ? open_bin"),
    TOKENS("a reader may erase", "server/service/authorize.c", "[METHOD_ERASE] = ROLE_TRAINER", "[METHOD_ERASE] = ROLE_READER"),
    TOKENS("a reader may put", "server/service/authorize.c", "[METHOD_PUT] = ROLE_TRAINER", "[METHOD_PUT] = ROLE_READER"),
    TOKENS("a get shows tables of others", "server/service/handle_get.c", "authorized_table(call, get->fields.table)",
           "tables_find(&call->shard->engine.tables, get->fields.table, e)"),
    KEYED("a put shows in answers on their way", "server/engine/engine.c",
          "return make_way(op, op->as.put.table, CHANGE_ROWS, e);", "return EMBD_OK;"),
    KEYED("a put takes values that are no numbers", "server/service/handle_put.c",
          "check_put_rows(put->table, &put->block, step, time, &call->error) != EMBD_OK", "step > 0 && false"),
    KEYED("a put's record lacks its states", "server/journal/row_record.c", ".has_states = put->block.states != NULL, .number",
          ".has_states = false, .number"),
    ENGINE("a replay reads no time", "server/journal/operation.c", "op->seconds = extra.seconds;", "op->seconds = 0;"),
    ENGINE("a table's clock goes back", "server/store/host/tickets.c", "change->seconds > store->clock ?", "change->seconds > 0 ?"),
    ENGINE("rows put without states begin as if they were never used", "server/engine/put.c", "if (n_use > 0)", "if (n_use > 9)"),
    TOKENS("a reader may tick", "server/service/authorize.c", "[METHOD_TICK] = ROLE_TRAINER", "[METHOD_TICK] = ROLE_READER"),
    TOKENS("a reader may ask for any pusher's number", "server/service/authorize.c", "[METHOD_WRITER] = ROLE_TRAINER",
           "[METHOD_WRITER] = ROLE_READER"),
    TOKENS("4 bytes of a token's hash are compared", "server/access/tokens.c",
           "CRYPTO_memcmp(access->grants[i].hash, hash, sizeof hash)", "CRYPTO_memcmp(access->grants[i].hash, hash, 4)"),
    TOKENS("a trainer ticks for jobs of others", "server/service/handle_tick.c", "if (authorize_job(call, name) != EMBD_OK)",
           "if (0)"),
    TOKENS("a trainer joins rounds of others", "server/service/handle_round.c",
           "if (authorize_job(call, call->extra.round.job) != EMBD_OK)", "if (0)"),
    TOKENS("a token takes all jobs", "server/service/authorize.c", "< JOBS_PER_TOKEN\n", "< 64\n"),
    TOKENS("a table id of others is told from an unknown one", "server/service/work.c",
           "if ((has_tokens && authorize_part(call, part, i, op->kind != OP_PULL) != EMBD_OK) ||\n            check_part_of(part->table, &part->in, i, e) != EMBD_OK ||",
           "if (check_part_of(part->table, &part->in, i, e) != EMBD_OK ||\n            (has_tokens && authorize_part(call, part, i, op->kind != OP_PULL) != EMBD_OK) ||"),
    ENGINE("a record lacks the id of its table", "server/journal/table_record.c", "return id != 0 && id != embd__table_id(schema->name);",
           "return id == 0 && schema == NULL;"),
    TOKENS("stats shows everybody's traffic", "server/service/metrics/stats.c", "bool sees_all = authorizes_table(call, \"\");",
           "bool sees_all = authorizes_table(call, \"\") || shard != NULL;"),
    QUOTAS("a token may have any number of tables", "server/service/token_use.c", "if (n < grant->most_tables)",
           "if (n < grant->most_tables + 64)"),
    QUOTAS("row_bytes bounds nothing", "server/engine/capacity.c", "return quota->limit > quota->used ? quota->limit - quota->used : 0;",
           "return quota->limit > quota->used ? UINT64_MAX : UINT64_MAX;"),
    QUOTAS("rounds are not asked for their tokens' limits", "server/service/handle_round.c",
           "            token_use_bound(op, work_of(step->members[m].push)->request->session);", "            (void)op;"),
    QUOTAS("inserting pulls are not asked for the token's limit", "server/service/handle_pull.c",
           "if (call->shard->engine.tables.n_creating > 0) {\n        token_use_bound", "if (call->shard->engine.tables.n > 256) {\n        token_use_bound"),
    QUOTAS("other limits end the connections of a token", "server/access/tokens.c", "offsetof(struct grant, most_tables)) == 0",
           "sizeof *grant) == 0"),
    QUOTAS("a token with prefixes has no default", "server/access/access.c", "set_default(&out->most_tables, TOKEN_TABLES);",
           "set_default(&out->most_tables, GRANT_UNLIMITED);"),
    QUOTAS("everybody sees what others take", "server/service/authorize.c", "(grant != NULL && grant->role == ROLE_ADMIN)",
           "(grant != NULL && grant->role >= ROLE_READER)"),
    TURNS("a turn has no end in time", "server/net/turn.h", "    return !turn_is_over(turn);", "    return true;"),
    TURNS("rows of all answers are made in one turn", "server/net/outlet.c", "if (is_late(out, x, until_ns) || ", "if ("),
    TURNS("sending goes on though its turn is over", "server/net/connection.c", "begin >= TURN_BYTES || turn_is_over(&c->turn)",
          "begin >= TURN_BYTES"),
    CASES("sweep: a pulled row has not stepped", "server/store/host/pull.c", "if (store->sweep.phase != SWEEP_NONE)", "if (false)"),
    CASES("sweep: a row that is read has not stepped", "server/store/host/read.c", "if (store->sweep.phase != SWEEP_NONE)", "if (false)"),
    CASES("sweep: a scanned row has not stepped", "server/store/host/scan.c", "if (store->sweep.phase != SWEEP_NONE && ", "if (false && "),
    CASES("sweep: a row that was pulled steps twice", "server/store/host/sweep.c",
          "(store, row, (uint64_t)row + 1);\n    row_set_add(&store->named, row);", "(store, row, (uint64_t)row + 1);"),
    CASES("sweep: free rows step", "server/store/host/sweep.c", "row_set_add(&store->named, sweep->free);", ""),
    CASES("sweep: the next push does not wait for the end", "server/store/host/tickets.c",
          "contract_change(change);\n    host_end_sweep(store);", "contract_change(change);"),
    CASES("sweep: an erase does not wait for the end", "server/store/host/keys.c", "    host_end_sweep(store);\n", ""),
    ENGINE("sweep: a load does not wait for the end", "server/store/host/scan.c", "    host_end_sweep(store);\n", ""),
    ENGINE("sweep: rows that were evicted are freed in its midst", "server/store/host/tickets.c",
           "        host_end_sweep(store); /* rows", "        (void)store; /* rows"),
    FROZEN("sweep: a cut has rows that have not stepped", "server/store/host/frozen.c", "if (store->sweep.phase != SWEEP_NONE && ",
           "if (false && "),
    FROZEN("sweep: rows of an older cut are not copied", "server/store/host/sweep.c", ".phase = store->cow.is_on ? SWEEP_COPIES : SWEEP_FREE,",
           ".phase = SWEEP_FREE,"),
    FROZEN("sweep: a row that is read early is not copied for the cut", "server/store/host/sweep.c", "if (sweep->keeps && store->cow.is_on)",
           "if (false)"),
    FROZEN("sweep: a new cut has copies of an older push", "server/store/host/cow.c", "    sweep_freeze(&store->sweep);\n", ""),
    SWEEPS("sweep: a push to its table ends it at once", "server/service/sweeps.c", "return table->is_swept || (table->is_long && is_behind);",
           "return table->is_long && is_behind;"),
    SWEEPS("sweep: pushes to its table stand in the journal", "server/service/sweeps.c", "shard->commit.n_long > 0 || (!was_parked",
           "(!was_parked"),
    SWEEPS("sweep: pushes overtake what waits", "server/service/sweeps.c", "(!was_parked && shard->hold.first != NULL)", "false"),
    SWEEPS("sweep: an erase ends all at once", "server/service/dispatch.c", "return call->shard->engine.tables.n_swept > 0;", "return false;"),
    SWEEPS("sweep: a record ends it at once", "server/journal/commit.c", "if (commit->rests || is_behind_sweep(commit, op))", "if (commit->rests)"),
    SWEEPS("sweep: a round ends it at once", "server/service/handle_round.c", "           !sweeps_stop_push(shard, push);", "           true;"),
    SWEEPS("sweep: a pull that makes rows ends it at once", "server/service/sweeps.c", "(table->is_swept && table->schema", "(false && table->schema"),
    LATE("late push: pulls see half of it", "server/service/sweeps.c", "return table->is_late ||", "return false ||"),
    LATE("late push: the next number does not wait for it", "server/service/sweeps.c", "op_is_unsure(&shard->engine", "false && op_is_unsure(&shard->engine"),
    LATE("late push: the next record does not wait for it", "server/journal/commit.c", "op_is_unsure(commit->engine", "false && op_is_unsure(commit->engine"),
    LATE("late push: one that nobody waits for keeps its number", "server/engine/op.c", "ops->cancel(call->store, &call->as.ticket));", "(ops->cancel(call->store, &call->as.ticket), EMBD_OK));"),
    LATE("late push: others take its memory between slices", "server/store/host/late.c", "late->memory_bytes = host_memory_bytes(store) + bytes;", "late->memory_bytes = 0;"),
    LATE("late push: it takes memory that others have", "server/engine/push.c", "tables.memory != NULL ? claim : NULL;", "tables.memory != NULL ? NULL : claim;"),
    REFUSALS("a device's push that nobody waits for keeps its number", "server/store/cuda/queue.c",
             "int status = call->status;\n    unlink_call(store, call);", "int status = EMBD_OK;\n    unlink_call(store, call);"),
    REFUSALS("the next number does not wait for a push that a device may refuse", "server/service/sweeps.h",
             "sweeps_are_on(shard) || shard->engine.unsure != NULL;", "sweeps_are_on(shard);"),
    FAILURES("lookups do not give way to a cut", "server/store/cuda/frozen.c", "status = cuda_new(store, &f->memory, arena.bytes);",
             "status = device_new(&f->memory, arena.bytes, store->stream);"),
    FAILURES("lookups do not give way to a batch", "server/store/cuda/batch_push.c", "cuda_new(store, &store->batch_block, bytes);",
             "device_new(&store->batch_block, bytes, store->stream);"),
    LENT("lent memory: keys are read where their owner may write", "server/store/cuda/call.c", "keys->on_device = block + keys->at;",
         "keys->on_device = keys->from;"),
    LENT("lent memory: gradients are read where their owner may write", "server/store/cuda/call.c",
         "call->inputs[IN_VALUES].on_device = block + grads->at;", "call->inputs[IN_VALUES].on_device = grads->from;"),
    LENT("lent memory: gradients that are not finite are applied", "server/store/cuda/queue.c",
         "int status = push_check(call, &call->done->error);", "int status = EMBD_OK;"),
    LENT("lent memory: the last bytes of gradients are not looked at", "server/store/cuda/kernels/checked_copy.cu",
         "        if (is_bad(e, word))\n            note_bad(t, first);", "        (void)word;"),
    LENT("lent memory: a step is made although a gradient is not finite", "server/store/cuda/kernels/finite.cuh",
         "        *t.stop = 1;", "        (void)0;"),
    LENT("a step is made although a key has no row", "server/store/cuda/kernels/apply.cu", "if (p.counts->stop)", "if (false)"),
    LENT("lent memory: gradients of a small push are not looked at", "server/store/cuda/kernels/batch_plan.cu",
         "bool is_bad = j.checks &&", "bool is_bad = false && j.checks &&"),
    OWN("sets of keys: a push creates keys outside", "server/store/cuda/kernels/own.cuh", "return in.own && p.group[i] == GROUP_OUTSIDE;",
        "return in.own && p.group[i] == GROUP_OUTSIDE - 1;"),
    OWN("sets of keys: a pooled pull writes rows of keys outside", "server/store/cuda/kernels/pool.cu", "is_outside<Own>(refs[row]))",
        "refs[row] == 1u << 31)"),
    OWN("sets of keys: a push of other keys alone forgets candidates", "server/store/cuda/push.c",
        "bool has_keys = call->in.own == NULL || call->report->has_own;", "bool has_keys = true;"),
    RACED("sets of keys: the keys of a small push are read again", "server/store/cuda/batch_push.c", "    j->keys = j->d_keys;\n", ""),
    SHARES("sets of keys: a set may have vshards of others", "server/service/handle_device.c",
           "if (embd__placement_set_has(own, v) &&", "if (false && embd__placement_set_has(own, v) &&"),
    SHARES("sets of keys: a set may be of another map", "server/service/handle_device.c",
           "if (check_placement(call) != EMBD_OK || check_set", "if (check_set"),
    SHARES("sets of keys: a record has all keys", "server/service/handle_device.c", "if (!embd__key_set_has(in->own, keys[i]))\n            continue;", ""),
    SHARES("lent memory: a handle is closed while others have it open", "server/store/cuda/imports.c", "    if (import->n > 0)\n        return;\n", ""),
    LENDING("lent memory: a place ends beyond it", "server/service/devices.c", "place->at <= device->memory.bytes - bytes",
            "place->at <= device->memory.bytes"),
    LENDING("lent memory: gradients of a journaled push are not looked at", "server/service/handle_device.c",
            "if (check_grads(part->table, &part->in, 0, 0, e) == EMBD_OK && ", "if ("),
    LENDING("lent memory: it stays when its connection ends", "server/service/shard.c", "    devices_leave(shard, session);\n", ""),
    LENDING("lent memory: a connection lends any number", "server/service/devices.c", "if (n < DEVICES_MOST)", "if (true)"),
    LENDING("lent memory: a gate's word rises before earlier calls have ended", "proto/device.c",
            "    if (before == NULL)\n        embd__gate_raise", "    if (true)\n        embd__gate_raise"),
    LENDING("lent memory: what its client has given up is done later", "server/service/gates.c",
            "GATE_DONE_AT, gate->number))", "GATE_DONE_AT, UINT32_MAX))"),
    LENDING("lent memory: it is lent on any connection", "server/service/devices.c", "if (session->share == NULL)", "if (false)"),
    LENDING("lent memory: keys of slots are taken", "server/service/handle_device.c",
            "table->schema.s.partition == EMBD_PARTITION_SLOT ||", "false ||"),
    EXPECTED("keys that are not new keep the entries that they got", "server/store/cuda/kernels/expect.cu", "e->ref == (uint32_t)(first_row + i + 1)", "e->ref == (uint32_t)(first_row + i + 2)"),
    EXPECTED("a key that comes twice counts as new twice", "server/store/cuda/kernels/expect.cu", "if (!mark_is_alone(p, hash) && has_twin", "if (false && has_twin"),
    EXPECTED("a key that has a row counts as new", "server/store/cuda/kernels/claim.cuh", "        if (LOOKS)\n            a = bucket_ask", "        if (false)\n            a = bucket_ask"),
    EXPECTED("a new key is placed though it has an entry further on", "server/store/cuda/kernels/claim.cuh", "if (LOOKS && __ballot_sync(ALL_LANES, more))", "if (false)"),
    DURABLE("a stream is forgotten though a snapshot has all that it lost", "server/engine/foreign.c",
            "s->lost <= entry->last && entry->last <= s->last", "entry->last == s->last"),
    TURNS("sweep: requests of a connection go before those of others", "server/service/sweeps.c",
          "return session->is_behind_sweep && sweeps_are_on(shard);", "return false && session->is_behind_sweep;"),
    SWEEPS("sweep: its slices are nobody's", "server/service/handle_push.c", "op->n_slices * SWEEP_SLICE_NS", "0 * SWEEP_SLICE_NS"),
    JOURNAL("what a push takes behind the journal is nobody's", "server/journal/commit.c", "*spent_ns += now_ns - began_ns;",
            "*spent_ns += 0 * (now_ns - began_ns);"),
    PEERS("operators ask by data connections", "client/core/request.c", "is_for_both && s->asks_admin ? s->admin",
          "is_for_both && s->asks_admin && shard > 4096 ? s->admin"),
    DISK("a second cancel cuts short the clean-up after the first", "server/coordinator/job_watch.c",
         "bool cleans_up = c->is_cancelled && !c->is_stopped;", "bool cleans_up = c->is_cancelled && c->is_stopped;"),
    SYNCED("the directory is not synced after a base's rename", "server/journal/basefile.c", "if (fsync(dir) != 0)",
           "if (dir < 0)"),
    SYNCED("the list of withdrawn pushes is not synced", "server/journal/withdrawn.c", "(ssize_t)n && fsync(fd) == 0 ? 0 : errno",
           "(ssize_t)n ? 0 : errno"),
    STREAMS("a record without its owner makes its stream idle", "server/journal/commit.c", "    op->now_ns = now_ns;",
            "    op->now_ns = 0 * now_ns;"),
    STREAMS("a stream of another principal goes", "server/engine/pushers.c", "return principal == PRINCIPAL_EVERYBODY ? ",
            "return principal != PRINCIPAL_EVERYBODY ? "),
    PUSHERS("a push that was applied is applied again", "server/engine/pushers.c", "if (push->sequence <= s->last)",
            "if (push->sequence < s->last)"),
    PARTIAL("a table comes from an older snapshot than the newest that covers it", "server/snapshot/snapshot_select.c",
            "return !is_decided && embd__scope_covers(&c->choices[i]", "return embd__scope_covers(&c->choices[i]"),
    PARTIAL("a stream that pushed between two cuts is kept", "proto/streamsfile.c",
            "found != NULL && found->last == kept[i].last &&", "found != NULL &&"),
    PARTIAL("streams are kept where no snapshot is of all tables", "server/snapshot/restore_streams.c",
            "if (!embd__scope_is_all(&manifest_of(shard, n - 1)->scope))", "if (false)"),
    PARTIAL("a job's keep removes snapshots of others", "server/snapshot/snapshot_keep.c",
            "scope != NULL && embd__scope_includes(scope, &one->scope)", "scope != NULL"),
    PARTIAL("a snapshot of some tables counts as one of all for its age", "server/snapshot/snapshot_watch.c",
            "if (embd__scope_is_all(&shard->snapshot.scope))", "if (true)"),
    ENGINE("a load sets no step", "server/engine/apply.c", "if (status == EMBD_OK && load->fields.has_step)",
           "if (status != EMBD_OK && load->fields.has_step)"),
    AGAIN("a round does not know a step that was made", "server/engine/sources.c",
          "(int32_t)(place - push->place) >= 0;", "(int32_t)(place - push->place) > 0;"),
    AGAIN("a round does not know a step that is being made", "server/engine/rounds/step.c",
          "return &step->members[m];", "return NULL;"),
    AGAIN("a worker of a step that others send again is taken for late", "server/engine/rounds/jobs.c",
          "return w->state == WORKER_ABSENT && claim->epoch > 0;", "return w->state == WORKER_ABSENT && claim->epoch > 99;"),
    AGAIN("pushes overtake one that left its round", "server/service/handle_push.c",
          "if (call->request->session->has_withdrawn)", "if (0)"),
    AGAIN("a late copy of a push displaces the one of the newer connection", "server/engine/rounds/step.c",
          "other->connection <= op->connection)", "true)"),
    AGAIN("pushes overtake one that came on an ended connection", "server/service/handle_round.c",
          "if (status == EMBD_CLOSED)", "if (0)"),
    AGAIN("pushes overtake one whose step failed as its connection ended", "server/service/handle_round.c",
          "if (work->op.error.status != EMBD_OK && session->has_ended)", "if (0)"),
    AGAIN("an earlier push that comes again teaches any clock", "server/engine/rounds/rounds.c",
          "    if (is_last)\n", ""),
    AGAIN("a late push makes a step of its own after a start", "server/service/handle_round.c",
          "    refuse_late(shard);\n", ""),
    ENGINE("a round's step has the table's learning rate", "server/engine/rounds/step.c",
           ".lr = step->members[0].push->parts[i].in.lr,", ".lr = 0.0f * step->members[0].push->parts[i].in.lr,"),
    ENGINE("workers of a round may differ in the learning rate", "server/engine/rounds/step.c", "if (lr != expected)",
           "if (lr != expected && lr > 1e30f)"),
    ENGINE("a journal has no learning rates", "proto/parts.c", 'embd__msg_field_f32(m, "lr", p->lr);',
           'embd__msg_field_f32(m, "lr", 2 * p->lr);'),
    HISTORIES("a block of one shard overtakes rows gathered for it", "client/formats/scatter.c",
              "int status = flush(s, shard); /* rows gathered for it are older */", "int status = EMBD_OK;"),
    MEMORY("the warning of row_memory comes with the first refusal", "server/engine/row_memory.c",
           "row_memory_limit(memory) / 10 * 9", "row_memory_limit(memory) / 10 * 10"),
    PAGES("a shard that stood still is not late", "server/net/late.c", "now_ns > due_ns ? now_ns - due_ns : 0", "now_ns > due_ns ? 0 * due_ns : 0"),
    MEMORY("row_memory bounds nothing", "server/engine/row_memory.h", "return most > used ? most - used : 0;",
           "return most > used ? UINT64_MAX : UINT64_MAX;"),
    MEMORY("a dropped table stays in the journal", "server/service/recovery.c",
           "tables->n_left_out = 0;\n    if (make_other(shard, e) != EMBD_OK)",
           "tables->n_left_out = 0;\n    if (e->status != EMBD_OK)"),
    MEMORY("a push to a dropped table has no number", "server/engine/op.h",
           "op->n_parts > 0 ? table_is_journaled(op->parts[0].table) : op->is_left_out;",
           "op->n_parts > 0 && table_is_journaled(op->parts[0].table);"),
    FRAME("short items pass the end of the head", "proto/frame.c", "bytes > s->head_capacity - s->head_bytes)\n        return false;",
          "bytes > s->head_capacity)\n        return false;"),
    *rows.MUTANTS,
]


def without_numbers(text):
    return re.sub(r"\$\{\w+\}|\d+", "N", text)


def tests_that_are_missing():
    """Tests of mutants that no CMakeLists.txt has; in a loop's names a variable stands for each number."""
    there = without_numbers("".join(path.read_text() for path in ROOT.glob("tests/*/CMakeLists.txt")))
    return [test for test in sorted({m.test for m in MUTANTS}) if without_numbers(test) not in there]


def check():
    """Whether each mutant can be made and its test exists, and each row of tests/REFERENCE.md has one."""
    missing = [m for m in MUTANTS if (ROOT / m.path).read_text().count(m.old) != 1]
    for m in missing:
        print(f"{m.path}: '{m.old}' does not occur once: mend the mutant \"{m.says}\"")
    bare = [row for row in rows.ROWS if row not in {m.row for m in MUTANTS}]
    for row in bare:
        print(f"rows.py: {row} of tests/REFERENCE.md has no mutant")
    unknown = tests_that_are_missing()
    for test in unknown:
        print(f"no test is called '{test}', which is to catch a mutant")
    return bool(missing or bare or unknown)


def names_of_failures(output):
    """What ctest, cmocka, unittest and scripts of cases say of tests that failed."""
    found = re.findall(r"\[  FAILED  \] (.*)|(?:FAIL|ERROR): (\w+)|, in (case_\w+)|\d+ - (.*) \((?:Failed|Timeout)\)", output)
    return " ".join(name for names in found for name in names)


def run(*arguments):
    return subprocess.run(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)


class Tree:
    """A copy of the sources, and what was built of them."""

    def __init__(self, folder):
        self.source, self.build = folder / "source", folder / "built"
        shutil.rmtree(self.source, ignore_errors=True)
        self.source.mkdir(parents=True)
        for name in COPIED:
            self.copy(ROOT / name, self.source / name)
        self.must("cmake", "-S", self.source, "-B", self.build, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo",
                  "-DEMBD_CUDA=OFF", *LAUNCHERS)

    @staticmethod
    def copy(source, copy):
        """With times of now: what an earlier run built of a mutant is older."""
        if source.is_dir():
            shutil.copytree(source, copy, copy_function=shutil.copy)
        else:
            shutil.copy(source, copy)

    def must(self, *arguments):
        done = run(*map(str, arguments))
        if done.returncode:
            sys.exit(f"{' '.join(map(str, arguments))}:\n{done.stdout[-4000:]}")

    def build_targets(self, targets):
        return run("ninja", "-C", str(self.build), *targets)

    def run_test(self, test):
        return run("ctest", "--test-dir", str(self.build), "-R", re.escape(test), "--no-tests=error", "--stop-on-failure",
                   "--output-on-failure")

    def passes(self, test):
        done = self.run_test(test)
        return done.returncode == 0 and "***Skipped" not in done.stdout

    def is_caught(self, mutant):
        path = self.source / mutant.path
        before = path.read_text()
        path.write_text(before.replace(mutant.old, mutant.new))
        try:
            built = self.build_targets(mutant.targets)
            if built.returncode:
                sys.exit(f"\"{mutant.says}\" does not compile:\n{built.stdout[-3000:]}")
            done = self.run_test(mutant.test)
            return done.returncode != 0 and (not mutant.row or mutant.row in rows.ids_of(names_of_failures(done.stdout)))
        finally:
            path.write_text(before)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "mutants", help="where to build (build/mutants)")
    parser.add_argument("--most", type=int, default=len(MUTANTS), help="how many mutants, from the first (all)")
    parser.add_argument("--only", default="", help="only mutants whose sentence has these words")
    parser.add_argument("--rows", action="store_true", help="only mutants of rows of tests/REFERENCE.md (rows.py)")
    parser.add_argument("--check", action="store_true", help="only look whether each mutant can be made")
    options = parser.parse_args()
    if check():
        return 1
    if options.check:
        return 0
    chosen = [m for m in MUTANTS if options.only in m.says and (m.row or not options.rows)][:options.most]
    tree = Tree(options.build.resolve())
    built = tree.build_targets(sorted({target for m in chosen for target in m.targets}))
    if built.returncode:
        sys.exit(built.stdout[-4000:])
    for test in sorted({m.test for m in chosen}):
        if not tree.passes(test):
            sys.exit(f"the test '{test}' fails or is skipped without a mutant, or there is none of that name")
    survivors = 0
    for m in chosen:
        began = time.monotonic()
        caught = tree.is_caught(m)
        survivors += not caught
        print(f"{'caught  ' if caught else 'SURVIVED'} {m.says} ({time.monotonic() - began:.0f} s)", flush=True)
    print(f"{len(chosen) - survivors} of {len(chosen)} mutants were caught")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
