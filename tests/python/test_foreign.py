"""embctl import of the files of DynamicEmb, SOK, TensorFlow Recommenders Addons and HierarchicalKV: on 1 and 3 shards each
row and state is there to the bit, training goes on beside a model in numpy, and what is damaged is refused by file and number
and changes nothing."""
import json
import os
import shutil
import subprocess
import tempfile
import time
import unittest

import numpy as np

import foreign
from clusters import Embd, embd, main

REFUSED, DAMAGED, USAGE = 5, 6, 2
KEYS = np.array([0, 1, 5, 2**31, 2**40, 2**63 - 1, 2**63, 2**64 - 1, *range(100, 400)], np.uint64)


def floats(seed, *shape, at_least=-2.0):
    return np.random.default_rng(seed).uniform(at_least, 2, shape).astype(np.float32)


class ForeignTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.servers = [Embd(shards=1), Embd(shards=3)]

    @classmethod
    def tearDownClass(cls):
        for server in cls.servers:
            server.stop()

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = os.path.join(scratch.name, "files")
        self.clients = []
        for server in self.servers:
            client = embd.connect(server.addresses[0], deadline=20)
            self.addCleanup(client.close)
            for name in client.tables():
                client.drop_table(name)
            self.clients.append(client)

    def embctl(self, server, *arguments):
        return subprocess.run([os.environ["EMBD_BIN"] + "/embctl", "import", self.folder, *map(str, arguments)], text=True,
                              env={**os.environ, "EMBD_SERVERS": server.addresses[0]}, capture_output=True, timeout=60,
                              check=False)

    def imported(self, *arguments):
        """On both clusters; yields the client, with the report as it is in JSON."""
        for server, client in zip(self.servers, self.clients):
            done = self.embctl(server, "-o", "json", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            yield client, json.loads(done.stdout)

    def refused(self, says, *arguments, code=DAMAGED, left=()):
        """By a dry run too; nothing has changed."""
        for dry in ([], ["--dry-run"]):
            done = self.embctl(self.servers[1], *arguments, *dry)
            self.assertIn(says, done.stderr)
            self.assertEqual(done.returncode, code, done.stderr)
        self.assertEqual(sorted(self.clients[1].tables()), sorted(left))

    def check(self, client, name, keys, values, states=None, dtype=np.float32):
        """The table has these rows and no others, to the bit."""
        table = client.table(name)
        got = table.get(keys, states=states is not None)
        self.assertTrue(got.found.all())
        np.testing.assert_array_equal(got.values, values.astype(dtype).astype(np.float32))
        np.testing.assert_array_equal(table.pull(keys, raw=True), got.values)
        if states is not None:
            np.testing.assert_array_equal(got.states, states)
        self.assertEqual(sum(s.tables[name]["rows"] for s in client.stats()), len(keys))

    def path(self, name):
        return os.path.join(self.folder, name)

    def cut(self, name, by):
        os.truncate(self.path(name), os.path.getsize(self.path(name)) - by)

    def replaced_by_fifo(self, name):
        os.rename(self.path(name), self.path("../kept"))
        os.mkfifo(self.path(name))

    def restore(self, name):
        os.replace(self.path("../kept"), self.path(name))

    def trains_on(self, client, name, keys, step):
        """A push of the first 50 keys does to rows what `step` does to the row and the gradient."""
        table, gradient = client.table(name), floats(99, 50, client.table(name).dim)
        before = table.get(keys[:50], states=True)
        table.push(keys[:50], gradient)
        wanted = step(before.values.astype(np.float64), before.states.astype(np.float64), gradient.astype(np.float64))
        np.testing.assert_allclose(table.get(keys[:50]).values, wanted, rtol=2e-6, atol=2e-6)


def adam(t, lr, beta1=0.9, beta2=0.999, eps=1e-7):
    def step(w, state, g):
        m, v = np.split(state, 2, axis=1)
        m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
        return w - lr * np.sqrt(1 - beta2**t) / (1 - beta1**t) * m / (np.sqrt(v) + eps)
    return step


def adagrad(lr, eps=1e-7):
    """Also row-wise: one state a row."""
    def step(w, v, g):
        square = g * g if v.shape[1] == w.shape[1] else (g * g).mean(axis=1, keepdims=True)
        return w - lr * g / (np.sqrt(v + square) + eps)
    return step


class DynamicEmb(ForeignTest):
    ADAM = {"opt_type": "adam", "lr": 0.02, "iters": 300, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.0,
            "evict_strategy": "EvictStrategy.KLru", "step_score": 0}
    ROWWISE = {"opt_type": "exact_row_wise_adagrad", "lr": 0.5, "eps": 1e-8, "initial_accumulator_value": 0.25,
               "evict_strategy": "EvictStrategy.KLfu", "step_score": 1}

    def write(self, table, seed, dim, width, args, world_size, keys=KEYS, scores=None):
        values, states = floats(seed, len(keys), dim), floats(seed + 1, len(keys), width, at_least=0.0)
        owner = keys % np.uint64(world_size)
        parts = []
        for rank in range(world_size):
            mine = owner == rank
            part = {"keys": keys[mine], "values": values[mine],
                    "scores": (np.arange(len(keys)) if scores is None else scores).astype(np.int64)[mine]}
            parts.append({**part, "opt_values": states[mine]} if width else part)
        foreign.dynamicemb(self.folder, table, parts, args)
        return values, states

    def test_2e_tables_of_several_ranks_come_at_once_with_optimizer_state_and_step(self):
        users = self.write("Users", 1, 6, 12, self.ADAM, 3)
        items = self.write("t.items", 5, 4, 1, self.ROWWISE, 2)
        plain = self.write("plain", 9, 2, 0, {"opt_type": "sgd", "lr": 0.125, "evict_strategy": "EvictStrategy.KLru",
                                              "step_score": 0}, 1)
        for client, report in self.imported():
            self.assertEqual([(t["table"], t["rows"], t["dim"], t["optimizer"], t["gpus"], t["is_new"])
                              for t in report["import"]],
                             [("users", 308, 6, "adam", 3, True), ("plain", 308, 2, "sgd", 1, True),
                              ("t_items", 308, 4, "rowwise_adagrad", 2, True)])
            self.assertEqual(len(report["ignored"]), 3, "scores without a policy here are named")
            self.check(client, "users", KEYS, *users)
            self.check(client, "t_items", KEYS, *items)
            self.check(client, "plain", KEYS, plain[0])
            schema = client.table("users").describe()
            self.assertEqual([getattr(schema.optimizer, f) for f in ("kind", "lr", "beta1", "beta2", "eps")],
                             ["adam", *map(np.float32, (0.02, 0.8, 0.99, 1e-6))])
            self.assertEqual(client.table("t_items").describe().optimizer.initial_accumulator, 0.25)
            self.trains_on(client, "users", KEYS, adam(301, 0.02, 0.8, 0.99, 1e-6))
            self.trains_on(client, "t_items", KEYS, adagrad(0.5, 1e-8))

    def test_scores_become_the_use_of_rows_where_they_mean_the_same(self):
        counts = np.arange(len(KEYS)) * 10**5
        self.write("often", 1, 4, 1, self.ROWWISE, 2, scores=counts)
        evicts = ["--capacity", 1000, "--on-full"]
        for client, report in self.imported(*evicts, "evict_lfu"):
            self.assertEqual(report["ignored"], [])
            use = client.table("often").get(KEYS, states=True).states[:, 1:]
            np.testing.assert_array_equal(use[:, 2], np.minimum(counts, 2**24 - 1))
        self.assertIn("scores of 'often': they are counts, which a table with on_full = evict_lru does not keep",
                      self.embctl(self.servers[0], *evicts, "evict_lru", "--dry-run", "--table", "x").stderr)
        steps = {**self.ROWWISE, "evict_strategy": "EvictStrategy.KCustomized", "step_score": 1000}
        self.write("when", 1, 4, 1, steps, 2, scores=np.arange(len(KEYS)) + 500)
        for client, report in self.imported(*evicts, "evict_lru", "--only", "when"):
            use = client.table("when").get(KEYS, states=True).states[:, 1:]
            np.testing.assert_array_equal(use[:, 0], np.arange(len(KEYS)) + 500, "steps of rows' last pushes")
        for client in self.clients:
            client.drop_table("when")
        began = int(time.time())
        for client, report in self.imported(*evicts, "evict_ttl", "--set", "ttl_seconds=60", "--only", "when"):
            self.assertIn("they are steps, which a table with on_full = evict_ttl does not keep", str(report["ignored"]))
            for shard in client.stats():
                self.assertTrue(began <= shard.tables["when"]["clock_seconds"] <= time.time(), "rows live from then on")
        self.write("late", 1, 4, 1, steps, 2, scores=np.arange(len(KEYS)) + 700)
        self.refused("late_emb_scores.rank_0.world_size_2: key 394 has the score 1002, the table's greatest is 1000",
                     *evicts, "evict_lru", "--only", "late", left=["often", "when"])

    def test_parameters_of_the_command_line_and_a_table_that_exists_count_more(self):
        values, states = self.write("users", 1, 6, 12, self.ADAM, 2)
        self.write("other", 3, 2, 0, {**self.ADAM, "opt_type": "lamb"}, 1)
        self.refused("other_opt_args.json: opt_type is 'lamb', expected sgd, adam, exact_adagrad or", code=REFUSED)
        for client, _ in self.imported("--only", "users", "--table", "here", "--dtype", "bf16", "--set", "optimizer.lr=0.5"):
            self.assertEqual(client.table("here").describe().optimizer.lr, 0.5)
            self.assertEqual(client.table("here").describe().dtype, "bf16")
            np.testing.assert_array_equal(client.table("here").get(KEYS, states=True).states, states)
        for client, report in self.imported("--only", "users", "--no-optimizer-state"):
            self.check(client, "users", KEYS, values, np.zeros_like(states))
            client.drop_table("users")
            client.create_table("users", 6, optimizer=embd.Optimizer("adam", lr=0.75))
        for client, report in self.imported("--only", "users"):
            self.assertFalse(report["import"][0]["is_new"])
            self.assertEqual(client.table("users").describe().optimizer.lr, 0.75)
            self.check(client, "users", KEYS, values, states)
            client.drop_table("users")
            client.create_table("users", 6, optimizer=embd.Optimizer("adagrad"))
        self.refused("table 'users': the state of adagrad is 6 floats a row, the files have 12", "--only", "users",
                     code=REFUSED, left=["here", "users"])

    def test_decay_is_decoupled(self):
        self.write("users", 1, 6, 12, {**self.ADAM, "weight_decay": 0.25}, 1)
        for client, _ in self.imported():
            self.trains_on(client, "users", KEYS, lambda w, s, g: adam(301, 0.02, 0.8, 0.99, 1e-6)(w, s, g) - 0.02 * 0.25 * w)

    def test_damaged_folders_are_refused_by_file_and_number_and_change_nothing(self):
        self.write("a", 1, 3, 1, self.ROWWISE, 2)
        self.write("z", 3, 6, 12, self.ADAM, 2)
        end = ".rank_1.world_size_2"
        changes = [("z_emb_keys" + end, 3, "z_emb_values.rank_0.world_size_2 and those beside it: "),
                   ("z_emb_values" + end, 24, "z_emb_values.rank_0.world_size_2 and those beside it: 7368 bytes for 308 keys"),
                   ("z_emb_opt_values" + end, 4, "bytes for 308 keys")]
        os.rename(self.path("z_emb_opt_values.rank_0.world_size_2"), self.path("../first"))
        self.refused("z_emb_opt_values.rank_0.world_size_2: is missing")
        os.rename(self.path("../first"), self.path("z_emb_opt_values.rank_0.world_size_2"))
        for name, by, says in changes:
            with open(self.path(name), "rb") as file:
                whole = file.read()
            self.cut(name, by)
            self.refused(says)
            with open(self.path(name), "wb") as file:
                file.write(whole)
            self.replaced_by_fifo(name)
            self.refused(f"{name}: is not a regular file")
            os.unlink(self.path(name))
            self.refused(f"{name}: is missing")
            self.restore(name)
        self.refused("'a' has rows of 3 values, the table's dim is 6", "--dim", 6, code=REFUSED)
        self.refused("has several tables, and --table names one: choose it with --only NAME", "--table", "t", code=REFUSED)
        self.refused("has no table nobody of the format dynamicemb", "--only", "nobody")
        keys = np.fromfile(self.path("z_emb_keys" + end), np.uint64)
        np.append(keys[:-1], KEYS[0]).tofile(self.path("z_emb_keys" + end))
        self.refused(f"z_emb_keys{end}: row {len(keys) - 1} has key 0, which row 0 of {self.folder}/z_emb_keys.rank_0.")
        keys.tofile(self.path("z_emb_keys" + end))
        self.not_finite("z_emb_values" + end, keys, 6)
        self.not_finite("z_emb_opt_values" + end, keys, 12)
        for more, says in (("rank_2.world_size_2", "rank 2 of 2; expected ranks 0 to 1"), ("rank_0.world_size_3", "rank 0 of 3"),
                           ("rank_0.world_size_0", "the world size is 0, it can be 1 to 65536")):
            keys.tofile(self.path("z_emb_keys." + more))
            self.refused(f"z_emb_keys.{more}: {says}")
            os.unlink(self.path("z_emb_keys." + more))
        for text, says, code in (("{", "z_opt_args.json: line 1", DAMAGED), ("[]", "z_opt_args.json: not an object", DAMAGED),
                                 (json.dumps({**self.ADAM, "iters": -1}), "iters is not a whole number", DAMAGED)):
            with open(self.path("z_opt_args.json"), "w") as out:
                out.write(text)
            self.refused(says, code=code)

    def not_finite(self, name, keys, width):
        """In the last column of the last row: it shows when rows are sent, and the tables are dropped again."""
        whole = np.fromfile(self.path(name), np.float32)
        np.append(whole[:-1], np.float32("nan")).tofile(self.path(name))
        says = f"{name}: key {keys[-1]} has nan in column {width - 1}; table 'z' admits finite values only"
        self.refused(says, code=REFUSED)
        existing = self.clients[1].create_table("a", 3, optimizer=embd.Optimizer("rowwise_adagrad", lr=1))
        self.refused(says, code=REFUSED, left=["a"])
        self.assertFalse(existing.get(KEYS).found.any(), "a table that was there is as empty as before")
        existing.drop()
        whole.tofile(self.path(name))


class Sok(ForeignTest):
    def test_2f_tables_come_at_once_with_the_states_of_their_optimizer(self):
        for i, (kind, value) in enumerate((("int64", np.float32), ("uint64", np.float16), ("int32", np.float32),
                                           ("uint32", np.float32))):
            keys = np.array([7, -3, 12] if kind[0] == "i" else [7, 2**32 - 3, 12]).astype(kind)
            foreign.sok(self.folder, f"t{i}", keys, floats(i, 3, 5).astype(value), "Adam",
                        m=floats(i + 10, 3, 5), v=floats(i + 20, 3, 5, at_least=0.0).astype(value))
        for client, report in self.imported("--lr", 0.01, "--step", 40):
            self.assertEqual([(t["table"], t["optimizer"], t["rows"]) for t in report["import"]],
                             [(f"t{i}", "adam", 3) for i in range(4)])
            self.assertEqual(report["ignored"], [])
            for i in range(4):
                second = {0: 2**64 - 3, 2: 2**64 - 3}.get(i, 2**32 - 3)
                value = np.float16 if i == 1 else np.float32
                states = np.concatenate([floats(i + 10, 3, 5), floats(i + 20, 3, 5, at_least=0.0).astype(value)], axis=1)
                self.check(client, f"t{i}", np.array([7, second, 12], np.uint64), floats(i, 3, 5), states, value)

    def test_training_goes_on(self):
        keys, values = KEYS.astype(np.int64), floats(1, len(KEYS), 4)
        m, v = floats(2, len(KEYS), 4), floats(3, len(KEYS), 4, at_least=0.0)
        foreign.sok(self.folder, "adam", keys, values, "Adam", m=m, v=v)
        foreign.sok(self.folder, "gone", keys, values, "Adagrad", accumulator=v)
        foreign.sok(self.folder, "ftrl", keys, values, "Ftrl", accumulator=v, linear=m)
        foreign.sok(self.folder, "mom", keys, values, "SGD", momentum=m)
        self.refused("no file has the learning rate of 'adam': set --lr X", code=REFUSED)
        for client, report in self.imported("--lr", 0.01, "--step", 40):
            self.assertEqual([t["optimizer"] for t in report["import"]], ["adam", "ftrl", "adagrad", "momentum"])
            self.check(client, "ftrl", KEYS, values, np.concatenate([v, m], axis=1))
            self.trains_on(client, "adam", KEYS, adam(41, 0.01))
            self.trains_on(client, "gone", KEYS, adagrad(0.01))
            self.trains_on(client, "mom", KEYS, lambda w, a, g: w + 0.9 * a - 0.01 * g)

    def test_what_is_damaged_or_of_other_formulas_is_refused(self):
        keys, values = KEYS.astype(np.int64), floats(1, len(KEYS), 4)
        foreign.sok(self.folder, "t", keys, values, "Adam", m=values, v=np.abs(values))
        lr = ["--lr", 0.01]
        for name in ("t-key", "t-weight", "t-Adam-m"):
            with open(self.path(name), "rb") as file:
                whole = file.read()
            for size, says in ((295, f"{name}: has 295 bytes, expected a head of 296"), (0, "expected a head of 296")):
                os.truncate(self.path(name), size)
                self.refused(says, *lr)
            for at, value, says in ((256, 9, f"{name}: its head says file type 9, expected"),
                                    (292, 7, f"{name}: its head says dtype 7, it can be 0 to 6")):
                with open(self.path(name), "wb") as out:
                    out.write(whole[:at] + value.to_bytes(4, "big") + whole[at + 4:])
                self.refused(says, *lr)
            with open(self.path(name), "wb") as out:
                out.write(whole[:-4])
            self.refused("bytes", *lr)
            with open(self.path(name), "wb") as out:
                out.write(whole)
            self.replaced_by_fifo(name)
            self.refused(f"{name}: is not a regular file", *lr)
            self.restore(name)
        foreign.sok_file(self.folder, "t-Adam-vhat", 2, "vhat", values)
        self.refused("'t' has the states m, v, vhat, which are not those of adam", *lr, "--optimizer", "adam", code=REFUSED)
        os.unlink(self.path("t-Adam-vhat"))
        self.refused("'t' has the states m, v, which are not those of rmsprop; set --optimizer", *lr, "--optimizer", "rmsprop",
                     code=REFUSED)
        foreign.sok(self.folder, "d", keys, values.astype(np.float64))
        self.refused("d-weight: values are float64, expected float16 or float32", *lr, code=REFUSED)
        foreign.sok(self.folder, "d", values, values)
        self.refused("d-key: keys are float32, expected int32", *lr, code=REFUSED)
        foreign.sok(self.folder, "d", keys, values)
        os.unlink(self.path("d-weight"))
        self.refused("d-weight: is missing", *lr)


class Tfra(ForeignTest):
    def write(self, has_ranks=True):
        """Four files of a variable; its states have keys of their own, in another order, and not all."""
        random, n = np.random.default_rng(4), len(KEYS)
        values = floats(1, n, 4)
        m, v = floats(2, n, 4), floats(3, n, 4, at_least=0.0)
        name, states = "model_user-parameter", "model_user-parameter_DynamicEmbedding_keras_adam_lazy_build-shadow"
        has_state = random.random(n) < 0.8
        m[~has_state], v[~has_state] = 0, 0
        parts = np.arange(n) % (4 if has_ranks else 1)
        spread = lambda rows, mask: [(KEYS[chosen], rows[chosen]) for chosen in
                                     (random.permutation(np.flatnonzero((parts == p) & mask)) for p in range(parts.max() + 1))]
        ranks = 2 if has_ranks else 1
        foreign.tfra(self.folder, name, spread(values, True), ranks, has_ranks)
        foreign.tfra(self.folder, states + "_m", spread(m, has_state), ranks, has_ranks)
        foreign.tfra(self.folder, states + "_v", spread(v, has_state), ranks, has_ranks)
        return values, np.concatenate([m, v], axis=1)

    def test_2g_variables_come_with_states_that_have_their_own_keys(self):
        for has_ranks in (True, False):
            values, states = self.write(has_ranks)
            for client, report in self.imported("--lr", 0.01, "--step", 12):
                self.assertEqual([(t["table"], t["optimizer"], t["dim"], t["gpus"]) for t in report["import"]],
                                 [("model_user-parameter", "adam", 4, 4 if has_ranks else 1)])
                self.check(client, "model_user-parameter", KEYS, values, states)
                self.trains_on(client, "model_user-parameter", KEYS, adam(13, 0.01))
                client.drop_table("model_user-parameter")
            for name in os.listdir(self.folder):
                os.unlink(self.path(name))

    def test_dtypes_of_keys_and_values_are_the_commands(self):
        keys = np.array([5, -5, 2**31 - 1], np.int32)
        for i, (name, to) in enumerate((("f16", lambda x: x.astype(np.float16)), ("bf16", foreign.bf16))):
            values = np.array([[1, -2.5], [0.125, 96], [3, 0]], np.float32)
            foreign.tfra(self.folder, f"t{i}", [(keys, to(values))])
            for kind, second in (("i32", 2**64 - 5), ("u32", 2**32 - 5)):
                for client, report in self.imported("--value-dtype", name, "--keys", kind, "--dtype", "f16", "--only", f"t{i}"):
                    self.check(client, f"t{i}", np.array([5, second, 2**31 - 1], np.uint64), values)
                    self.assertEqual(client.table(f"t{i}").describe().dtype, "f16")
                    client.drop_table(f"t{i}")

    def test_damaged_variables_are_refused(self):
        self.write()
        lr, name = ["--lr", 0.01], "model_user-parameter"
        last, state = f"{name}_mht_2of2_rank1_size2", f"{name}_DynamicEmbedding_keras_adam_lazy_build-shadow_m"
        for end, by in (("-keys", 8), ("-values", 16)):
            with open(self.path(last + end), "rb") as file:
                whole = file.read()
            self.cut(last + end, by)
            self.refused(f"{name}_mht_1of2_rank0_size2-values and those beside it: ", *lr)
            os.unlink(self.path(last + end))
            self.refused(f"{last}{end}: is missing", *lr)
            with open(self.path(last + end), "wb") as file:
                file.write(whole)
            self.replaced_by_fifo(last + end)
            self.refused(f"{last}{end}: is not a regular file", *lr)
            self.restore(last + end)
        path = self.path(f"{state}_mht_1of2_rank0_size2-keys")
        keys = np.fromfile(path, np.uint64)
        np.append(keys[:-1], np.uint64(77)).tofile(path)
        self.refused(f"row {len(keys) - 1} has key 77, which has no row in the table", *lr)
        np.append(keys[:-1], keys[0]).tofile(path)
        self.refused(f"row {len(keys) - 1} has key {keys[0]}, which row 0 of {path} has too", *lr)
        keys.tofile(path)
        os.rename(self.path(last + "-keys"), self.path(f"{name}_mht_3of3_rank1_size2-keys"))
        self.refused("is of 3 tables and 2 ranks, other files of", *lr)

    def test_names_of_states_are_told_and_refused_where_they_are_of_states(self):
        values = floats(1, len(KEYS), 4)
        for name in ("item", "item_m"):
            foreign.tfra(self.folder, name, [(KEYS, values)])
        for client, report in self.imported("--no-optimizer-state", "--lr", 0.1):
            self.assertEqual([t["table"] for t in report["import"]], ["item"])
            self.assertEqual([i["key"] for i in report["ignored"]],
                             ["'item_m': its name is that of the state m of 'item'; import it with --only"])
            client.drop_table("item")
        foreign.tfra(self.folder, "item_m_v", [(KEYS, values)])
        for skips in ([], ["--no-optimizer-state"]):
            self.refused("'item_m_v' has the name of a state of 'item_m', and that of a state of 'item'; choose", *skips,
                         code=REFUSED)
        for only in ("item", "item_m", "item_m_v"):
            for client, report in self.imported("--no-optimizer-state", "--only", only):
                self.check(client, only, KEYS, values)
                client.drop_table(only)

    def test_no_more_than_the_greatest_dim_is_read(self):
        foreign.tfra(self.folder, "wide", [(KEYS[:2], np.zeros((2, 5000), np.float32))])
        self.refused("40000 bytes for 2 keys, expected 1 to 4096 numbers of 4 bytes for each")


class Hkv(ForeignTest):
    def test_2h_files_of_one_and_several_gpus_come_with_counts_as_scores(self):
        values, counts = floats(1, len(KEYS), 3), np.arange(len(KEYS), dtype=np.uint64)
        foreign.hkv(self.folder, "one", KEYS, values, counts)
        for gpu in range(3):
            foreign.hkv(self.folder, f"many.{gpu}", KEYS[gpu::3], values[gpu::3], counts[gpu::3])
        for client, report in self.imported("--scores", "counts", "--on-full", "evict_lfu", "--capacity", 1000, "--dim", 3):
            self.assertEqual([(t["table"], t["gpus"]) for t in report["import"]], [("many", 3), ("one", 1)])
            for name in ("many", "one"):
                self.check(client, name, KEYS, values)
                np.testing.assert_array_equal(client.table(name).get(KEYS, states=True).states[:, 2], counts)
                client.drop_table(name)
        for client, report in self.imported("--format", "hkv", "--only", "many", "--table", "x"):
            self.check(client, "x", KEYS, values)
            self.assertEqual([i["key"] for i in report["ignored"]],
                             ["scores of 'many': they are neither counts nor steps of a table"])

    def test_damaged_files_are_refused(self):
        foreign.hkv(self.folder, "t.0", KEYS, floats(1, len(KEYS), 3), np.zeros(len(KEYS), np.uint64))
        foreign.hkv(self.folder, "t.2", KEYS, floats(1, len(KEYS), 3))
        self.refused("t.1.keys: is missing, t.2.keys is there")
        for ending in ("keys", "values"):
            os.rename(self.path(f"t.2.{ending}"), self.path(f"t.1.{ending}"))
        self.refused(f"t.1.keys: row 0 has key 0, which row 0 of {self.folder}/t.0.keys has too")
        (KEYS + np.uint64(1000)).tofile(self.path("t.1.keys"))
        counts = ["--scores", "counts", "--on-full", "evict_lfu", "--capacity", 1000]
        self.refused("t.1.scores: is missing", *counts)
        os.rename(self.path("t.0.scores"), self.path("t.1.scores"))
        self.refused("t.0.scores: is missing", *counts)
        os.rename(self.path("t.1.scores"), self.path("t.0.scores"))
        np.zeros(len(KEYS) - 1, np.uint64).tofile(self.path("t.1.scores"))
        self.refused("t.1.scores: has 2456 bytes, expected 2464 for the 308 keys of", *counts)
        self.cut("t.0.values", 12)
        with open(self.path("t.1.values"), "ab") as file:
            file.write(bytes(12))
        self.refused("t.0.values: has 3684 bytes, expected 3696 for the 308 keys of")
        self.replaced_by_fifo("t.0.values")
        self.refused("t.0.values: is not a regular file")


    def test_a_table_without_keys_is_missed_by_the_name_of_their_file(self):
        keys, values = KEYS.view(np.int64), floats(1, len(KEYS), 4)
        for kind, name, missing in (
                ("hkv", "b.values", "b.keys"), ("hkv", "b.2.scores", "b.2.keys"),
                ("tfra", "b_mht_1of1-values", "b_mht_1of1-keys"), ("tfra", "a_m_mht_1of1-values", "a_m_mht_1of1-keys"),
                ("dynamicemb", "b_emb_values.rank_0.world_size_1", "b_emb_keys.rank_0.world_size_1")):
            with self.subTest(kind=kind, name=name):
                shutil.rmtree(self.folder, ignore_errors=True)
                if kind == "hkv":
                    foreign.hkv(self.folder, "a", keys, values)
                elif kind == "tfra":
                    foreign.tfra(self.folder, "a", [(keys, values)], has_ranks=False)
                else:
                    foreign.dynamicemb(self.folder, "a", [{"keys": keys, "values": values}], {"opt_type": "sgd", "lr": 0.1})
                foreign.files(self.folder, {name: values})
                self.refused(f"{missing}: is missing, {name} is there")
                if name[0] == "b":
                    for client, _ in self.imported("--only", "a"):
                        self.check(client, "a", KEYS, values)
                        client.drop_table("a")

    def test_names_with_dashes_and_leading_zeros_are_names_of_tables(self):
        keys, values = KEYS.view(np.int64), floats(1, len(KEYS), 4)
        foreign.sok(self.folder, "a", keys, values)
        foreign.sok(self.folder, "a-b", keys, 2 * values, "Adam", m=values, v=values * values)
        for client, report in self.imported("--lr", "0.1"):
            self.check(client, "a", KEYS, values)
            self.check(client, "a-b", KEYS, 2 * values, np.hstack([values, values * values]))
            self.assertEqual(report["ignored"], [])
        shutil.rmtree(self.folder)
        foreign.hkv(self.folder, "x.00", keys, values)
        for client, _ in self.imported("--dim", "4"):
            self.check(client, "x_00", KEYS, values)

    def test_values_beyond_the_tables_dtype_are_refused(self):
        values = floats(1, len(KEYS), 3)
        values[-1, 2] = 70000
        foreign.hkv(self.folder, "t", KEYS, values)
        for client, _ in self.imported("--dtype", "bf16"):
            client.drop_table("t")
        self.refused(f"t.values: key {KEYS[-1]} has 70000 in column 2, which is infinite as f16, the dtype of table 't'",
                     "--dtype", "f16", code=REFUSED)
        shutil.rmtree(self.folder)
        foreign.tfra(self.folder, "u", [(KEYS[:9], values[:9]), (KEYS[9:], values[9:])])
        self.refused(f"u_mht_2of2_rank0_size1-values: key {KEYS[-1]} has 70000 in column 2", "--dtype", "f16", code=REFUSED)


class Usage(ForeignTest):
    def test_options_of_other_formats_are_named(self):
        foreign.hkv(self.folder, "t", KEYS, floats(1, len(KEYS), 3))
        for arguments in (["--gpus", 2], ["--prefix", "x"], ["--format", "hugectr", "--table", "t", "--only", "t"],
                          ["--format", "onnx"], ["--value-dtype", "i8"], ["--scores", "lru"], ["--keys", "i16"],
                          ["--job", "x"]):
            self.assertEqual(self.embctl(self.servers[0], *arguments).returncode, USAGE, arguments)
        foreign.sok(self.folder, "s", KEYS.astype(np.int64), floats(1, len(KEYS), 3))
        self.assertEqual(self.embctl(self.servers[0]).returncode, USAGE, "two formats are none")


if __name__ == "__main__":
    main()
