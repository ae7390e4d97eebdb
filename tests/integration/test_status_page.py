"""The status page as a browser shows it: headless Chromium runs its script against a process that is at work."""
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unittest

from embd_process import Embd
from test_http import get, http_address
import wire

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SHOTS = os.environ.get("EMBD_SCREENSHOTS")  # a folder to keep the pictures in, for people


class Load(threading.Thread):
    """Pulls and pushes until stopped."""

    def __init__(self, server):
        super().__init__()
        self.server, self.ended = server, threading.Event()

    def run(self):
        with wire.connect(self.server) as first, wire.connect(self.server, 1) as second:
            peers = [(peer, wire.create(peer, "items", 8), wire.owned(512, shard, 2)) for shard, peer in enumerate((first, second))]
            while not self.ended.is_set():
                for peer, table, keys in peers:
                    wire.push(peer, table, keys, [0.5] * 8 * 512)
                    for _ in range(3):
                        wire.pull(peer, table, keys)


@unittest.skipUnless(CHROMIUM, "no Chromium is installed")
class StatusPage(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Embd("--http", "127.0.0.1:0", shards=2)
        cls.addClassCleanup(cls.server.stop)
        cls.address = http_address(cls.server)
        cls.load = Load(cls.server)
        cls.load.start()
        cls.addClassCleanup(cls.load.join)
        cls.addClassCleanup(cls.load.ended.set)

    def browse(self, *flags):
        with tempfile.TemporaryDirectory(prefix="embd-test-", ignore_cleanup_errors=True) as profile:
            result = subprocess.run(
                [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr",
                 f"--user-data-dir={profile}", "--virtual-time-budget=20000", *flags, f"http://{self.address}/"],
                capture_output=True, text=True, timeout=60, check=True, env={**os.environ, "HOME": profile})
        self.assertNotRegex(result.stderr, r"CONSOLE.*(Error|Refused)")
        return result.stdout

    def page_at_work(self):
        """The page and its cards. The browser's time is virtual: the last of its seconds may be over before a request came."""
        for _ in range(5):
            page = self.browse("--dump-dom").split("<script>")[0]
            cards = dict(re.findall(r"<b>([^<]*)</b><output>([^<]*)</output>", page))
            if re.search("[1-9]", cards["Requests a second"]):
                return page, cards
        self.fail("no second of the page had a request in it")

    def test_the_script_fills_every_part_of_the_page(self):
        page, cards = self.page_at_work()
        self.assertIn('<span id="state" class="good">ready</span>', page)
        self.assertEqual(len(cards), 18)
        self.assertEqual(cards["Rows"], "1.02 k")
        self.assertRegex(cards["Pull p99"], r"^[\d.]+ (µs|ms)$")
        self.assertIn("<td class=\"text\">items</td>", page)
        for address in self.server.addresses:
            self.assertIn(address, page)
        lines = re.findall(r'class="line" d="(M[^"]*L[^"]*)"', page)
        self.assertGreater(len(lines), 12, "sparklines have at least two points")
        self.assertNotRegex(page, r"NaN|undefined")

    def test_it_is_drawn_on_a_desk_on_a_phone_and_in_the_dark(self):
        for name, size, scheme in (("desk", "1200,1300", 1), ("phone", "500,1800", 1), ("dark", "1200,1300", 0)):
            with tempfile.TemporaryDirectory(prefix="embd-test-") as folder:
                path = os.path.join(SHOTS or folder, f"{name}.png")
                self.browse(f"--window-size={size}", f"--blink-settings=preferredColorScheme={scheme}",
                            f"--screenshot={path}")
                with open(path, "rb") as picture:
                    head = picture.read()
                self.assertTrue(head.startswith(b"\x89PNG"))
                self.assertGreater(len(head), 30000, "more than an empty page")

    def test_nothing_is_fetched_from_elsewhere(self):
        page = get(self.address, "/")[2]
        self.assertEqual(re.findall(r'(?:src|href)="([^"]*)"', page), ["/metrics", "/readyz?verbose", "/statusz.json"])
        self.assertEqual(set(re.findall(r"https?://[^\s\"'`]*", page)), {"http://www.w3.org/2000/svg"})


if __name__ == "__main__":
    unittest.main()
