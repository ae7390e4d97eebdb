"""What deploy/ says to Prometheus and Grafana: the rules are sound, and every metric they name is there in a process."""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.join(HERE, "..", "..", "deploy")
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from embd_process import Embd  # noqa: E402
from test_http import get, http_address, use  # noqa: E402

PROMTOOL = shutil.which("promtool")


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def run_help():
    return subprocess.run([os.path.join(os.environ["EMBD_BIN"], "embctl"), "--help"], capture_output=True, text=True, timeout=20,
                          check=True).stdout


def promtool(*arguments):
    return subprocess.run([PROMTOOL, *arguments], capture_output=True, text=True, timeout=200, check=False,
                          cwd=os.path.join(DEPLOY, "prometheus"))


def alerts():
    """{name: rule}."""
    return {rule["alert"]: rule for group in yaml.safe_load(read("prometheus", "alerts.yaml"))["groups"] for rule in group["rules"]}


def sections(text):
    """{heading: what is under it} of a page."""
    parts = re.split(r"^## (.*)$", text, flags=re.M)
    return dict(zip(parts[1::2], parts[2::2]))


def dashboard_targets():
    for panel in json.loads(read("grafana", "embd.json"))["panels"]:
        for target in panel["targets"]:
            yield panel["title"], target["expr"]


def backup_figures(server, directory):
    """What embctl leaves for Prometheus."""
    place, file = os.path.join(directory, "backups"), os.path.join(directory, "backup.prom")
    run = subprocess.Popen([os.path.join(os.environ["EMBD_BIN"], "embctl"), "backup", "--to", place, "--figures", file, "--every", "60"],
                           env={**os.environ, "EMBD_SERVERS": server.addresses[0]}, stdout=subprocess.PIPE, text=True)
    run.stdout.readline()
    run.terminate()
    run.communicate(timeout=60)
    with open(file, encoding="utf-8") as figures:
        return figures.read()


def follower_figures(server):
    with tempfile.TemporaryDirectory(prefix="embd-test-") as data, \
            Embd("--http", "127.0.0.1:0", "--data-dir", data, "--follow", server.admin_path(0), shards=2, waits=False) as follower:
        return get(http_address(follower), "/metrics")[2]


class Monitoring(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory(prefix="embd-test-") as data, \
                Embd("--http", "127.0.0.1:0", "--data-dir", data, shards=2) as server:
            address = http_address(server)
            use(server)
            text = get(address, "/metrics")[2] + backup_figures(server, data) + follower_figures(server)
        cls.metrics = {line.split("{")[0].split(" ")[0] for line in text.splitlines() if line and line[0] != "#"}
        cls.labels = {}
        for line in text.splitlines():
            if "{" in line:
                cls.labels.setdefault(line.split("{")[0], set()).update(re.findall(r'(\w+)="', line))

    def test_every_metric_that_is_named_is_there(self):
        texts = {"alerts.yaml": read("prometheus", "alerts.yaml"), "alerts_test.yaml": read("prometheus", "alerts_test.yaml"),
                 "embd.json": " ".join(expr for _, expr in dashboard_targets())}
        for file, text in texts.items():
            named = set(re.findall(r"\bembd_[a-z_]+\b", text))
            self.assertGreater(len(named), 5)
            self.assertEqual(named - self.metrics, set(), file)

    def test_labels_that_are_summed_by_are_there(self):
        for title, expr in dashboard_targets():
            for by, metric in re.findall(r"sum by \((\w+)\) \(\w*\(?(embd_\w+)", expr):
                self.assertIn(by, self.labels[metric], title)

    def test_panels_do_not_overlap_and_have_targets(self):
        places = set()
        for panel in json.loads(read("grafana", "embd.json"))["panels"]:
            self.assertTrue(panel["targets"] and panel["title"])
            at = panel["gridPos"]
            cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
            self.assertFalse(cells & places, panel["title"])
            self.assertLessEqual(at["x"] + at["w"], 24)
            places |= cells

    def test_each_alert_has_a_section_of_the_runbook_and_links_to_it(self):
        page = sections(read("runbook.md"))
        rules = alerts()
        self.assertEqual(list(page), [name for name in page if name in rules], "a section for no alert")
        self.assertEqual(set(rules) - set(page), set(), "alerts without a section")
        for name, rule in rules.items():
            self.assertEqual(rule["annotations"]["runbook"], f"deploy/runbook.md#{name.lower()}")
            self.assertTrue(page[name].strip().startswith(f"`{rule['labels']['severity']}`."), name)
            for part in ("Look", "Do", "Over"):
                self.assertEqual(page[name].count(f"- **{part}:** "), 1, (name, part))

    def test_links_and_names_of_the_runbook_lead_somewhere(self):
        text = read("runbook.md")
        anchors = {name.lower() for name in sections(text)}
        for target in re.findall(r"\]\(([^)]+)\)", text):
            file, _, anchor = target.partition("#")
            self.assertTrue(anchor in anchors if not file else os.path.exists(os.path.join(DEPLOY, file)), target)
        named = set(re.findall(r"\bembd_[a-z_]+\b", text))
        self.assertEqual(named - self.metrics, set())
        words = run_help()
        for command in set(re.findall(r"`embctl ([a-z]+)", text)):
            self.assertRegex(words, rf"(?m)^  {command} ", command)

    def test_each_alert_is_tried(self):
        tried = read("prometheus", "alerts_test.yaml")
        for name in alerts():
            self.assertIn(name, tried)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian: prometheus)")
    def test_rules_are_sound_and_fire_when_they_should(self):
        for arguments in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts_test.yaml"]):
            done = promtool(*arguments)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    @unittest.skipUnless(PROMTOOL, "promtool is not installed (Debian: prometheus)")
    def test_expressions_of_the_dashboard_can_be_read(self):
        rules = [{"record": f"panel:{i}", "expr": expr.replace("$__rate_interval", "5m").replace("$instance", ".*")}
                 for i, (_, expr) in enumerate(dashboard_targets())]
        with tempfile.NamedTemporaryFile("w", suffix=".json", prefix="embd-test-") as file:
            json.dump({"groups": [{"name": "dashboard", "rules": rules}]}, file)  # JSON is YAML
            file.flush()
            done = promtool("check", "rules", file.name)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(f"{len(rules)} rules found", done.stdout)


if __name__ == "__main__":
    unittest.main()
