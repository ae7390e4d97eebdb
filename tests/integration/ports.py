"""Free ports, for what has to be told its own, and for servers: whoever still calls one that has died reaches no other test's."""
import collections
import random
import socket

_marks = []  # a UDP socket of each number, for as long as this process is there: no other one is given it
_recent = collections.deque()  # of the servers that were started last
MOST_RECENT = 256
MOST_SHARDS = 16


def _are_free(hosts, port):
    try:
        for host in hosts:
            socket.create_server((host, port)).close()
        return True
    except OSError:
        return False


def _mark(port, marks):
    mark = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        mark.bind(("127.0.0.1", port))
    except OSError:
        mark.close()
        return False
    marks.append(mark)
    return True


def server_port(shards):
    """Of a server's first shard, the others behind it; 0 for more shards than a few: the system chooses."""
    while len(_recent) > MOST_RECENT:
        _recent.popleft().close()
    return free_ports(shards, marks=_recent) if shards <= MOST_SHARDS else 0


def free_ports(n, hosts=("127.0.0.1",), more=(0,), marks=_marks):
    """The first of n ports in a row that nobody has on these hosts, nor n from each of `more` numbers further on. They
    are below those that systems give to connections, and no test is given one of them while this process is there."""
    while True:
        first = random.SystemRandom().randrange(12000, 32000 - max(more) - n)
        ports = [first + i + further for further in more for i in range(n)]
        if all(_mark(port, marks) and _are_free(hosts, port) for port in ports):
            return first
