"""The lab: User Mode Linux guests on a private network, for tests of the real kernel target.

A Lab is a network of its own and a folder; it lives in the process that made it, which enters the
network (so iscsi-ls and friends, started from there, reach the guests). Guests are process groups:
killing one is a host crash. Everything ends with the process; what a killed process left is swept by the next one.
"""
import ctypes
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.realpath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
BUILD = os.path.realpath(os.environ.get("PLX_LAB_BUILD") or os.path.join(SOURCE, "build"))
HANDLERS = BUILD  # where tcmu-runner in the guests takes its handlers from
UML = "linux.uml"
PORT = 7070
SKIPPED = 77
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1

libc = ctypes.CDLL(None, use_errno=True)


class Failure(Exception):
    """A test's expectation does not hold, or the lab itself does not work."""


class Overdue(Failure):
    """A command still runs when it should have ended."""


class Skip(Exception):
    """The test cannot run here, and why."""


class Result:
    """What a command in a guest did."""

    def __init__(self, code, out, err):
        self.code, self.out, self.err = code, out, err

    @property
    def text(self):
        return self.out.strip()


def say(*words):
    print(f"[{time.monotonic() - STARTED:6.1f}]", *words, flush=True)


STARTED = time.monotonic()


def check(condition, *words):
    """assert, but on in every mode and with words for the reader of a log."""
    if not condition:
        raise Failure(" ".join(str(word) for word in words))


def wait_until(condition, *words, seconds=60):
    """Until condition() is true. A word may be a function, asked when it has not become true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            check(False, *(word() if callable(word) else word for word in words))
        time.sleep(0.1)


def need():
    """Skip with the reason when this machine cannot run guests."""
    if os.geteuid() != 0:
        raise Skip("the lab needs root (network namespace, tap devices)")
    for program, package in ((UML, "user-mode-linux"), ("ip", "iproute2"),
                             ("tcmu-runner", "tcmu-runner"), ("iscsiadm", "open-iscsi")):
        if not shutil.which(program):
            raise Skip(f"{program} is missing: install {package} (tests/install-deps does)")
    if not os.path.exists("/dev/net/tun"):
        raise Skip("/dev/net/tun is missing: guests have no network")


def turns(items, count):
    """So many of the items, others each day (PLX_DAY: those of another day); with PLX_NIGHTLY all of them."""
    day = int(os.environ.get("PLX_DAY") or time.time() // 86400)
    items = list(items)
    if os.environ.get("PLX_NIGHTLY"):
        return items
    return [items[(day + n) % len(items)] for n in range(min(count, len(items)))]


def built(*names):
    """Skip when a build result is not there (yet)."""
    for name in names:
        if not os.path.exists(os.path.join(BUILD, name)):
            raise Skip(f"{os.path.join(BUILD, name)} is not built")


def host(*argv, timeout=60, ok=True):
    """Run a command on this machine, in the lab's network."""
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          errors="replace", timeout=timeout, check=False)
    if ok and done.returncode:
        raise Failure(f"{' '.join(argv)}: exit {done.returncode}: {done.stderr.strip()}")
    return Result(done.returncode, done.stdout, done.stderr)


def enter_network(pid):
    """Move this thread into the network of the process PID."""
    fd = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
    if libc.setns(fd, CLONE_NEWNET):
        raise OSError(ctypes.get_errno(), "setns")
    os.close(fd)


# ---- what a killed lab leaves behind ------------------------------------------------------------

