"""Learning rates of tables under torch.optim.lr_scheduler: the rows are those of torch.nn.EmbeddingBag(sparse=True) with
the same scheduler over torch.optim's optimizer. Warnings are errors, because schedulers warn where they are misused."""
import copy
import io
import itertools
import unittest
import warnings

import numpy as np

try:
    import torch
    import embd.torch
    from torch.optim import lr_scheduler
except ImportError:
    torch = None

import clusters
import embd

ROWS, DIM, STEPS = 30, 5, 50
LRS = {"sgd": 0.5, "adagrad": 0.1, "adam": 0.01}
SMALL = embd.Initializer("uniform", -0.5, 0.5)


def optimizer_of(kind, lr):
    return embd.Optimizer(kind, lr=lr, **({} if kind == "sgd" else {"eps": 1e-7}))


def torch_optimizer(kind, parameters, lr):
    if kind == "sgd":
        return torch.optim.SGD(parameters, lr=lr)
    if kind == "adagrad":
        return torch.optim.Adagrad(parameters, lr=lr, eps=1e-7)
    return torch.optim.SparseAdam(list(parameters), lr=lr, eps=1e-7)


def warm_up(optimizer):
    first = lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=10)
    return lr_scheduler.SequentialLR(optimizer, [first, lr_scheduler.ExponentialLR(optimizer, 0.9)], milestones=[10])


def schedules():
    return {
        "LambdaLR, which begins with 0": lambda o: lr_scheduler.LambdaLR(o, lambda t: t / 10 if t < 10 else 10 / t),
        "StepLR": lambda o: lr_scheduler.StepLR(o, step_size=7, gamma=0.5),
        "CosineAnnealingLR, which comes to 0": lambda o: lr_scheduler.CosineAnnealingLR(o, T_max=20),
        "OneCycleLR": lambda o: lr_scheduler.OneCycleLR(o, max_lr=o.param_groups[0]["lr"], total_steps=STEPS + 1,
                                                        cycle_momentum=False),
        "SequentialLR": warm_up,
        "ReduceLROnPlateau": lambda o: lr_scheduler.ReduceLROnPlateau(o, factor=0.5, patience=3),
    }


def batch(seed):
    random = np.random.default_rng(seed)
    keys = torch.from_numpy(random.integers(0, ROWS, 40))
    return keys, torch.arange(0, 40, 4), torch.from_numpy(random.standard_normal((10, DIM)).astype(np.float32))


class ScheduleTest(clusters.ClusterTest):
    def setUp(self):
        if torch is None:
            self.skipTest("PyTorch is not installed: deploy/deps.sh --torch")
        super().setUp()
        self.numbers = itertools.count()
        catcher = warnings.catch_warnings()
        catcher.__enter__()
        self.addCleanup(catcher.__exit__, None, None, None)
        warnings.simplefilter("error")
        # SequentialLR of PyTorch 1.13 itself calls step() in a way that it warns of
        warnings.filterwarnings("ignore", "The epoch parameter in", UserWarning)
        warnings.filterwarnings("ignore", "Sparse invariant checks", UserWarning)  # of torch.optim.Adagrad itself

    def bag(self, kind="sgd", lr=None, client=None, name=None, **options):
        return embd.torch.EmbeddingBag(ROWS, DIM, mode="sum", client=client or self.client,
                                       name=name or f"t{next(self.numbers)}", initializer=SMALL,
                                       optimizer=optimizer_of(kind, lr or LRS[kind]), **options)

    def twin(self, bag):
        return torch.nn.EmbeddingBag(ROWS, DIM, mode="sum", sparse=True, _weight=bag.weight.clone())

    def steps_of(self, bag):
        bag.flush()
        return self.client.stats()[0].tables[bag.table.name]["steps"]


