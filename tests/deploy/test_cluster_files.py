"""deploy/kubernetes, deploy/Containerfile and deploy/slurm against the programs they start: every flag, key, port and path they
name is there."""
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import unittest

import yaml

HERE = os.path.dirname(os.path.abspath(__file__))
DEPLOY = os.path.normpath(os.path.join(HERE, "..", "..", "deploy"))
KUBERNETES = os.path.join(DEPLOY, "kubernetes")
sys.path.insert(0, os.path.join(HERE, "..", "integration"))
from embd_process import BIN, Embd, run  # noqa: E402
from test_http import get, http_address  # noqa: E402


def read(*path):
    with open(os.path.join(DEPLOY, *path), encoding="utf-8") as file:
        return file.read()


def base(name):
    return yaml.safe_load(read("kubernetes", "base", name))


def embd_flags():
    return set(re.findall(r"--[a-z][a-z-]*", run("--help").stdout))


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
                                                      ("cpu", "gpu")]
        for text in texts:
            named = set(re.findall(r"--[a-z][a-z-]*", text))
            self.assertTrue(named)
            self.assertEqual(named - embd_flags(), set())

    def test_the_servers_read_the_configuration(self):
        for server in self.servers:
            done = run("--config", os.path.join(KUBERNETES, "base", "embd.yaml"), "--server", server["name"], "--check")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn(f"{len(self.servers)} servers", done.stdout)

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
        for key in ("data_dir", "admin_dir", "tls_cert", "tls_key", "tokens"):
            path = self.config[key]
            self.assertTrue(any(path == m or path.startswith(m + "/") for m in mounts), (key, path))
        for key in ("data_dir", "admin_dir"):
            self.assertFalse(mounts[self.config[key]].get("readOnly", False))
        self.assertIn(self.container["args"][1], mounts)
        volumes = {v["name"] for v in self.pod["volumes"]} | {c["metadata"]["name"] for c in self.set["volumeClaimTemplates"]}
        self.assertEqual({m["name"] for m in mounts.values()}, volumes)
        self.assertTrue(self.container["securityContext"]["readOnlyRootFilesystem"])
        self.assertTrue(self.pod["securityContext"]["runAsNonRoot"])

    @unittest.skipUnless(shutil.which("kubectl"), "kubectl is not installed")
    def test_overlays_render(self):
        for overlay, image, store in (("cpu", "embd", "host"), ("gpu", "embd-cuda", "cuda")):
            done = subprocess.run(["kubectl", "kustomize", os.path.join(KUBERNETES, "overlays", overlay)], capture_output=True,
                                  text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            kinds = {d["kind"]: d for d in yaml.safe_load_all(done.stdout)}
            self.assertEqual(set(kinds), {"ConfigMap", "Service", "StatefulSet", "PodDisruptionBudget"})
            pod = kinds["StatefulSet"]["spec"]["template"]["spec"]
            container, = pod["containers"]
            self.assertEqual(container["image"], image)
            self.assertEqual(container["args"][-1], f"--store={store}")
            self.assertEqual(container["resources"]["limits"]["memory"], container["resources"]["requests"]["memory"])
            config = [v for v in pod["volumes"] if v["name"] == "config"][0]["configMap"]["name"]
            self.assertEqual(config, kinds["ConfigMap"]["metadata"]["name"])
            self.assertEqual(kinds["StatefulSet"]["spec"]["selector"]["matchLabels"],
                             kinds["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"])


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
        packages = read("packages", "packages.cmake")
        for package in re.findall(r"/tmp/([a-z0-9-]+)_\*\.deb", text):
            self.assertIn(package, packages)


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

    def submit(self, job, *command):
        port = free_port()
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EMBD_")}
        environment.update(PATH=f"{self.dir}:{os.path.dirname(BIN)}:{os.environ['PATH']}", NODES="127.0.0.1 127.0.0.2",
                           SLURM_JOB_ID=str(job), SLURM_JOB_NODELIST="n[0-1]", EMBD_DATA_DIR=os.path.join(self.dir, "data"),
                           EMBD_PORT=str(port))
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

    def test_a_trainer_that_fails_fails_the_job(self):
        done = self.submit(3, "false")
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)


def free_port():
    """A port whose next one, and those 1000 further on, are free on both nodes: below those the system hands out."""
    def is_free(address, port):
        with socket.socket() as probe:
            try:
                probe.bind((address, port))
                return True
            except OSError:
                return False
    while True:
        port = random.randrange(20000, 30000)
        if all(is_free(address, port + more) for address in ("127.0.0.1", "127.0.0.2") for more in (0, 1, 1000, 1001)):
            return port


if __name__ == "__main__":
    unittest.main()