def born(pid):
    """Start time of a process, which tells it from a later one with the same number."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return None


def kill_group(pgid):
    """kill -9 a whole process group and wait until nothing of it runs."""
    for _ in range(500):
        try:
            os.killpg(pgid, signal.SIGKILL)
        except ProcessLookupError:
            return
        try:
            os.waitpid(-pgid, os.WNOHANG)
        except ChildProcessError:
            pass
        time.sleep(0.01)
    raise Failure(f"process group {pgid} survives kill -9")


def write_pid(path, pid):
    with open(path, "w", encoding="ascii") as out:
        out.write(f"{pid} {born(pid)}\n")


def read_pid(path):
    """The process that PATH names, or None when it is gone."""
    try:
        with open(path, encoding="ascii") as text:
            pid, start = text.read().split()
    except (OSError, ValueError):
        return None
    return int(pid) if born(pid) == start else None


def remove_lab(folder):
    for name in os.listdir(folder):
        pid = read_pid(os.path.join(folder, name)) if name.endswith(".pid") else None
        if pid and name != "owner.pid":
            kill_group(pid)
    shutil.rmtree(folder, ignore_errors=True)


def sweep():
    """Remove labs whose owner died before it could clean up."""
    for name in os.listdir(tempfile.gettempdir()):
        folder = os.path.join(tempfile.gettempdir(), name)
        owner = os.path.join(folder, "owner.pid")
        if name.startswith("plxlab-") and os.path.exists(owner) and not read_pid(owner):
            remove_lab(folder)


# ---- the lab ------------------------------------------------------------------------------------

class Lab:
    """A network 10.9.0.0/24 with this process at .1 and guests h1, h2, ... at .11, .12, ..."""

    def __init__(self, folder=None):
        """folder: a lab that goes on when this process ends, until remove_lab(folder)."""
        need()
        sweep()
        self.keep = folder is not None
        self.guests = []
        self.shared = set()
        if self.keep:
            os.makedirs(folder)
            self.folder = folder
        else:
            self.folder = tempfile.mkdtemp(prefix="plxlab-")
            write_pid(os.path.join(self.folder, "owner.pid"), os.getpid())
        if libc.unshare(CLONE_NEWNET):
            shutil.rmtree(self.folder)
            raise Skip(f"no network namespace: {os.strerror(ctypes.get_errno())}")
        host("ip", "link", "set", "lo", "up")
        host("ip", "link", "add", "lab0", "type", "bridge")
        host("ip", "address", "add", "10.9.0.1/24", "dev", "lab0")
        host("ip", "link", "set", "lab0", "up")

    def __enter__(self):
        # A terminated test must unwind, not vanish.
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        return self

    def __exit__(self, kind, value, trace):
        if self.keep and kind is None:
            return
        if kind is not None:  # again at the end: what comes between is long, and may be cut
            say(f"FAILED, and how its guests are follows: {value}")
        for guest in self.guests:
            if kind is not None and guest.pid:
                guest.show_logs()
            guest.kill()
        if os.environ.get("PLX_LAB_KEEP"):
            say("kept:", self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)

    def guest(self, mem="512M", disks=(), name=None):
        """A booted guest. Disks are image files: /dev/ubda, /dev/ubdb, ... in the guest."""
        guest = Guest(self, len(self.guests) + 1, mem, list(disks), name)
        self.guests.append(guest)
        guest.start()
        return guest

    def disk(self, name, size, shared=False):
        """A sparse image file of SIZE bytes. shared: several guests may have it at the same time."""
        path = os.path.join(self.folder, name)
        with open(path, "xb") as image:
            image.truncate(size)
        if shared:
            self.shared.add(path)
        return path


def preload(folder):
    """Environment for linux.uml, see fpregs.c; without a compiler most machines do as well."""
    library = os.path.join(folder, "fpregs.so")
    if not os.path.exists(library) and shutil.which("cc"):
        host("cc", "-shared", "-fPIC", "-O2", "-o", library, os.path.join(HERE, "fpregs.c"))
    return {**os.environ, "LD_PRELOAD": library} if os.path.exists(library) else None


def end_with_parent():
    """ctest kills with SIGKILL; linux.uml takes its helpers along when it is terminated."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


