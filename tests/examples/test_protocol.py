"""proto/PROTOCOL.md shows a whole client in Python: it runs as it stands there, against a server of one shard."""

import sys

from blocks import ROOT, of_page

sys.path.insert(0, str(ROOT / "tests/integration"))
from embd_process import Embd  # noqa: E402


def main():
    clients = [block for block in of_page(ROOT / "proto/PROTOCOL.md") if block.language == "python"]
    assert len(clients) == 1, [block.where for block in clients]
    address = 'Shard("127.0.0.1", 7700)'
    assert address in clients[0].text, f"{clients[0].where}: no {address} to replace"
    server = Embd(shards=1)
    try:
        host, port = server.addresses[0].rsplit(":", 1)
        page = {}
        exec(compile(clients[0].text.replace(address, f'Shard("{host}", {port})'), clients[0].where, "exec"), page)
        page["shard"].socket.close()
    finally:
        assert server.stop() == 0


if __name__ == "__main__":
    main()
