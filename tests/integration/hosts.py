"""Hosts of one machine, each with a network namespace of its own: what passes between them, and between them and the tests, can be
cut off in either direction, and then nobody is told. The tests are the hub, through which hosts reach each other. Needs `unshare` of
util-linux, `ip` and `iptables`, and root or namespaces of users."""
import os
import shutil
import subprocess
import sys
import time

HUB = "10.77.0.1"
INSIDE = "EMBD_TEST_HUB"
TOOLS = ("unshare", "nsenter", "ip", "iptables")


def run(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True)


def _works(flags):
    return subprocess.run(["unshare", *flags, "iptables", "-w", "-L", "-n"], capture_output=True, check=False).returncode == 0


def become_hub():
    """Runs the calling program once more, in a network namespace of its own. False: there are none here."""
    os.environ["PATH"] += os.pathsep + "/usr/sbin"
    if INSIDE not in os.environ:
        if any(shutil.which(tool) is None for tool in TOOLS):
            return False
        flags = next((flags for flags in (["-n"], ["-r", "-n"]) if _works(flags)), None)
        if flags is None:
            return False
        os.environ[INSIDE] = "yes"
        os.execvp("unshare", ["unshare", *flags, sys.executable, "-B", *sys.argv])
    run("ip", "link", "set", "lo", "up")
    run("ip", "address", "replace", f"{HUB}/32", "dev", "lo")
    with open("/proc/sys/net/ipv4/ip_forward", "w", encoding="ascii") as file:
        file.write("1\n")
    return True


class Host:
    """Its namespace lasts as long as a process that reads its end of a pipe."""

    def __init__(self, number):
        self.number, self.link, self.address = number, f"host{number}", f"10.77.{number}.2"
        own = os.readlink("/proc/self/ns/net")
        self.process = subprocess.Popen(["unshare", "-n", "cat"], stdin=subprocess.PIPE)
        end = time.monotonic() + 60
        while os.readlink(f"/proc/{self.process.pid}/ns/net") == own:
            assert self.process.poll() is None and time.monotonic() < end, "there is no namespace"
            time.sleep(0.01)
        run("ip", "link", "add", self.link, "type", "veth", "peer", "name", "up0", "netns", self.process.pid)
        run("ip", "address", "add", f"10.77.{number}.1/24", "dev", self.link)
        run("ip", "link", "set", self.link, "up")
        for words in (("link", "set", "lo", "up"), ("address", "add", f"{self.address}/24", "dev", "up0"), ("link", "set", "up0", "up"),
                      ("route", "add", "default", "via", f"10.77.{number}.1")):
            run(*self.within(), "ip", *words)

    def within(self):
        """What a command begins with that runs there."""
        return ["nsenter", "-t", str(self.process.pid), "-n", "--"]

    def close(self):
        self.process.stdin.close()
        self.process.wait()

    # What no longer passes. `ways`: "to" it, "from" it.

    def cut_hosts(self, ways):
        """Off from the other hosts."""
        for way, flag in (("to", "-o"), ("from", "-i")):
            if way in ways:
                run("iptables", "-w", "-A", "FORWARD", flag, self.link, "-j", "DROP")

    def cut_port_of_hub(self, ways, port):
        if "to" in ways:
            run("iptables", "-w", "-A", "OUTPUT", "-o", self.link, "-p", "tcp", "--sport", port, "-j", "DROP")
        if "from" in ways:
            run("iptables", "-w", "-A", "INPUT", "-i", self.link, "-p", "tcp", "--dport", port, "-j", "DROP")

    def cut_own_ports(self, ways, first, n):
        """Off from who connects to them from the hub."""
        ports = f"{first}:{first + n - 1}"
        if "to" in ways:
            run("iptables", "-w", "-A", "OUTPUT", "-o", self.link, "-p", "tcp", "--dport", ports, "-j", "DROP")
        if "from" in ways:
            run("iptables", "-w", "-A", "INPUT", "-i", self.link, "-p", "tcp", "--sport", ports, "-j", "DROP")


def heal():
    """All passes again."""
    for chain in ("FORWARD", "INPUT", "OUTPUT"):
        run("iptables", "-w", "-F", chain)
