"""A network that does what networks do, between clients and one port: every piece of a stream may be delayed, split,
held up for longer than deadlines, or be the last one, in the midst of a frame; answers may get lost with their
connection; and what a client sent on a connection that broke may reach the server once more."""
import random
import socket
import threading
import time

PIECE = 4096


class Proxy:
    """Listens on `address` and forwards to `server`. `faults` maps a fault to its share of all pieces."""

    FAULTS = ("delay", "split", "stall", "cut", "drop_answers", "replay")

    def __init__(self, address, server, faults, seed=1):
        self.server, self.faults, self.random = server, faults, random.Random(seed)
        self.counts = dict.fromkeys(self.FAULTS, 0)
        self.is_open = True
        self.listener = socket.create_server(address, backlog=64)
        threading.Thread(target=self.accept, daemon=True).start()

    def close(self):
        self.is_open = False
        self.listener.close()

    def accept(self):
        while self.is_open:
            try:
                client, _ = self.listener.accept()
            except OSError:
                continue
            try:
                server = socket.create_connection(self.server)
            except OSError:
                client.close()
                continue
            Passage(self, client, server)

    def draw(self):
        """A fault, or none."""
        at = self.random.random()
        for fault, share in self.faults.items():
            if at < share:
                self.counts[fault] += 1
                return fault
            at -= share
        return None


class Passage:
    """One connection and its way on."""

    def __init__(self, proxy, client, server):
        self.proxy, self.client, self.server = proxy, client, server
        self.sent = bytearray()  # by the client, for a replay
        self.drops_answers = False
        self.n_running, self.lock = 2, threading.Lock()
        for source, to, is_request in ((client, server, True), (server, client, False)):
            threading.Thread(target=self.run, args=(source, to, is_request), daemon=True).start()

    def run(self, source, to, is_request):
        try:
            while data := source.recv(PIECE):
                if is_request:
                    self.sent += data
                if not self.forward(to, data, is_request):
                    break
        except OSError:
            pass
        self.end()
        with self.lock:
            self.n_running -= 1
            if self.n_running == 0:
                self.client.close()
                self.server.close()

    def end(self):
        for end in (self.client, self.server):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def forward(self, to, data, is_request):
        fault = self.proxy.draw()
        if fault == "delay":
            time.sleep(self.proxy.random.uniform(0, 0.03))
        elif fault == "stall":
            time.sleep(1.0)
        elif fault == "split":
            for at in range(len(data)):
                to.sendall(data[at:at + 1])
            return True
        elif fault == "cut":
            to.sendall(data[:self.proxy.random.randrange(len(data))])
            return False
        elif fault == "drop_answers":
            self.drops_answers = True
            threading.Timer(0.1, self.end).start()
        elif fault == "replay" and is_request:
            to.sendall(data)
            self.replay()
            return False
        if is_request or not self.drops_answers:
            to.sendall(data)
        return True

    def replay(self):
        """All that the client has sent, on another connection; what is answered is thrown away."""
        with socket.create_connection(self.proxy.server) as again:
            again.sendall(self.sent)
            again.shutdown(socket.SHUT_WR)
            while again.recv(1 << 16):
                pass
