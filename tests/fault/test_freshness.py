"""How fresh a replica is: each record that it takes counts in a histogram with the time from its acknowledgement by the server until
the replica had it. No record was there later than the histogram says, whoever stood still meanwhile."""
import re
import time
import unittest
import urllib.request

import wire
from embd_process import Embd
from ports import free_ports
from test_follow import embctl, wait_for
from test_replicas import PLACES, Replica
from test_replicas_anew import Between

NAME = "embd_follow_freshness_seconds"


def histogram(server):
    """{upper bound in seconds: records up to it} of its shard 0; {}: there is none."""
    with urllib.request.urlopen(f"http://{server.http}/metrics", timeout=20) as answer:
        text = answer.read().decode()
    found = re.findall(rf'^{NAME}_bucket{{shard="0",le="(\S+)"}} (\d+)$', text, flags=re.M)
    return {float(bound): int(n) for bound, n in found}


def counted(server):
    return histogram(server).get(float("inf"), 0)


def later_than(server, seconds):
    """Records that were there later than that, as the histogram says."""
    got = histogram(server)
    return counted(server) - max(n for bound, n in got.items() if bound <= seconds)


class Freshness(Replica):
    def begin(self):
        """A server with the table, its replica, and who is between them and can hold questions back."""
        primary = self.start_primary()
        with wire.connect(primary) as peer:
            table = wire.create(peer, "a", durability="buffered")
            for _ in range(40):
                wire.push(peer, table, PLACES, [0.0] * 4 * len(PLACES))
        between = Between(self.path("between.sock"), primary)
        between.start()
        self.addCleanup(between.server.close)
        replica = self.start_one()
        self.compare(primary, replica)
        return primary, replica, table, between

    def start_one(self):
        http = f"127.0.0.1:{free_ports(1)}"
        replica = self.start("follower", self.own, "--follow", self.path("between.sock"), "--serve", "yes", "--http", http, waits=False)
        replica.http = http
        return replica

    def push(self, primary, table, n=1):
        with wire.connect(primary) as peer:
            for _ in range(n):
                wire.push(peer, table, [1], [-2.0] * 4)

    def wait_count(self, replica, n):
        wait_for(lambda: counted(replica) >= n, replica.log)
        self.assertEqual(counted(replica), n)

    def test_each_push_behind_the_base_counts_once(self):
        primary, replica, table, _ = self.begin()
        self.assertEqual(counted(replica), 0)  # nobody read it before these were there
        for n in (1, 2, 40):
            self.push(primary, table, n - counted(replica))
            self.wait_count(replica, n)
        ran = embctl(replica, "stats").stdout
        self.assertRegex(ran, r"follow_freshness_p99 +\d")
        self.assertEqual(histogram(replica)[float("inf")], 40)
        replica.kill()  # what it has comes again, and is compared with it
        replica = self.start_one()
        self.compare(primary, replica)
        self.assertEqual(counted(replica), 0)
        self.push(primary, table, 3)
        self.wait_count(replica, 3)

    def test_a_server_that_follows_nobody_has_none(self):
        http = f"127.0.0.1:{free_ports(1)}"
        with Embd("--http", http, shards=1) as server:
            server.http = http
            self.assertEqual(histogram(server), {})

    def test_a_replica_that_stood_still_says_how_late_its_rows_were(self):
        primary, replica, table, _ = self.begin()
        replica.pause()
        self.push(primary, table, 5)
        time.sleep(1.6)
        replica.go_on()
        self.wait_count(replica, 5)
        self.assertEqual(later_than(replica, 1.5), 5)  # le="1.07..."

    def test_a_question_that_came_late_tells_how_old_the_records_are(self):
        primary, replica, table, between = self.begin()
        between.passes.clear()
        time.sleep(0.3)  # the question on its way is answered: there is nothing
        self.push(primary, table, 5)
        time.sleep(1.6)
        between.passes.set()
        self.wait_count(replica, 5)
        self.assertEqual(later_than(replica, 1.5), 5)

    def test_records_from_before_the_servers_start_count_as_late_as_can_be(self):
        primary, replica, table, between = self.begin()
        between.passes.clear()
        time.sleep(0.3)
        self.push(primary, table, 5)
        primary.kill()
        primary = self.start_primary()
        between.passes.set()
        wait_for(lambda: counted(replica) >= 5, replica.log)
        self.push(primary, table)
        wait_for(lambda: counted(replica) >= 6, replica.log)
        self.assertEqual(later_than(replica, 68), 5)  # and this one came behind the start


if __name__ == "__main__":
    unittest.main()
