"""deploy/kubernetes, deploy/Containerfile and deploy/slurm against the programs they start: every flag, key, port and path they
name is there."""
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.normpath(os.path.join(HERE, "..", "..", "deploy"))
KUBERNETES = os.path.join(DEPLOY, "kubernetes")
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from certificates import Authority, Tokens  # noqa: E402
from embd_process import BIN, Embd, run  # noqa: E402
from ports import free_ports  # noqa: E402
from test_http import get, http_address  # noqa: E402


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def base(name):
    return yaml.safe_load(read("kubernetes", "base", name))


def installed(tool):
    """A program of deploy/deps.sh --tools that Debian does not have; None: it is not there."""
    cache = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return shutil.which(tool) or shutil.which(os.path.join(cache, "embd", "tools", "bin", tool))


VALIDATE = installed("kubernetes-validate")


def render(*folder):
    done = subprocess.run(["kubectl", "kustomize", os.path.join(KUBERNETES, *folder)], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def embd_flags():
    return set(re.findall(r"--[a-z][a-z-]*", run("--help").stdout))


# The fields of the Kubernetes API that these files use, and the type of each: a leaf is a Python type, [x] a list of
# x, {...} an object of these fields and no others, {str: x} a map. From the API reference of apps/v1, core/v1, policy/v1.
LABELS = {str: str}
META = {"name": str, "namespace": str, "labels": LABELS, "annotations": LABELS}
SELECTOR = {"matchLabels": LABELS}
PROBE = {"httpGet": {"path": str, "port": (str, int), "scheme": str}, "periodSeconds": int, "failureThreshold": int,
         "timeoutSeconds": int, "initialDelaySeconds": int, "successThreshold": int}
RESOURCES = {"requests": LABELS, "limits": LABELS}
CONTAINER = {
    "name": str, "image": str, "args": [str], "command": [str], "resources": RESOURCES,
    "env": [{"name": str, "value": str, "valueFrom": {"fieldRef": {"fieldPath": str, "apiVersion": str}}}],
    "envFrom": [{"secretRef": {"name": str}}],
    "ports": [{"name": str, "containerPort": int, "protocol": str}],
    "startupProbe": PROBE, "livenessProbe": PROBE, "readinessProbe": PROBE,
    "lifecycle": {"preStop": {"exec": {"command": [str]}}},
    "securityContext": {"allowPrivilegeEscalation": bool, "readOnlyRootFilesystem": bool, "capabilities": {"drop": [str]}},
    "volumeMounts": [{"name": str, "mountPath": str, "subPath": str, "readOnly": bool}]}
POD = {
    "terminationGracePeriodSeconds": int, "hostNetwork": bool, "dnsPolicy": str, "containers": [CONTAINER],
    "securityContext": {"runAsNonRoot": bool, "runAsUser": int, "runAsGroup": int, "fsGroup": int,
                        "seccompProfile": {"type": str}},
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": int, "podAffinityTerm": {"topologyKey": str, "labelSelector": SELECTOR}}]}},
    "tolerations": [{"key": str, "operator": str, "effect": str, "value": str}],
    "volumes": [{"name": str, "configMap": {"name": str, "defaultMode": int},
                 "secret": {"secretName": str, "defaultMode": int}, "emptyDir": {"medium": str, "sizeLimit": str}}]}
API = {
    ("v1", "ConfigMap"): {"data": LABELS},
    ("v1", "Service"): {"spec": {"clusterIP": str, "publishNotReadyAddresses": bool, "selector": LABELS,
                                 "ports": [{"name": str, "port": int, "targetPort": (str, int), "protocol": str}]}},
    ("policy/v1", "PodDisruptionBudget"): {"spec": {"maxUnavailable": (int, str), "minAvailable": (int, str),
                                                    "selector": SELECTOR}},
    ("networking.k8s.io/v1", "NetworkPolicy"): {"spec": {
        "podSelector": SELECTOR, "policyTypes": [str], "ingress": [{
            "from": [{"podSelector": SELECTOR, "namespaceSelector": SELECTOR}], "ports": [{"port": (str, int), "protocol": str}]}]}},
    ("batch/v1", "CronJob"): {"spec": {
        "schedule": str, "concurrencyPolicy": str, "startingDeadlineSeconds": int, "successfulJobsHistoryLimit": int,
        "failedJobsHistoryLimit": int, "jobTemplate": {"spec": {"backoffLimit": int, "template": {
            "metadata": META, "spec": {**POD, "restartPolicy": str}}}}}},
    # Of the Prometheus operator.
    ("monitoring.coreos.com/v1", "PodMonitor"): {"spec": {"jobLabel": str, "selector": SELECTOR, "podMetricsEndpoints": [
        {"port": str, "path": str, "interval": str}]}},
    ("monitoring.coreos.com/v1", "PrometheusRule"): {"spec": {"groups": [{"name": str, "rules": [{
        "alert": str, "expr": str, "for": str, "labels": LABELS, "annotations": LABELS}]}]}},
    ("apps/v1", "Deployment"): {"spec": {
        "replicas": int, "strategy": {"type": str}, "selector": SELECTOR, "template": {"metadata": META, "spec": POD}}},
    ("apps/v1", "StatefulSet"): {"spec": {
        "serviceName": str, "replicas": int, "podManagementPolicy": str, "selector": SELECTOR,
        "template": {"metadata": META, "spec": POD},
        "volumeClaimTemplates": [{"metadata": META, "spec": {"accessModes": [str], "storageClassName": str,
                                                             "resources": RESOURCES}}]}}}
NAME = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$")
QUANTITY = re.compile(r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|P|Ki|Mi|Gi|Ti|Pi)?$")


def check_value(test, where, value, kind):
    """A value against the type that the API gives its field."""
    if isinstance(kind, list):
        test.assertIsInstance(value, list, where)
        for i, item in enumerate(value):
            check_value(test, f"{where}[{i}]", item, kind[0])
    elif isinstance(kind, dict):
        test.assertIsInstance(value, dict, where)
        for name, item in value.items():
            test.assertTrue(str in kind or name in kind, f"{where} has no field {name}")
            check_value(test, f"{where}.{name}", item, kind[str] if str in kind else kind[name])
    else:
        test.assertIsInstance(value, kind, where)
        test.assertTrue(kind is bool or not isinstance(value, bool), where)
        if where.endswith((".name", ".serviceName")) and ".env[" not in where:
            test.assertRegex(value, NAME, where)
        if re.search(r"\.(requests|limits)\.[a-z./]+$|sizeLimit$", where):
            test.assertRegex(value, QUANTITY, where)


def check_fields(test, kinds):
    for kind, document in kinds.items():
        fields = {"apiVersion": str, "kind": str, "metadata": META, **API[document["apiVersion"], kind]}
        check_value(test, kind, document, fields)


class Kubernetes(unittest.TestCase):
    def setUp(self):
        self.set = base("statefulset.yaml")["spec"]
        self.pod = self.set["template"]["spec"]
        self.container, = self.pod["containers"]
        self.config = base("embd.yaml")
        self.servers = self.config["cluster"]["servers"]
        self.ports = {p["name"]: p["containerPort"] for p in self.container["ports"]}

    def test_flags_are_those_of_the_binary(self):
        texts = [" ".join(self.container["args"])] + [read("kubernetes", "overlays", o, "kustomization.yaml") for o in
                                                      ("cpu", "gpu", "etcd")]
        for text in texts:
            named = set(re.findall(r"--[a-z][a-z-]*", text))
            self.assertTrue(named)
            self.assertEqual(named - embd_flags(), set())

    def with_secrets(self, *path):
        """The configuration, with certificates, key and tokens where it says that they are."""
        folder = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, folder)
        authority = Authority(folder, "authority")
        certificate, key = authority.issue("server")
        text = read("kubernetes", *path)
        for name, there in (("tls/tls.crt", certificate), ("tls/tls.key", key), ("tls/ca.crt", authority.path),
                            ("tokens/tokens", Tokens(folder).path)):
            self.assertEqual(text.count(f"/etc/embd/{name}"), 1)
            text = text.replace(f"/etc/embd/{name}", there)
        with open(os.path.join(folder, "embd.yaml"), "w", encoding="utf-8") as file:
            file.write(text)
        return file.name

    def test_the_servers_read_the_configuration(self):
        path = self.with_secrets("base", "embd.yaml")
        for server in self.servers:
            done = run("--config", path, "--server", server["name"], "--check")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{len(self.servers)} servers", done.stdout)

    def test_the_servers_read_the_configuration_of_the_cluster_in_etcd(self):
        config = yaml.safe_load(read("kubernetes", "overlays", "etcd", "embd.yaml"))
        servers = config["cluster"].pop("servers")
        self.assertRegex(config["cluster"].pop("etcd"), "^etcd://")
        theirs = {**self.config, "cluster": {**self.config["cluster"]}}
        self.assertEqual([{**s, "advertise": s["name"] + ".embd"} for s in servers], theirs["cluster"].pop("servers"))
        self.assertEqual(config, theirs)
        path = self.with_secrets("overlays", "etcd", "embd.yaml")
        for server in servers:
            done = run("--config", path, "--server", server["name"], "--advertise=10.0.0.7", "--check")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(run("--config", path, "--server", "embd-0", "--check").returncode, 2)

    def test_pods_services_and_the_list_of_servers_agree(self):
        service = base("service.yaml")
        self.assertEqual(self.set["replicas"], len(self.servers))
        self.assertEqual(self.set["serviceName"], service["metadata"]["name"])
        for i, server in enumerate(self.servers):
            self.assertEqual(server["name"], f"embd-{i}")
            self.assertEqual(server["advertise"], f"embd-{i}.{service['metadata']['name']}")
            first = int(server["listen"].rsplit(":", 1)[1])
            admin = int(server["admin_listen"].rsplit(":", 1)[1])
            for kind, begin in (("data", first), ("admin", admin)):
                ports = [port for name, port in self.ports.items() if name.startswith(kind)]
                self.assertEqual(ports, list(range(begin, begin + server["shards"])))
        self.assertEqual(self.ports["http"], int(self.config["http"].rsplit(":", 1)[1]))
        self.assertEqual({p["name"]: p["port"] for p in service["spec"]["ports"]}, self.ports)
        annotations = self.set["template"]["metadata"]["annotations"]
        self.assertEqual(int(annotations["prometheus.io/port"]), self.ports["http"])

    def test_probed_paths_answer(self):
        with Embd("--http", "127.0.0.1:0") as server:
            address = http_address(server)
            paths = [self.set["template"]["metadata"]["annotations"]["prometheus.io/path"]]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                paths.append(self.container[probe]["httpGet"]["path"])
                self.assertIn(self.container[probe]["httpGet"]["port"], self.ports)
            for path in paths:
                self.assertEqual(get(address, path)[0], 200, path)

    def test_paths_of_the_configuration_lie_on_volumes(self):
        mounts = {m["mountPath"]: m for m in self.container["volumeMounts"]}
        for key in ("data_dir", "admin_dir", "tls_cert", "tls_key", "peer_ca", "tokens"):
            path = self.config[key]
            self.assertTrue(any(path == m or path.startswith(m + "/") for m in mounts), (key, path))
        for key in ("data_dir", "admin_dir"):
            self.assertFalse(mounts[self.config[key]].get("readOnly", False))
        self.assertIn(self.container["args"][1], mounts)
        volumes = {v["name"] for v in self.pod["volumes"]} | {c["metadata"]["name"] for c in self.set["volumeClaimTemplates"]}
        self.assertEqual({m["name"] for m in mounts.values()}, volumes)
        self.assertTrue(self.container["securityContext"]["readOnlyRootFilesystem"])
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])

    def test_fields_are_those_of_the_api(self):
        documents = {name: base(name) for name in ("disruption.yaml", "service.yaml", "statefulset.yaml", "network.yaml")}
        check_fields(self, {"CronJob": yaml.safe_load(read("kubernetes", "backups", "backup.yaml"))})
        check_fields(self, {"Deployment": yaml.safe_load(read("kubernetes", "archive", "archive.yaml"))})
        for path in (("snapshots", "snapshot.yaml"), ("monitoring", "podmonitor.yaml"), ("monitoring", "rule.yaml")):
            documents[path] = yaml.safe_load(read("kubernetes", *path))
        check_fields(self, {document["kind"]: document for document in documents.values()})
        for place, value in ((("replicas",), "3"), (("template", "spec", "containers", 0, "livenessprobe"), {}),
                             (("template", "spec", "containers", 0, "ports", 0, "name"), "data_0"),
                             (("volumeClaimTemplates", 0, "spec", "resources", "requests", "storage"), "100 GB")):
            document = base("statefulset.yaml")
            at = document["spec"]
            for key in place[:-1]:
                at = at[key]
            at[place[-1]] = value
            with self.assertRaises(AssertionError, msg=place):
                check_fields(self, {"StatefulSet": document})

    def test_the_network_policy_is_about_ports_there_are_and_opens_the_admin_ports_to_no_stranger(self):
        policy = base("network.yaml")["spec"]
        opened = {port["port"]: rule.get("from") for rule in policy["ingress"] for port in rule["ports"]}
        self.assertEqual(set(opened), set(self.ports))
        for name, peers in opened.items():
            self.assertEqual(peers is None, name.startswith("data-"), name)
        self.assertEqual(policy["policyTypes"], ["Ingress"])

    def test_volumes_hold_journals_at_their_longest_and_the_snapshots_that_are_kept(self):
        command = yaml.safe_load(read("kubernetes", "snapshots", "snapshot.yaml"))["spec"]["jobTemplate"]["spec"]["template"]["spec"][
            "containers"][0]["command"][-1]
        n_snapshots = int(re.search(r"--keep (\d+)", command).group(1)) + 1
        journal_limit = 4 * max(server["shards"] for server in self.servers)
        self.assertNotIn("journal_limit", self.config)
        for overlay, memory in (("cpu", None), ("gpu", 80)):  # of the GPU that the overlay names, in GiB
            text = read("kubernetes", "overlays", overlay, "kustomization.yaml")
            memory = memory or int(re.search(r"limits: .*memory: (\d+)Gi", text).group(1))
            volume = int(re.search(r"requests/storage\n +value: (\d+)Gi\n", text).group(1))
            self.assertGreaterEqual(volume, 3.3 * memory + journal_limit + n_snapshots * memory, overlay)

    def test_the_job_that_makes_snapshots_reaches_the_servers_with_flags_there_are(self):
        spec = yaml.safe_load(read("kubernetes", "snapshots", "snapshot.yaml"))["spec"]
        pod = spec["jobTemplate"]["spec"]["template"]
        container, = pod["spec"]["containers"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        self.assertEqual(variables["EMBD_SERVERS"].split(","), [s["advertise"] + ":7700" for s in self.servers])
        for name in ("EMBD_TOKEN_FILE", "EMBD_TLS_CA"):
            self.assertTrue(variables[name].startswith(container["volumeMounts"][0]["mountPath"] + "/"))
            self.assertIn(os.path.basename(variables[name]), read("kubernetes", "README.md"))
        self.assertEqual(container["command"][:2], ["/bin/sh", "-c"])
        self.assertEqual(container["image"], self.container["image"])
        self.assertNotEqual(pod["metadata"]["labels"]["app.kubernetes.io/name"], "embd", "the Service would choose its pods")
        with tempfile.TemporaryDirectory(prefix="embd-test-") as data, Embd("--data-dir", data, "--http", "off") as server:
            done = subprocess.run(container["command"], capture_output=True, text=True, timeout=60, check=False, env={
                "PATH": f"{os.path.dirname(BIN)}:{os.environ['PATH']}", "EMBD_SERVERS": server.addresses[0]})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertRegex(" ".join(os.listdir(data)), r"\bcron-\d{8}-\d{6}\b")

    def test_the_jobs_that_make_backups_reach_the_servers_with_flags_there_are(self):
        spec = yaml.safe_load(read("kubernetes", "backups", "backup.yaml"))["spec"]["jobTemplate"]["spec"]["template"]
        container, = spec["spec"]["containers"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        self.assertEqual(variables["EMBD_SERVERS"].split(","), [s["advertise"] + ":7700" for s in self.servers])
        self.assertEqual(container["image"], self.container["image"])
        self.assertNotEqual(spec["metadata"]["labels"]["app.kubernetes.io/name"], "embd", "the Service would choose its pods")
        secret = container["envFrom"][0]["secretRef"]["name"]
        self.assertIn(f"generic {secret} ", read("kubernetes", "README.md"))
        unit = re.search(r"^ExecStart=/bin/sh -c '(.*)'$", read("systemd", "embd-backup.service"), re.M).group(1).replace("%%", "%")
        with tempfile.TemporaryDirectory(prefix="embd-test-") as data, Embd("--data-dir", data, "--http", "off") as server:
            figures = os.path.join(data, "embd.prom")
            for command in (container["command"], ["/bin/sh", "-c", unit.replace("/var/lib/embd-backup/embd.prom", figures)]):
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env={
                    "PATH": f"{os.path.dirname(BIN)}:{os.environ['PATH']}", "EMBD_SERVERS": server.addresses[0],
                    "PLACE": os.path.join(data, "place")})
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(len(os.listdir(os.path.join(data, "place"))), 2)
            self.assertTrue(os.path.exists(figures))

    def test_the_archives_that_are_kept_going_do_so(self):
        spec = yaml.safe_load(read("kubernetes", "archive", "archive.yaml"))["spec"]["template"]["spec"]
        container, = spec["containers"]
        variables = {entry["name"]: entry["value"] for entry in container["env"]}
        self.assertEqual(variables["EMBD_SERVERS"].split(","), [s["advertise"] + ":7700" for s in self.servers])
        self.assertEqual(container["image"], self.container["image"])
        unit = re.search(r"^ExecStart=(.*)$", read("systemd", "embd-archive.service"), re.M).group(1).split()
        with tempfile.TemporaryDirectory(prefix="embd-test-") as data, Embd("--data-dir", data, "--http", "off") as server:
            for number, command in enumerate((container["command"], unit)):
                place = os.path.join(data, f"place{number}")
                made = [re.sub(r"^\$[({]PLACE[)}]$", place, word).replace("/var/lib/embd-archive", data) for word in command]
                run = subprocess.Popen(made, stdout=subprocess.PIPE, text=True, env={
                    "PATH": f"{os.path.dirname(BIN)}:{os.environ['PATH']}", "EMBD_SERVERS": server.addresses[0]})
                line = run.stdout.readline()
                run.terminate()
                self.assertEqual((run.communicate(timeout=60)[0], run.returncode), ("", 0))
                self.assertEqual(os.listdir(place), [line.split(":")[0]])
            self.assertTrue(os.path.exists(os.path.join(data, "embd.prom")))

    def test_the_rule_of_the_prometheus_operator_is_that_of_prometheus(self):
        made = subprocess.run([os.path.join(DEPLOY, "prometheus", "rule.sh")], capture_output=True, text=True, timeout=20, check=True)
        self.assertEqual(read("kubernetes", "monitoring", "rule.yaml"), made.stdout, "deploy/prometheus/rule.sh makes it anew")
        rule = yaml.safe_load(made.stdout)
        self.assertEqual(rule["spec"], yaml.safe_load(read("prometheus", "alerts.yaml")))
        monitor = yaml.safe_load(read("kubernetes", "monitoring", "podmonitor.yaml"))["spec"]
        self.assertEqual(monitor["podMetricsEndpoints"][0]["port"], "http")
        self.assertEqual(monitor["jobLabel"], "app.kubernetes.io/name")
        self.assertEqual(monitor["selector"]["matchLabels"]["app.kubernetes.io/name"], "embd")
        self.assertIn('up{job="embd"}', read("prometheus", "alerts.yaml"))

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_overlays_render(self):
        for overlay, image, flags in (("cpu", "embd", ["--store=host"]), ("gpu", "embd-cuda", ["--store=cuda"]),
                                      ("etcd", "embd", ["--store=host", "--advertise=$(HOST_IP)"])):
            kinds = {d["kind"]: d for d in yaml.safe_load_all(render("overlays", overlay))}
            self.assertEqual(set(kinds), {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget", "NetworkPolicy"})
            pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
            container, = pod["containers"]
            self.assertEqual(container["image"], image)
            self.assertEqual(container["args"][4:], flags)
            variables = {entry["name"] for entry in container["env"]}
            self.assertLessEqual(set(re.findall(r"\$\((\w+)\)", " ".join(container["args"]))), variables)
            check_fields(self, kinds)
            self.assertEqual(container["resources"]["limits"]["memory"], container["resources"]["requests"]["memory"])
            config = [v for v in pod["volumes"] if v["name"] == "config"][0]["configMap"]["name"]
            self.assertEqual(config, kinds["ConfigMap"]["metadata"]["name"])
            self.assertEqual(kinds["StatefulSet"]["spec"]["selector"]["matchLabels"],
                             kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])
            policy = kinds["NetworkPolicy"]["spec"]
            self.assertEqual(policy["podSelector"], kinds["StatefulSet"]["spec"]["selector"])
            self.assertEqual(policy["ingress"], base("network.yaml")["spec"]["ingress"], "kustomize adds its label to nobody else")

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    @unittest.skipUnless(VALIDATE, "kubernetes-validate is not installed (deploy/deps.sh --tools)")
    def test_overlays_are_valid_by_the_schemas_of_kubernetes(self):
        def validate(text, version):
            return subprocess.run([VALIDATE, "--strict", "-k", version, "/dev/stdin"], input=text, capture_output=True, text=True,
                                  timeout=60, check=False)
        for overlay in ("cpu", "gpu", "etcd"):
            for version in ("1.27", "1.37"):
                done = validate(render("overlays", overlay), version)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                self.assertEqual(done.stdout.count("passed"), 5, done.stdout)
        for version in ("1.27", "1.37"):
            for job in ("snapshots", "backups", "archive"):
                done = validate(render(job), version)
                self.assertEqual((done.returncode, done.stdout.count("passed")), (0, 1), done.stdout + done.stderr)
        self.assertNotEqual(validate(render("overlays", "cpu").replace("livenessProbe:", "livenessprobe:"), "1.37").returncode, 0)


class Container(unittest.TestCase):
    def test_the_container_file_names_what_is_there(self):
        text = read("Containerfile")
        stages = re.findall(r"^FROM \S+ AS (\S+)$", text, re.M)
        self.assertEqual(stages, ["build-cpu", "build-cuda", "cpu", "cuda"])
        self.assertEqual(set(re.findall(r"COPY --from=(\S+)", text)), {"build-cpu", "build-cuda"})
        for path in re.findall(r"\b(deploy/[\w./]+\.sh)\b", text):
            self.assertTrue(os.access(os.path.join(DEPLOY, "..", path), os.X_OK), path)
        pod = base("statefulset.yaml")["spec"]["template"]["spec"]
        user = pod["securityContext"]["runAsUser"]
        self.assertEqual(set(re.findall(r"^USER (\S+)$", text, re.M)), {f"{user}:{user}"})
        exposed = {str(p["containerPort"]) for p in pod["containers"][0]["ports"]}
        for line in re.findall(r"^EXPOSE (.*)$", text, re.M):
            self.assertEqual(set(line.split()), exposed)
        for path in re.findall(r"^COPY ([^-.]\S*) ", text, re.M):
            self.assertTrue(os.path.exists(os.path.join(DEPLOY, "..", path)), path)
        for option in re.findall(r"-D(\w+)=", text):
            self.assertRegex(read("..", "CMakeLists.txt"), rf"\b{option}\b")
        self.assertLessEqual({"build", ".git"}, set(read("..", ".dockerignore").split()))
        packages = read("packages", "packages.cmake")
        for package in re.findall(r"/tmp/([a-z0-9-]+)_\*\.deb", text):
            self.assertIn(package, packages)

    @unittest.skipUnless(glob.glob("/var/lib/apt/lists/*Packages*"), "no lists of Debian's packages (apt-get update)")
    def test_the_container_file_installs_packages_that_debian_has(self):
        named = re.findall(r"apt-get install -y --no-install-recommends ([a-z0-9 -]+)", read("Containerfile"))
        names = {name for line in named for name in line.split()}
        self.assertLessEqual({"scdoc", "dpkg-dev", "file"}, names)
        done = subprocess.run(["apt-cache", "show", "--no-all-versions", *names], capture_output=True, text=True, check=False)
        self.assertEqual(set(re.findall(r"^Package: (\S+)$", done.stdout, re.M)), names)


PACKAGE = os.path.join(os.path.dirname(BIN), "..", "python")
TRAINER = """
import os
import numpy
import embd
if os.environ["SLURM_PROCID"] == "0":
    keys = numpy.arange(249, dtype=numpy.uint64)
    with embd.connect(os.environ["EMBD_SERVERS"]) as client:
        table = client.create_table("trained", dim=4)
        print("began with", table.pull(keys).tobytes().hex())
        table.push(keys, numpy.ones((len(keys), 4), numpy.float32))
        print("ended with", table.pull(keys).tobytes().hex())
"""

SRUN = """#!/bin/bash
# Stands in for srun: a task for each node, with SLURM_NODEID, side by side; --output=FILE with %t.
out=
while [[ $1 == --* ]]; do [[ $1 == --output=* ]] && out=${1#--output=}; shift; done
trap 'kill -TERM $pids 2>/dev/null' TERM
id=0 pids=
for node in $NODES; do
    if [ -n "$out" ]; then SLURM_NODEID=$id SLURM_PROCID=$id "$@" >"${out//%t/$id}" 2>&1 &
    else SLURM_NODEID=$id SLURM_PROCID=$id "$@" & fi
    pids="$pids $!" id=$((id + 1))
done
status=0
for pid in $pids; do wait "$pid" || status=$?; done
exit $status
"""


class Slurm(unittest.TestCase):
    """The batch script, with stand-ins for srun and scontrol; its nodes are addresses of this machine."""

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="embd-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        for name, text in (("srun", SRUN), ("scontrol", "#!/bin/sh\nprintf '%s\\n' $NODES\n")):
            with open(os.path.join(self.dir, name), "w", encoding="ascii") as file:
                file.write(text)
            os.chmod(file.name, 0o700)
        os.mkdir(os.path.join(self.dir, "tmp"))

    def submit(self, job, *command, nodes=2):
        port = free_ports(2, ("127.0.0.1", "127.0.0.2"), more=(0, 1000))
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EMBD_")}
        environment.update(PATH=f"{self.dir}:{os.path.dirname(BIN)}:{os.environ['PATH']}", NODES=" ".join(["127.0.0.1", "127.0.0.2"][:nodes]),
                           SLURM_JOB_ID=str(job), SLURM_JOB_NODELIST="n[0-1]", EMBD_DATA_DIR=os.path.join(self.dir, "data"),
                           EMBD_PORT=str(port), TMPDIR=os.path.join(self.dir, "tmp"),
                           PYTHONPATH=PACKAGE)
        return subprocess.run(["bash", os.path.join(DEPLOY, "slurm", "embd.sbatch"), *command], capture_output=True, text=True,
                              timeout=90, env=environment, check=False)

    def test_flags_are_those_of_the_binary(self):
        text = "\n".join(line for line in read("slurm", "embd.sbatch").splitlines() if not line.startswith("#"))
        lines = [line for line in text.splitlines() if re.search(r"\bembd --config", line)]
        self.assertEqual(len(lines), 2)
        for line in lines:
            self.assertEqual(set(re.findall(r"--(?:config|server|check)[a-z-]*", line)) - embd_flags(), set())

    def test_a_job_trains_and_the_next_one_goes_on_from_its_snapshot(self):
        first = self.submit(1, "bash", "-c", "[ $SLURM_PROCID != 0 ] || embctl table create items --dim 4 --create-on pull && "
                            "[ $SLURM_PROCID != 0 ] || embctl get items 7 --full")
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        self.assertIn("embd.sbatch: snapshot job-1-", first.stdout)
        second = self.submit(2, "bash", "-c", "[ $SLURM_PROCID != 0 ] || embctl table list")
        self.assertEqual(second.returncode, 0, second.stdout + second.stderr)
        self.assertIn("embd.sbatch: loaded job-1-", second.stdout)
        self.assertRegex(second.stdout, r"(?m)^items ")

    @unittest.skipUnless(glob.glob(os.path.join(PACKAGE, "embd", "_native*")), "the Python package is not built")
    def test_jobs_on_one_and_two_nodes_go_on_with_a_durable_table(self):
        had = None
        for job, nodes in enumerate((2, 1, 2)):
            done = self.submit(10 + job, "/usr/bin/python3", "-c", TRAINER, nodes=nodes)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            rows = dict(re.findall(r"(?m)^(began|ended) with ([0-9a-f]+)$", done.stdout))
            self.assertNotEqual(rows["began"], rows["ended"])
            self.assertEqual(rows["began"], had or rows["began"])
            self.assertEqual("embd.sbatch: loaded job-" in done.stdout, had is not None)
            had = rows["ended"]
            self.assertEqual(os.listdir(os.path.join(self.dir, "tmp")), [], "journals end with the job")

    def test_a_server_that_is_killed_is_started_again_and_the_trainers_go_on(self):
        log = os.path.join(self.dir, "data", "job-15", "server-1.log")
        done = self.submit(15, "bash", "-c", f"""[ $SLURM_PROCID = 0 ] || exit 0
            embctl table create kept --dim 4 && kill -KILL $(cat {self.dir}/tmp/embd-job-15/server-1/identity.lock) &&
            until [ $(grep -c ' info ready ' {log}) = 2 ]; do sleep 0.1; done; embctl wait --ready && embctl table stats kept""")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(log, encoding="utf-8") as file:
            self.assertIn("server s1 was killed (status 137) and starts again", file.read())
        self.assertIn("embd.sbatch: snapshot job-15-", done.stdout)

    def test_a_snapshot_that_cannot_be_copied_fails_the_job_and_the_one_before_stays(self):
        first = self.submit(20, "true")
        self.assertEqual(first.returncode, 0, first.stdout + first.stderr)
        with open(os.path.join(self.dir, "data", "last"), encoding="ascii") as file:
            last = file.read()
        with open(os.path.join(self.dir, "cp"), "w", encoding="ascii") as file:
            file.write("#!/bin/sh\nexit 1\n")
        os.chmod(file.name, 0o700)
        done = self.submit(21, "true")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        with open(os.path.join(self.dir, "data", "last"), encoding="ascii") as file:
            self.assertEqual(file.read(), last)
        self.assertEqual({name for name in os.listdir(os.path.join(self.dir, "data")) if not re.match(r"job-2\d$", name)},
                         {"last", last.strip()})

    def test_a_trainer_that_fails_fails_the_job(self):
        done = self.submit(3, "false")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
