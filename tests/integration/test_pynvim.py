"""An independent msgpack-rpc client works unchanged: python3-pynvim, Neovim's own, written by nobody here."""
import unittest

from pynvim.msgpack_rpc import tcp_session

from embd_process import Embd
import wire


class Pynvim(unittest.TestCase):
    def test_it_creates_a_table_pulls_pushes_and_reads_errors(self):
        with Embd() as server:
            session = tcp_session("127.0.0.1", server.port())
            table = session.request("table_create", {"schema": wire.constant_schema("items", dim=2)})[0]["id"]
            parts = {"parts": [{"table": table, "keys": 2}]}
            answer = session.request("pull", parts, wire.keys([3, 4]))
            self.assertEqual(wire.unfloats(answer[1]), [1.0, 1.0, 1.0, 1.0])
            pushed = session.request("push", parts, wire.keys([3, 3]), wire.floats([1.0, 2.0, 3.0, 4.0]))
            self.assertEqual(pushed[0]["parts"][0]["step"], 1)
            answer = session.request("pull", parts, wire.keys([3, 4]))
            self.assertEqual(wire.unfloats(answer[1]), [1 - 0.5 * 4, 1 - 0.5 * 6, 1.0, 1.0])
            # What the Nvim class of that package would set: how errors become exceptions.
            session.error_wrapper = lambda error: RuntimeError(f"{error[0]}: {error[1]}")
            with self.assertRaises(RuntimeError) as caught:
                session.request("no_such_method")
            self.assertIn("no_such_method", str(caught.exception))
            session.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