class Guest:
    """One host of the lab. `run` runs bash -e in it with the functions of inside.sh."""

    def __init__(self, lab, number, mem, disks, name=None):
        self.lab, self.number, self.mem, self.disks = lab, number, mem, disks
        self.name = name or f"h{number}"
        self.ip = f"10.9.0.{10 + number}"
        self.tap = f"tap{number}"
        self.share = os.path.join(lab.folder, self.name)  # /run/lab in the guest
        self.console = os.path.join(lab.folder, f"{self.name}.console")
        self.pid = None
        os.mkdir(self.share)

    def start(self):
        check(not self.pid, self.name, "runs already")
        if host("ip", "link", "show", self.tap, ok=False).code:
            host("ip", "tuntap", "add", self.tap, "mode", "tap")
            host("ip", "link", "set", self.tap, "master", "lab0", "up")
        uml = os.path.join(self.lab.folder, "uml")
        shutil.rmtree(os.path.join(uml, self.name), ignore_errors=True)
        argv = [UML, f"umid={self.name}", f"uml_dir={uml}/", f"mem={self.mem}",
                "rootfstype=hostfs", "rootflags=/", "ro", "quiet", "panic=1", f"init={HERE}/init",
                "con=null", "con0=fd:0,fd:1", f"NAME={self.name}", f"IP={self.ip}/24", f"LAB={HERE}",
                f"SHARE={self.share}",
                f"vec0:transport=tap,ifname={self.tap},depth=128,gro=1,"
                f"mac=02:00:00:00:00:{self.number:02x}"]
        argv += [f"ubd{chr(97 + n)}{'c' if path in self.lab.shared else ''}={path}" for n, path in enumerate(self.disks)]
        begin = time.monotonic()
        with open(self.console, "ab") as console:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=console,
                                            stderr=console, start_new_session=True,
                                            env=preload(self.lab.folder),
                                            preexec_fn=None if self.lab.keep else end_with_parent)
        self.pid = self.process.pid
        write_pid(os.path.join(self.lab.folder, f"{self.name}.pid"), self.pid)
        deadline = begin + 90
        while True:
            try:
                self.run("true", timeout=5)
                break
            except (OSError, Failure) as error:
                dead = self.process.poll() is not None
                if dead or time.monotonic() > deadline:
                    self.show_logs()
                    self.kill()
                    raise Failure(f"{self.name} does not boot: {error}") from None
                time.sleep(0.1)
        say(f"{self.name} up after {time.monotonic() - begin:.1f} s")

    def popen(self, script, env=None, stdin=False):
        return Command(self, script, env, stdin)

    def run(self, script, timeout=60, ok=True, env=None):
        """Run a bash script in the guest; a status other than 0 is a failure unless ok=False."""
        with Command(self, script, env) as command:
            try:
                result = command.finish(timeout)
            except Overdue:
                self.show_processes()
                raise
        if ok and result.code:
            raise Failure(f"{self.name}: exit {result.code}: {script.strip()}\n"
                          f"{result.out[-2000:]}{result.err[-2000:]}")
        return result

    def kill(self):
        """The host crashes."""
        if self.pid:
            kill_group(self.pid)
            self.process.wait(10)
            self.pid = None

    def stop(self):
        """The host shuts down: file systems are synced, then power off."""
        if not self.pid:
            return
        try:
            power_off(self.ip)
            self.process.wait(20)
        except (OSError, subprocess.TimeoutExpired):
            say(f"{self.name} does not power off: killed")
        self.kill()

    def killed_by_uml(self):
        """What UML says when it kills a process of the guest because the host refused one of its calls. Whatever that
        process served hangs or is gone, and neither handler nor kernel is to blame."""
        with open(self.console, encoding="utf-8", errors="replace") as text:
            return re.findall(r"ptrace [a-z ]*failed, errno = [0-9]+", text.read())

    def show_processes(self):
        """What runs, and where each of ours is: for whoever asks what a command waits for."""
        script = """ps -eo pid,ppid,stat,wchan:24,etimes,args | grep -v '\\]$'
for pid in $(pgrep -x parallax); do
    echo "-- $pid"
    ! command -v gdb >/dev/null || timeout 30 gdb -p $pid -batch -ex 'thread apply all bt 12' 2>&1 | grep -E '^(#|Thread)'
done"""
        try:
            with Command(self, script) as command:
                print(f"---- {self.name} processes\n" + command.finish(90).out, flush=True)
        except (OSError, Failure) as error:
            print(f"---- {self.name} does not tell its processes: {error}", flush=True)

    def show_logs(self):
        """Console and daemon log for whoever reads the failure."""
        for line in self.killed_by_uml():
            print(f"---- {self.name}: THE LAB'S OWN FAULT, see fpregs.c: UML killed a process of the guest: {line}", flush=True)
        with open(self.console, encoding="utf-8", errors="replace") as text:
            print(f"---- {self.name} console\n" + "".join(text.readlines()[-30:]), flush=True)
        try:
            log = self.run("dmesg | tail -30; tail -n 50 /var/log/tcmu-runner.log; "
                           "cat $RUNNER_OUT; ! command -v gdb >/dev/null || ! runner_alive || "
                           "timeout 30 gdb -p $(runner_pid) -batch -ex 'thread apply all bt 12' 2>&1 | grep -E '^(#|Thread)'",
                           timeout=60, ok=False)
            print(f"---- {self.name} kernel and tcmu-runner\n" + log.out, flush=True)
        except (OSError, Failure) as error:
            print(f"---- {self.name} does not answer: {error}", flush=True)