class Schedules(ScheduleTest):
    def train(self, kind, make):
        bag = self.bag(kind)
        twin = self.twin(bag)
        mine, theirs = embd.torch.optimizer(bag), torch_optimizer(kind, twin.parameters(), LRS[kind])
        plans = [make(mine), make(theirs)]
        seen = set()
        for step in range(STEPS):
            keys, offsets, gradient = batch(step)
            self.assertEqual(mine.param_groups[0]["lr"], theirs.param_groups[0]["lr"])
            seen.add(mine.param_groups[0]["lr"])
            for module, optimizer, plan in ((bag, mine, plans[0]), (twin, theirs, plans[1])):
                optimizer.zero_grad()
                module(keys, offsets).backward(gradient)
                optimizer.step()
                plan.step(*([1.0] if isinstance(plan, lr_scheduler.ReduceLROnPlateau) else []))
        self.assertGreater(len(seen), 4)
        torch.testing.assert_close(bag.weight, twin.weight.detach(), rtol=1e-6, atol=1e-6)

    def test_rows_are_those_of_torch_nn_with_the_same_schedule(self):
        for (name, make), kind in itertools.product(schedules().items(), LRS):
            with self.subTest(name, kind=kind):
                self.train(kind, make)

    def test_a_schedule_needs_no_step_of_the_optimizer(self):
        bag = self.bag(lr=1.0)
        before = bag.weight
        rates = embd.torch.optimizer(torch.nn.Sequential(bag))
        schedule = lr_scheduler.StepLR(rates, step_size=1, gamma=0.5)
        for _ in range(3):
            bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
            schedule.step()
        torch.testing.assert_close(bag.weight[7], before[7] - 1.75)

    def test_pushes_of_every_kind_carry_the_rate_of_their_time(self):
        bag = self.bag(lr=1.0)
        before, rates = bag.weight, embd.torch.optimizer(bag)
        one = (torch.tensor([7]), torch.tensor([0]))

        def ahead():
            for _, ticket in embd.torch.ahead(range(2), lambda _: bag.prefetch(*one)):
                bag(ticket).sum().backward()

        def held():
            with embd.torch.accumulate(bag):
                bag(*one).sum().backward()
                bag(*one).sum().backward()

        for lr, push in ((0.5, ahead), (0.25, held), (1.0, held)):
            rates.param_groups[0]["lr"] = lr
            push()
        torch.testing.assert_close(bag.weight[7], before[7] - (1.0 + 0.5 + 2.0))
        self.assertEqual(self.steps_of(bag), 4)

    def test_workers_in_step_share_a_schedule(self):
        clients = [embd.connect(self.server.addresses[0], own_thread=True) for _ in range(2)]
        for client in clients:
            self.addCleanup(client.close)
        ours = [self.bag(lr=1.0, client=client, name="shared") for client in clients]
        before = ours[0].weight
        plans = [lr_scheduler.ExponentialLR(embd.torch.optimizer(bag), 0.5) for bag in ours]
        clocks = [embd.Clock(client, "job", worker=w, workers=2) for w, client in enumerate(clients)]
        for bag, clock in zip(ours, clocks):
            embd.torch.synchronous(bag, clock)
        for _ in range(4):
            for bag in ours:
                bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
            for bag, plan, clock in zip(ours, plans, clocks):
                bag.flush()
                plan.step()
                clock.tick()
        torch.testing.assert_close(ours[1].weight[7], before[7] - 1.875)


class SchedulesOnThreeShards(Schedules):
    shards = 3


