"""deploy/slurm/embd.sbatch under Slurm itself: a controller and three slurmd on this machine, in namespaces of their own, so
that nodes have names and ports are free. Needs root, Slurm and namespaces; skipped (exit status 77) without."""
import glob
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "integration"))
from game_day import report  # noqa: E402

BIN = os.path.abspath(os.environ["EMBD_BIN"])
SCRIPT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "deploy", "slurm", "embd.sbatch")
NODES = {"n0": "192.0.2.1", "n1": "192.0.2.2", "n2": "192.0.2.3"}  # of a range for examples; on the loopback device of the namespace
INSIDE = "EMBD_SLURM_NAMESPACE"

CONFIGURATION = """
ClusterName=embd
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/linear
SchedulerType=sched/builtin
ReturnToService=2
{nodes}
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def missing():
    if os.getuid() != 0:
        return "root"
    tool = next((name for name in ("slurmctld", "slurmd", "sbatch", "unshare", "ip") if not shutil.which(name)), None)
    if tool:
        return f"{tool} (deploy/deps.sh --slurm)"
    return "namespaces" if run("unshare", "--mount", "--net", "true").returncode else None


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **more)

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

# Pushes of one to every key until the file go() is there; says how many, and what the rows are then.
STEPS = """
import os, sys, time
import numpy
import embd
folder, longest, n = sys.argv[1], 0.0, 0
if os.environ["SLURM_PROCID"] == "0":
    keys = numpy.arange(249, dtype=numpy.uint64)
    with embd.connect(os.environ["EMBD_SERVERS"], deadline=60) as client:
        table = client.create_table("steps", dim=1, optimizer=embd.Optimizer("sgd", lr=1.0),
                                    initializer=embd.Initializer("constant", 0))
        while not os.path.exists(f"{folder}/go"):
            began = time.monotonic()
            table.push(keys, numpy.full((len(keys), 1), -1, numpy.float32))
            n += 1
            table.pull(keys)
            longest = max(longest, time.monotonic() - began)
            open(f"{folder}/steps", "w").write(str(n))
        print(f"pushed {n} rows {set(table.pull(keys).ravel().tolist())} longest {longest:.3f}")
