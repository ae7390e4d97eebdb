"""Clients whose pushes can be told apart afterwards, and what a table must hold after a crash.

Rows begin at zero; sgd with lr 1. Each client owns one key of each shard, and its n-th push of that key adds 1 to
lane 0 and n mod 1021 to lane 1: lane 0 counts what was applied, lane 1 says that it was the first so many, each
once. All values are integers below 2^24, so floats are exact."""
import bisect
import struct
import threading
import time

import wire

TABLE = "fault"
MODULUS = 1021


SUMS = [0.0]


def expected(n):
    """Lane 1 after n pushes: the sum as floats add up, which from 2^24 on is not exact."""
    while len(SUMS) <= n:
        SUMS.append(struct.unpack("f", struct.pack("f", SUMS[-1] + len(SUMS) % MODULUS))[0])
    return SUMS[n]


class Client(threading.Thread):
    """Pushes to one shard until the connection ends. `acked` counts answers; one more may have been applied.
    `times` says of each answer since the start when it was there."""

    def __init__(self, server, shard, key, done, durability, more):
        super().__init__(daemon=True)
        self.wire = wire.connect(server, shard)
        self.table = create(self.wire, durability)
        self.key, self.done, self.acked, self.sent, self.wrong = key, done, done, done, None
        self.times = []
        self.others = list(range(10**6, 10**6 + more))

    def run(self):
        try:
            while True:
                self.sent += 1
                wire.push(self.wire, self.table, [self.key, *self.others],
                          [-1.0, -float(self.sent % MODULUS), 0.0, 0.0] + [0.0] * 4 * len(self.others))
                self.acked += 1
                self.times.append(time.monotonic())
        except (OSError, TypeError):  # reset, or the end of the stream
            pass
        except wire.RpcError as error:
            self.wrong = error
        finally:
            self.wire.close()


def create(connection, durability):
    schema = {"name": TABLE, "dim": 4, "combiner": "concat", "partition": "modulo", "optimizer": {"kind": "sgd", "lr": 1.0},
              "initializer": {"kind": "constant", "a": 0.0}, "durability": durability}
    return connection.call("table_create", {"schema": schema})[0]["id"]


class Clients:
    """`n` for each shard; what they know outlives the servers. Their pushes bring gradients of zero for `more` keys."""

    def __init__(self, shards, n, durability, more=0):
        self.durability, self.more = durability, more
        self.keys = [(shard, shard + shards * i) for shard in range(shards) for i in range(n)]
        self.acked = dict.fromkeys(self.keys, 0)
        self.sent = dict.fromkeys(self.keys, 0)
        self.running = {}
        self.cut = None  # when the power went, where that is known
        self.ended = {}  # the clients of the run before
        self.oldest_lost = 0.0  # seconds before `cut` that something lost was acknowledged
        self.n_lost = 0

    def start(self, server):
        """Checks what the server has, then pushes go on from there."""
        found = {place: self.check(server, place) for place in self.keys}
        self.running = {place: Client(server, *place, n, self.durability, self.more) for place, n in found.items()}
        for client in self.running.values():
            client.start()

    def note(self):
        """What is acknowledged now."""
        for place, client in self.running.items():
            self.acked[place] = client.acked

    def note_before(self, cut, seconds):
        """What was acknowledged so long before the power went; the clients have ended."""
        self.cut = cut
        for place, client in self.ended.items():
            self.acked[place] = client.done + bisect.bisect_right(client.times, cut - seconds)

    def note_lost(self, place, n):
        """Of the pushes that were acknowledged before the power went."""
        client = self.ended.get(place)
        if client is None or n >= client.done + bisect.bisect_right(client.times, self.cut):
            return
        self.oldest_lost = max(self.oldest_lost, self.cut - client.times[max(n - client.done, 0)])
        self.n_lost += client.done + bisect.bisect_right(client.times, self.cut) - n

    def join(self, may_be_refused=False):
        """A disk that is gone may refuse pushes before the server is."""
        for place, client in self.running.items():
            client.join(20)
            assert not client.is_alive(), f"client of {place} hangs"
            assert client.wrong is None or may_be_refused, f"client of {place}: {client.wrong}"
            self.sent[place] = client.sent
        self.ended, self.running = self.running, {}

    def check(self, server, place):
        """Pushes of this key the table holds. Raises unless they are all that were acknowledged, and each once."""
        shard, key = place
        with wire.connect(server, shard) as connection:
            table = create(connection, self.durability)
            lanes = wire.pull(connection, table, [key])
        n = int(lanes[0])
        if self.cut is not None:
            self.note_lost(place, n)
        if not self.acked[place] <= n <= self.sent[place] or lanes[1] != expected(n):
            raise LostPush(f"key {key}: {self.acked[place]} acknowledged, {self.sent[place]} sent, found {lanes}, "
                           f"lane 1 of {n} pushes is {expected(n)}")
        return n

    def total(self):
        return sum(self.acked.values())


class LostPush(Exception):
    pass