def power_off(ip):
    """Ask a guest to sync and end. It closes no connection: its process is what to wait for."""
    with socket.create_connection((ip, PORT), timeout=5) as conn:
        conn.sendall(json.dumps({"poweroff": True}).encode() + b"\n")


class Remote:
    """A guest that another process started, seen from this one, which enters its network."""

    def __init__(self, folder, name="h1"):
        pid = read_pid(os.path.join(folder, f"{name}.pid"))
        check(pid, f"no guest {name} runs in {folder}")
        enter_network(pid)
        self.name, self.ip = name, f"10.9.0.{10 + int(name[1:])}"


class Command:
    """A command that runs in a guest. Closing it kills it."""

    def __init__(self, guest, script, env=None, stdin=False):
        script = f". {HERE}/inside.sh\n{script}"
        order = {"argv": ["/bin/bash", "-e", "-c", script], "stdin": stdin,
                 "env": {"LAB": HERE, "BUILD": BUILD, "HANDLERS": HANDLERS, **(env or {})}}
        self.where = guest.name
        self.conn = socket.create_connection((guest.ip, PORT), timeout=5)
        self.conn.sendall(json.dumps(order).encode() + b"\n")
        self.pending = b""
        self.out, self.err = bytearray(), bytearray()
        self.code = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.conn.close()

    def _take(self, size, deadline):
        while len(self.pending) < size if isinstance(size, int) else size not in self.pending:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{self.where}: no answer in time")
            self.conn.settimeout(min(left, 3600))
            data = self.conn.recv(1 << 16)
            if not data:
                raise ConnectionError(f"{self.where}: connection lost")
            self.pending += data
        if not isinstance(size, int):
            size = self.pending.index(size) + len(size)
        taken, self.pending = self.pending[:size], self.pending[size:]
        return taken

    def frame(self, deadline):
        """Take the next piece of output; False after the last."""
        kind, length = self._take(b"\n", deadline).split()
        data = self._take(int(length), deadline)
        if kind == b"0":
            self.code = int(data)
            return False
        (self.out if kind == b"1" else self.err).extend(data)
        return True

    def finish(self, timeout=60):
        deadline = time.monotonic() + timeout
        try:
            while self.frame(deadline):
                pass
        except TimeoutError:
            raise Overdue(f"{self.where}: still running after {timeout} s\n"
                          f"{self.out[-1000:].decode(errors='replace')}"
                          f"{self.err[-1000:].decode(errors='replace')}") from None
        return Result(self.code, self.out.decode(errors="replace"),
                      self.err.decode(errors="replace"))

    def show(self, timeout=86400):
        """Output as it comes, for a person who is waiting; the exit status."""
        deadline, shown, more = time.monotonic() + timeout, {sys.stdout: 0, sys.stderr: 0}, True
        while more:
            more = self.frame(deadline)
            for stream, data in ((sys.stdout, self.out), (sys.stderr, self.err)):
                stream.buffer.write(data[shown[stream]:])
                stream.flush()
                shown[stream] = len(data)
        return self.code

    def drain(self):
        """Collect output until the guest is gone or the command ends: for crash tests."""
        try:
            while self.frame(time.monotonic() + 3600):
                pass
        except OSError:
            pass

    def drain_in_background(self):
        thread = threading.Thread(target=self.drain, daemon=True)
        thread.start()
        return thread


def forward(listener, address):
    """Hand each connection of LISTENER to ADDRESS, until killed."""

    def pump(source, sink):
        try:
            while data := source.recv(1 << 18):
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            for end in (source, sink):
                try:
                    end.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass

    while True:
        conn, _ = listener.accept()
        try:
            far = socket.create_connection(address, timeout=5)
        except OSError:
            conn.close()
            continue
        far.settimeout(None)
        for end in (conn, far):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for pair in ((conn, far), (far, conn)):
            threading.Thread(target=pump, args=pair, daemon=True).start()


def main(test):
    """Run a test script's function and turn its end into an exit status."""
    try:
        test()
    except Skip as reason:
        print("SKIPPED:", reason)
        sys.exit(SKIPPED)
    except Failure as reason:
        print("FAILED:", reason)
        sys.exit(1)
    say("passed")
