"""Clients whose pushes can be told apart afterwards, and what a table must hold after a crash.

Rows begin at zero; sgd with lr 1. Two writers meet on each key: the n-th push of writer w adds 1 to lane 0, n mod 1021 to
lane 1 and w to lane 2. So lanes 0 and 2 tell how many pushes of either were applied, and lane 1 that they were the first so
many, each once. After MOST pushes a writer takes another key: all sums are integers below 2^24, so floats are exact."""
import bisect
import struct
import threading
import time

import wire

TABLE = "fault"
MODULUS = 1021
WRITERS = (1, 2)
MOST = 16000


SUMS = [0.0]


class LostPush(Exception):
    pass


def gradient(n, writer):
    """Of a writer's n-th push of a key."""
    return [-1.0, -float(n % MODULUS), -float(writer), 0.0]


def expected(n):
    """Lane 1 after n pushes: the sum as floats add up, which from 2^24 on is not exact."""
    while len(SUMS) <= n:
        SUMS.append(struct.unpack("f", struct.pack("f", SUMS[-1] + len(SUMS) % MODULUS))[0])
    return SUMS[n]


def counts(lanes, bounds):
    """{writer: pushes} that a row holds. `bounds`: {writer: (acknowledged, sent)}. Raises unless they are all that were
    acknowledged, nothing that was not sent, and each once."""
    both, ordered, named = lanes[:3]
    found = dict(zip(WRITERS, (int(2 * both - named), int(named - both))))
    for writer, n in found.items():
        least, most = bounds.get(writer, (0, 0))
        if not least <= n <= most:
            raise LostPush(f"writer {writer}: {least} acknowledged, {most} sent, and {n} in {lanes}")
    if lanes[3] != 0 or ordered != sum(expected(n) for n in found.values()):
        raise LostPush(f"{found} pushes of each writer, and {lanes}: some are not the first, or are there twice")
    return found


class Client(threading.Thread):
    """Pushes to one shard, as one writer, until the connection ends. `place` is (shard, key, writer); the next key is
    `stride` further. `acked` counts answers, by place; one more may have been applied. `times` says of each answer since the
    start when it was there."""

    def __init__(self, server, place, shards, stride, n, durability, more):
        super().__init__(daemon=True)
        self.wire = wire.connect(server, place[0])
        self.table = create(self.wire, durability)
        self.place, self.stride, self.wrong = place, stride, None
        self.before, self.acked, self.sent, self.times = {place: n}, {place: n}, {place: n}, {place: []}
        self.others = [key for key in range(10**6, 10**6 + more * shards) if key % shards == place[0]]

    def run(self):
        try:
            while True:
                self.push()
        except (OSError, TypeError):  # reset, or the end of the stream
            pass
        except wire.RpcError as error:
            self.wrong = error
        finally:
            self.wire.close()

    def push(self):
        shard, key, writer = self.place
        n = self.sent[self.place] = self.sent[self.place] + 1
        wire.push(self.wire, self.table, [key, *self.others], gradient(n, writer) + [0.0] * 4 * len(self.others))
        self.acked[self.place] = n
        self.times[self.place].append(time.monotonic())
        if n == MOST:
            self.place = shard, key + self.stride, writer
            self.times[self.place], self.before[self.place], self.sent[self.place] = [], 0, 0

    def answered(self, place, by):
        """Pushes acknowledged by that time."""
        return self.before[place] + bisect.bisect_right(self.times[place], by)


def create(connection, durability):
    schema = {"name": TABLE, "dim": 4, "combiner": "concat", "partition": "modulo", "optimizer": {"kind": "sgd", "lr": 1.0},
              "initializer": {"kind": "constant", "a": 0.0}, "durability": durability}
    return connection.call("table_create", {"schema": schema})[0]["id"]


class Clients:
    """`n` for each shard; what they know outlives the servers. Their pushes bring gradients of zero for `more` keys."""

    def __init__(self, shards, n, durability, more=0):
        self.durability, self.more, self.shards, self.stride = durability, more, shards, shards * n
        self.places = [(shard, shard + shards * (i // len(WRITERS)), WRITERS[i % len(WRITERS)])
                       for shard in range(shards) for i in range(n)]
        self.acked = dict.fromkeys(self.places, 0)
        self.sent = dict.fromkeys(self.places, 0)
        self.running = []
        self.cut = None  # when the power went, where that is known
        self.ended = []  # the clients of the run before
        self.oldest_lost = 0.0  # seconds before `cut` that something lost was acknowledged
        self.n_lost = 0

    def start(self, server):
        """Checks what the server has, then pushes go on from there."""
        found = self.check_all(server)
        self.running = [Client(server, place, self.shards, self.stride, found[place], self.durability, self.more)
                        for place in self.places]
        for client in self.running:
            client.start()

    def note(self):
        """What is acknowledged now, or was when the clients ended."""
        for client in self.running or self.ended:
            self.acked.update(client.acked)

    def note_before(self, cut, seconds):
        """What was acknowledged so long before the power went; the clients have ended."""
        self.cut = cut
        for client in self.ended:
            self.acked.update({place: client.answered(place, cut - seconds) for place in client.times})

    def note_lost(self, place, n):
        """Of the pushes that were acknowledged before the power went."""
        for client in self.ended:
            if place in client.times and n < client.answered(place, self.cut):
                first = client.times[place][max(n - client.before[place], 0)]
                self.oldest_lost = max(self.oldest_lost, self.cut - first)
                self.n_lost += client.answered(place, self.cut) - n

    def join(self, may_be_refused=False):
        """A disk that is gone may refuse pushes before the server is."""
        for client in self.running:
            client.join(20)
            assert not client.is_alive(), f"client of {client.place} hangs"
            assert client.wrong is None or may_be_refused, f"client of {client.place}: {client.wrong}"
            self.sent.update(client.sent)
        self.places = [client.place for client in self.running] or self.places
        self.ended, self.running = self.running, []

    def rows(self):
        """(shard, key) of all that was pushed to."""
        return sorted({place[:2] for place in self.sent})

    def bounds(self, row, acked=None):
        """What a row may hold, of what was `acked`: by now, where that is not given."""
        acked = self.acked if acked is None else acked
        return {writer: (acked.get((*row, writer), 0), self.sent.get((*row, writer), 0)) for writer in WRITERS}

    def check(self, server, row):
        """{place: pushes that the table holds of it}. Raises unless they are what must be there, and each once."""
        with wire.connect(server, row[0]) as connection:
            lanes = wire.pull(connection, create(connection, self.durability), [row[1]])
        found = {(*row, writer): n for writer, n in counts(lanes, self.bounds(row)).items()}
        if self.cut is not None:
            for place, n in found.items():
                self.note_lost(place, n)
        return found

    def check_all(self, server):
        return {place: n for row in self.rows() for place, n in self.check(server, row).items()}

    def total(self):
        return sum(self.acked.values())