class Rates(ScheduleTest):
    def lrs_sent(self, *models):
        """What parts of pushes have for lr, from now on."""
        sent = []
        for source in {source for model in models for source in embd.torch.rates.sources_of(model)}:
            start = source.client.push_start

            def push_start(parts, start=start, **options):
                sent.extend((part.table.name, part.lr) for part in parts)
                return start(parts, **options)

            source.client.push_start = push_start
        return sent

    def test_there_is_one_for_each_table(self):
        a, b = self.bag("sgd", name="a"), self.bag("adam", name="b")
        more = embd.torch.EmbeddingBagCollection(
            [embd.torch.EmbeddingBagConfig(None, DIM, "c", feature_names=["x", "y"], optimizer=optimizer_of("adagrad", 0.125)),
             embd.torch.EmbeddingBagConfig(None, DIM, "a", feature_names=["z"], optimizer=optimizer_of("sgd", 0.5))],
            client=self.client, initializer=SMALL)
        rates = embd.torch.optimizer(torch.nn.ModuleList([a, b]), more)
        self.assertEqual([group["name"] for group in rates.param_groups], ["a", "b", "c"])
        for group, lr in zip(rates.param_groups, (0.5, 0.01, 0.125)):
            self.assertEqual((group["lr"], group["initial_lr"], group["params"]), (lr, lr, []))
        rates.param_groups[2]["lr"] = 0.25
        sent = self.lrs_sent(more)
        lengths = torch.ones(3, dtype=torch.int64)
        sum(out.sum() for out in more(["x", "y", "z"], torch.arange(3), lengths).values()).backward()
        self.assertEqual(sorted(sent), [("a", None), ("c", 0.25)])

    def test_a_rate_that_nobody_changed_is_not_sent(self):
        bag = self.bag("adagrad")
        rates, sent = embd.torch.optimizer(bag), self.lrs_sent(bag)
        for lr in (None, 0.3, 0.1):
            if lr is not None:
                rates.param_groups[0]["lr"] = lr
            bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
        self.assertEqual(sent, [(bag.table.name, lr) for lr in (None, 0.3, None)])

    def test_a_rate_of_0_moves_nothing_and_counts_as_a_step(self):
        bag = self.bag("adam")
        before, rates = bag.weight, embd.torch.optimizer(bag)
        rates.param_groups[0]["lr"] = 0.0
        bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
        self.assertTrue(torch.equal(bag.weight, before))
        self.assertEqual(self.steps_of(bag), 1)
        ftrl = self.bag("ftrl", lr=0.1)
        embd.torch.optimizer(ftrl).param_groups[0]["lr"] = 0.0
        with self.assertRaisesRegex(ValueError, "ftrl"):
            ftrl(torch.tensor([7]), torch.tensor([0])).sum().backward()

    def test_a_rate_that_is_none_is_refused_by_backward(self):
        bag = self.bag()
        rates = embd.torch.optimizer(bag)
        for bad in (-1.0, float("nan"), float("inf")):
            rates.param_groups[0]["lr"] = bad
            with self.assertRaisesRegex(ValueError, "lr is"):
                bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
        self.assertEqual(self.steps_of(bag), 0)

    def test_the_state_of_a_schedule_is_saved_and_goes_on(self):
        bag = self.bag(lr=1.0)
        rates = embd.torch.optimizer(bag)
        schedule = lr_scheduler.CosineAnnealingLR(rates, T_max=10)
        for _ in range(4):
            bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
            schedule.step()
        file = io.BytesIO()
        torch.save([rates.state_dict(), schedule.state_dict()], file)
        file.seek(0)
        states = torch.load(file)
        rates2 = embd.torch.optimizer(bag)
        schedule2 = lr_scheduler.CosineAnnealingLR(rates2, T_max=10)
        rates2.load_state_dict(copy.deepcopy(states[0]))
        schedule2.load_state_dict(states[1])
        self.assertEqual(rates2.param_groups[0]["lr"], rates.param_groups[0]["lr"])
        sent = self.lrs_sent(bag)
        for each in (rates, rates2):  # the newer one is the module's
            each.param_groups[0]["lr"] *= 1.0 if each is rates2 else 7.0
        bag(torch.tensor([7]), torch.tensor([0])).sum().backward()
        self.assertEqual(sent, [(bag.table.name, rates2.param_groups[0]["lr"])])
        with self.assertRaisesRegex(ValueError, "other"):
            embd.torch.optimizer(self.bag(name="other")).load_state_dict(states[0])

    def test_mistakes_are_named(self):
        with self.assertRaisesRegex(ValueError, "no module of embd.torch"):
            embd.torch.optimizer(torch.nn.Linear(2, 2))
        rates = embd.torch.optimizer(self.bag())
        with self.assertRaisesRegex(ValueError, "cycle_momentum"):
            lr_scheduler.OneCycleLR(rates, max_lr=0.1, total_steps=5)
        self.assertEqual(rates.step(lambda: 7), 7)


class Frozen(ScheduleTest):
    def test_frozen_modules_push_nothing(self):
        collection = embd.torch.EmbeddingBagCollection([embd.torch.EmbeddingBagConfig(ROWS, DIM, "c", feature_names=["x"])],
                                                       client=self.client)
        bag, rows = self.bag(name="bag"), embd.torch.Embedding(ROWS, DIM, client=self.client, name="rows")
        dense = torch.nn.Linear(DIM, 1)
        one, offset = torch.tensor([7]), torch.tensor([0])

        def steps_after_a_pass():
            outs = [bag(one, offset), rows(one), collection(["x"], one, torch.tensor([1]))["x"]]
            dense(sum(outs)).sum().backward()
            for module in (bag, rows, collection):
                module.flush()
            tables = self.client.stats()[0].tables
            return [tables[name]["steps"] for name in ("bag", "rows", "c")]

        self.assertEqual(steps_after_a_pass(), [1, 1, 1])
        for module in (bag, rows, collection):
            self.assertIs(module.requires_grad_(False), module)
        self.assertFalse(bag(one, offset).requires_grad)
        self.assertEqual(steps_after_a_pass(), [1, 1, 1])
        for module in (bag, rows, collection):
            module.requires_grad_()
        self.assertEqual(steps_after_a_pass(), [2, 2, 2])


if __name__ == "__main__":
    clusters.main()