"""


class Slurm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.dir = tempfile.mkdtemp(prefix="embd-slurm-")
        cls.addClassCleanup(shutil.rmtree, cls.dir, ignore_errors=True)
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        for address in NODES.values():
            subprocess.run(["ip", "address", "add", f"{address}/32", "dev", "lo"], check=True)
        with open(cls.path("hosts"), "w", encoding="ascii") as hosts:
            hosts.write(f"127.0.0.1 localhost {socket.gethostname()}\n")
            hosts.writelines(f"{address} {node}\n" for node, address in NODES.items())
        subprocess.run(["mount", "--bind", hosts.name, "/etc/hosts"], check=True)
        nodes = "\n".join(f"NodeName={node} NodeAddr={address} NodeHostname={socket.gethostname()} Port={17000 + i} CPUs=2 "
                          "State=UNKNOWN" for i, (node, address) in enumerate(NODES.items()))
        with open(cls.path("slurm.conf"), "w", encoding="ascii") as file:
            file.write(CONFIGURATION.format(host=socket.gethostname(), dir=cls.dir, nodes=nodes))
        os.mkdir(cls.path("state"))
        os.mkdir(cls.path("tmp"))
        os.environ["SLURM_CONF"] = file.name
        cls.start("slurmctld", "-D")
        for node in NODES:
            cls.start("slurmd", "-D", "-N", node)
        cls.wait_for(lambda: run("sinfo", "-h", "-o", "%t %D").stdout.split() == ["idle", "3"], "three idle nodes")
        cls.addClassCleanup(cls.cancel)

    @classmethod
    def cancel(cls):
        """Jobs of a test that failed: their processes outlive the daemons."""
        run("scancel", "--user=root")
        cls.wait_for(lambda: run("squeue", "-h").stdout == "", "end of all jobs", 90)  # KillWait is 30 s

    @classmethod
    def path(cls, name):
        return os.path.join(cls.dir, name)

    @classmethod
    def start(cls, *command):
        with open(cls.path("daemons.log"), "ab") as log:
            daemon = subprocess.Popen(command, stdout=log, stderr=log)
        cls.addClassCleanup(daemon.wait)
        cls.addClassCleanup(daemon.terminate)

    @classmethod
    def wait_for(cls, is_so, what, seconds=40):
        end = time.monotonic() + seconds
        while not is_so():
            if time.monotonic() > end:
                raise AssertionError(f"no {what} within {seconds} s\n{cls.logs()}")
            time.sleep(0.1)

    @classmethod
    def logs(cls):
        texts = []
        for name in ("slurmctld.log", *(f"{node}.log" for node in NODES), "daemons.log"):
            if os.path.exists(cls.path(name)):
                with open(cls.path(name), encoding="utf-8", errors="replace") as file:
                    texts.append(f"== {name}\n{file.read()[-2000:]}")
        return "\n".join(texts)

    def submit(self, name, *command, nodes=2, data="data"):
        """The job's id and where its output goes."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith("EMBD_")}
        environment.update(EMBD_BIN=BIN, EMBD_DATA_DIR=self.path(data), TMPDIR=self.path("tmp"),
                           PYTHONPATH=os.path.join(BIN, "..", "python"))
        done = run("sbatch", "--parsable", f"--nodes={nodes}", "--time=10", f"--output={self.path(name)}", SCRIPT, *command,
                   env=environment, cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.strip(), self.path(name)

    def finish(self, job, output, state="COMPLETED"):
        self.wait_for(lambda: re.search(r"JobState=(?!PENDING|RUNNING|COMPLETING)", self.show(job)), f"end of job {job}", 60)
        with open(output, encoding="utf-8") as file:
            text = file.read()
        self.assertIn(f"JobState={state}", self.show(job), f"{text}\n{self.logs()}")
        return text

    @staticmethod
    def show(job):
        return run("scontrol", "show", "job", job).stdout

    def server_of(self, job, server):
        """The process of that server of the job, in the folder other-data."""
        command = ["embd", "--config", self.path(f"other-data/job-{job}/embd.yaml"), "--server", server]
        for path in glob.glob("/proc/[0-9]*/cmdline"):
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    if file.read().split("\0")[:-1] == command:
                        return int(path.split("/")[2])
            except OSError:
                pass  # it has ended
        return None

    def steps(self):
        try:
            with open(self.path("steps"), encoding="ascii") as file:
                return int(file.read() or 0)
        except OSError:
            return 0

    def test_a_job_trains_on_two_nodes_and_the_next_goes_on_from_its_snapshot(self):
        first = self.finish(*self.submit("first", "bash", "-c", "embctl cluster; [ $SLURM_PROCID != 0 ] || "
                                         "{ embctl table create items --dim 4 --create-on pull && embctl get items 7 --full; }"))
        for node in ("n0", "n1"):
            self.assertIn(f"{NODES[node]}:7701", first)
        self.assertIn("embd.sbatch: snapshot job-", first)
        second = self.finish(*self.submit("second", "bash", "-c", "[ $SLURM_PROCID != 0 ] || embctl get items 7 --full"))
        self.assertIn("embd.sbatch: loaded job-", second)
        row = re.compile(r"(?m)^ *7 .*$")
        self.assertIn(" hit ", row.search(second)[0])
        self.assertEqual(row.search(second)[0].split()[3:], row.search(first)[0].split()[3:])

    def test_jobs_on_one_and_two_nodes_go_on_with_a_durable_table(self):
        trainer = self.path("train.py")
        with open(trainer, "w", encoding="ascii") as file:
            file.write(TRAINER)
        had = None
        for i, nodes in enumerate((2, 2, 3, 1)):
            text = self.finish(*self.submit(f"durable-{i}", "/usr/bin/python3", trainer, nodes=nodes))
            rows = dict(re.findall(r"(?m)^(began|ended) with ([0-9a-f]+)$", text))
            self.assertEqual(len(rows), 2, text)
            self.assertNotEqual(rows["began"], rows["ended"])
            if had is not None:
                self.assertIn("embd.sbatch: loaded job-", text)
                self.assertEqual(rows["began"], had)
            had = rows["ended"]
            self.assertEqual(os.listdir(self.path("tmp")), [], "journals end with the job")
        report("second Slurm job, on another number of nodes too", 0, 0)

    def test_a_server_that_is_killed_comes_back_and_the_job_goes_on(self):
        trainer = self.path("steps.py")
        with open(trainer, "w", encoding="ascii") as file:
            file.write(STEPS)
        job, output = self.submit("killed", "/usr/bin/python3", trainer, self.dir, data="other-data")
        self.wait_for(lambda: self.steps() >= 5, "step")
        before, killed = self.steps(), self.server_of(job, "s1")
        os.kill(killed, signal.SIGKILL)
        self.wait_for(lambda: self.steps() >= before + 10, "steps after it")
        with open(self.path("go"), "w", encoding="ascii"):
            pass
        text = self.finish(job, output)
        said = re.search(r"(?m)^pushed (\d+) rows \{(\S+)\} longest (\S+)$", text)
        self.assertEqual(float(said[2]), int(said[1]), text)
        self.assertEqual(os.listdir(self.path("tmp")), [], "journals end with the job")
        report("a server of a Slurm job is killed", float(said[3]), 0)

    def test_the_signal_before_the_time_limit_makes_a_snapshot_and_the_job_goes_on(self):
        job, output = self.submit("signalled", "bash", "-c", f"until [ -e {self.path('end')} ]; do sleep 0.1; done; echo trained")

        def says(text):
            if not os.path.exists(output):
                return False
            with open(output, encoding="utf-8") as file:
                return text in file.read()

        self.wait_for(lambda: os.path.exists(self.path(f"data/job-{job}/server-0.log")), "server's log")
        self.wait_for(lambda: run("squeue", "-h", "-s", "-j", job).stdout.count("\n") >= 3, "step of trainers")
        self.assertEqual(run("scancel", "--batch", "--signal=USR1", job).returncode, 0)
        self.wait_for(lambda: says(f"embd.sbatch: snapshot job-{job}-"), "snapshot")
        self.assertFalse(says("trained"))
        with open(self.path("end"), "w", encoding="ascii"):
            pass
        self.assertEqual(self.finish(job, output).count("trained\n"), 2)

    def test_a_trainer_that_fails_fails_the_job(self):
        self.finish(*self.submit("failed", "false"), state="FAILED")


if __name__ == "__main__":
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if missing():
        print(f"skipped: a Slurm of its own needs {missing()}")
        sys.exit(77)
    if INSIDE not in os.environ:
        os.environ[INSIDE] = "yes"
        os.execvp("unshare", ["unshare", "--mount", "--net", "--propagation", "private", sys.executable, *sys.argv])
    unittest.main()
