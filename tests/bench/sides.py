"""The sides of the comparison (run): ways to keep a virtual disk, all driven by the same load generator (harness.c).

A side makes disks, takes snapshots of them and opens them. A disk is "full" when every block has been written
once. What a side cannot do here it says by Skip.
"""
import array
import ctypes
import fcntl
import glob
import json
import os
import select
import shutil
import socket
import subprocess
import time

MIB, BLOCK = 1 << 20, 4096
QCOW_HANDLER = "/usr/lib/*/tcmu-runner/handler_qcow.so"
DEPTH_MAX = 32
PATIENCE = 30  # seconds that somebody may take to answer
FICLONE = 0x40049409
CLONE_NEWNS = 0x20000


class Skip(Exception):
    """Cannot be measured here, and why."""


class Failure(Exception):
    """A side does not do what it must; there is nothing to compare then."""


def command(*words, env=None):
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, env=env)
    if done.returncode:
        raise Failure(f"{' '.join(map(str, words))}: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def need(*programs):
    for program in programs:
        if not shutil.which(program):
            raise Skip(f"{program} is not installed (tests/install-deps)")


def write_zeroes(path, size):
    """Space that the file system has given out already, as on a device."""
    command("dd", "if=/dev/zero", f"of={path}", "bs=4M", f"count={-(-size // (4 * MIB))}", "oflag=direct", "status=none")


def wait_for(path, process):
    for _ in range(500):
        if os.path.exists(path):
            return
        if process.poll() is not None:
            break
        time.sleep(0.01)
    raise Failure(f"{process.args[0]} did not start")


class Side:
    name = handler = None
    essential = copies = False  # nothing can be said without it; overwrite=copy
    environment = None

    def __init__(self, bench):
        self.bench, self.size = bench, bench.size
        self.process = None

    def make(self, disk):
        """An empty disk."""

    def fill(self, *disks):
        """Makes full ones of them."""
        self.write(disks, "--rw", "write", "--bs", MIB, "--iodepth", 4, "--ops", self.size // MIB)

    def write(self, disks, *words):
        """All at the same time, each with the next letter."""
        letters = range(ord("a"), ord("z"))
        writers = [self.harness(disk, False, *words, "--fill", letter, stdout=subprocess.DEVNULL) for disk, letter in zip(disks, letters)]
        if any([writer.wait() for writer in writers]):
            raise Failure(f"{self.name}: writing the disk failed: {self.bench.last_words()}")

    def address(self, disk, durable):
        """The cfgstring. durable: a write is complete when no power cut can undo it, else as a disk with a cache does it."""

    def file(self, disk):
        """What the page cache may hold of it."""

    def snapshot(self, disk):
        """While it is closed."""
        raise Skip("there are no snapshots")

    def snapshot_live(self, disk):
        """While it is written; returns when the snapshot is there."""
        raise Skip("no snapshots of a disk in use")

    # ---- Driving it --------------------------------------------------------------------------

    def harness(self, disk, durable, *words, **streams):
        return subprocess.Popen([self.bench.program("harness"), self.handler, self.address(disk, durable), "--size", str(self.size),
                                 *map(str, words)], text=True, stderr=self.bench.log, env=self.environment, **streams)

    def open(self, disk, durable=False):
        self.process = self.harness(disk, durable, "--serve", "--iodepth", DEPTH_MAX,
                                    stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def begin(self, load, seconds):
        self.process.stdin.write(f"{load} {seconds}\n")
        self.process.stdin.flush()

    def end(self):
        if not select.select([self.process.stdout], [], [], self.bench.seconds + PATIENCE)[0]:
            raise Failure(f"{self.name}: no answer in {PATIENCE} s: {self.bench.last_words()}")
        line = self.process.stdout.readline()
        result = json.loads(line) if line else {"failed": "all"}
        if result["failed"]:
            raise Failure(f"{self.name}: requests failed: {self.bench.last_words()}")
        return result

    def load(self, load, seconds):
        self.begin(load, seconds)
        return self.end()

    def forget(self, disk):
        """Nobody is to be faster because the page cache has read it before."""
        with open(self.file(disk), "rb") as file:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self):
        if self.process:
            self.process.stdin.close()
            self.process.stdout.close()
            if self.process.wait():
                raise Failure(f"{self.name}: {self.bench.last_words()}")
        self.process = None

    def remove(self):
        if self.process:
            self.process.kill()
            self.process.wait()


def whole_pieces(blocks):
    """Of the blocks, the starts of stretches of 1 MiB."""
    starts, begin, end = [], None, None
    for block in blocks:
        if block != end:
            begin = block
        end = block + BLOCK
        if end - begin == MIB:
            starts.append(begin)
            begin = end
    return starts


class Raw(Side):
    """The device itself, in a place beside what the others write. It has one disk, that is always full.

    Of two files, or of two places of one, either may be twice as fast as the other (seen on virtual machines' disks,
    whose hosts give them space as they please). So it has blocks of the store's own volume, among those of the disk
    that is measured: another disk's, which is never opened again.
    """
    name = handler = "raw"
    essential = True

    def __init__(self, bench, volume, blocks):
        """blocks: where those of the disk that is given up start in the volume, in ascending order."""
        super().__init__(bench)
        self.volume, self.map = volume, bench.path("raw.map")
        starts = whole_pieces(blocks)
        if not starts:
            raise Failure("the store has scattered a disk that was written from one end to the other")
        self.size = len(starts) * MIB
        with open(self.map, "wb") as file:
            array.array("Q", starts).tofile(file)

    def file(self, disk):
        return self.volume

    def address(self, disk, durable):
        return f"raw/{self.volume};map={self.map}{';dsync' if durable else ''}"

    def begin(self, load, seconds):
        """It knows no first writes."""
        super().begin(load.replace("randonce", "randwrite"), seconds)

    def snapshot(self, disk):
        """Nothing to do: it is the limit of what is written after a snapshot, too."""


class Fio(Side):
    """The device again, by somebody else's load generator: the harness itself must not be what limits."""
    name = "fio"

    def __init__(self, bench):
        need("fio")
        super().__init__(bench)
        self.path = bench.path("fio.img")
        write_zeroes(self.path, bench.size)

    def make(self, disk):
        if disk != "full":
            raise Skip("raw is enough")

    def fill(self, disk):
        """It is full."""

    def file(self, disk):
        return self.path

    def open(self, disk, durable=False):
        self.durable = durable

    def load(self, load, seconds):
        rw, size, depth = load.split()
        words = ["fio", "--name=x", f"--filename={self.path}", f"--size={self.bench.size}", f"--rw={rw}", f"--bs={size}",
                 f"--iodepth={depth}", "--ioengine=libaio", "--direct=1", "--time_based", f"--runtime={int(seconds * 1000)}ms",
                 "--randrepeat=0", "--output-format=json"] + (["--sync=dsync"] if self.durable else [])
        job = json.loads(command(*words))["jobs"][0]
        side = job["read" if "read" in rw else "write"]
        return {"iops": side["iops"], "mib_per_s": side["bw_bytes"] / MIB, "cpu_us": None}


class Parallax(Side):
    name = "parallax"
    essential = True
    store = "bench"
    control = None

    def __init__(self, bench):
        super().__init__(bench)
        self.handler = bench.program("handler_parallax.so")
        self.volume = self.make_volume()
        self.state = bench.path(f"{self.store}.state")
        self.environment = os.environ | {"PARALLAX_STATE_DIR": self.state}
        self.parallax("store", "format", self.store, "--volume", self.volume)
        self.snapshots = 0

    def make_volume(self):
        volume = self.bench.path(f"{self.store}.img")
        write_zeroes(volume, self.bench.room)
        return volume

    def fill_beside(self, disk):
        """Fills the disk and another one among it, and tells which blocks of the volume that has."""
        self.make("given-up")
        self.fill(disk, "given-up")
        mark = b"b" * BLOCK
        with open(self.volume, "rb") as volume:
            for start in range(0, self.bench.room, MIB):
                piece = volume.read(MIB)
                if mark in piece:
                    yield from (start + at for at in range(0, MIB, BLOCK) if piece.startswith(mark, at))

    def parallax(self, *words):
        return command(self.bench.program("parallax"), "-q", *words, env=self.environment)

    def make(self, disk):
        self.parallax("vdi", "create", f"{self.store}/{disk}", "--size", self.size)

    def address(self, disk, durable):
        return f"parallax/{self.store}/{disk};cache={'off' if durable else 'on'}{';overwrite=copy' if self.copies else ''}"

    def file(self, disk):
        return self.volume

    def snapshot(self, disk):
        self.snapshots += 1
        self.parallax("snap", "create", f"{self.store}/{disk}@s{self.snapshots}")

    def snapshot_live(self, disk):
        if not self.control:  # once for all snapshots, as the peers' monitors
            self.control = socket.socket(socket.AF_UNIX)
            self.control.connect(glob.glob(f"{self.state}/run/control/*.sock")[0])
            self.answers = self.control.makefile()
        self.control.sendall(json.dumps({"command": "snapshot", "vdi": disk}).encode() + b"\n")
        answer = json.loads(self.answers.readline())
        if not answer["ok"]:
            raise Failure(f"parallax: snapshot: {answer['error']['message']}")

    def close(self):
        super().close()
        if self.control:
            self.answers.close()
            self.control.close()
        self.control = None


class Qcow2(Side):
    """qcow2 by tcmu-runner's own handler, which goes through the page cache."""
    name, compat = "qcow2", "0.10"

    def __init__(self, bench):
        need("qemu-img")
        super().__init__(bench)
        self.handler = self.find_handler()
        self.snapshots = 0

    def find_handler(self):
        found = glob.glob(QCOW_HANDLER)
        if not found:
            raise Skip(f"no {QCOW_HANDLER} (package tcmu-runner)")
        return found[0]

    def file(self, disk):
        return self.bench.path(f"{self.name}.{disk}")

    def make(self, disk):
        command("qemu-img", "create", "-q", "-f", "qcow2", "-o", f"compat={self.compat}", self.file(disk), self.bench.size)

    def fill(self, disk):
        """By its own tool: the handler takes 2 ms for each cluster."""
        command("qemu-img", "convert", "-f", "raw", "-O", "qcow2", "-o", f"compat={self.compat}",
                self.bench.image(), self.file(disk))

    def address(self, disk, durable):
        if durable:
            raise Skip("handler_qcow acknowledges what is in the page cache")
        return f"qcow/{self.file(disk)}"

    def snapshot(self, disk):
        self.snapshots += 1
        command("qemu-img", "snapshot", "-c", f"s{self.snapshots}", self.file(disk))


class Qemu(Qcow2):
    """qcow2 by qemu-storage-daemon, direct I/O, over NBD: its socket is a cost that the others do not have."""
    name, compat = "qcow2-nbd", "1.1"
    daemon = None

    def find_handler(self):
        need("qemu-storage-daemon")
        return "nbd"

    def address(self, disk, durable):
        return f"nbd/{self.bench.path(self.name)}.nbd"

    def open(self, disk, durable=False):
        nbd, qmp = self.bench.path(f"{self.name}.nbd"), self.bench.path(f"{self.name}.qmp")
        self.daemon = subprocess.Popen(
            ["qemu-storage-daemon",
             *self.nodes(disk),
             "--nbd-server", f"addr.type=unix,addr.path={nbd}",
             "--export", f"nbd,id=nbd,node-name={self.top},name=disk,writable=on,writethrough={'on' if durable else 'off'}",
             "--chardev", f"socket,path={qmp},server=on,wait=off,id=qmp", "--monitor", "chardev=qmp"],
            stdout=self.bench.log, stderr=self.bench.log)
        wait_for(qmp, self.daemon)
        self.connect(qmp)
        super().open(disk)

    def connect(self, path):
        """One that has just started refuses at first, and now and then does not answer."""
        for _ in range(10):
            self.monitor = socket.socket(socket.AF_UNIX)
            self.monitor.settimeout(1)
            try:
                self.monitor.connect(path)
                self.answers = self.monitor.makefile()
                self.hear()
                self.ask("qmp_capabilities")
            except (OSError, Failure):
                self.monitor.close()
                time.sleep(0.1)
            else:
                self.monitor.settimeout(PATIENCE)
                return
        raise Failure("qemu-storage-daemon does not answer")

    def files(self, disk):
        """Those that it consists of; what is missing in one is in the one before."""
        return [self.file(disk)]

    def nodes(self, disk):
        words = []
        for n, file in enumerate(self.files(disk)):
            self.top, backing = f"disk{n}", f",backing=disk{n - 1}" if n else ""
            words += ["--blockdev", f"driver=file,node-name=file{n},filename={file},cache.direct=on,aio=native",
                      "--blockdev", f"driver=qcow2,node-name={self.top},file=file{n},cache.direct=on{backing}"]
        return words

    def hear(self):
        try:
            return json.loads(self.answers.readline())
        except (OSError, ValueError):  # in time, or at all
            raise Failure(f"qemu-storage-daemon: no answer: {self.bench.last_words()}") from None

    def ask(self, what, **arguments):
        self.monitor.sendall(json.dumps({"execute": what, "arguments": arguments}).encode() + b"\n")
        while True:
            answer = self.hear()
            if "error" in answer:
                raise Failure(f"qemu-storage-daemon: {what}: {answer['error']['desc']}")
            if "return" in answer:
                return

    def snapshot_live(self, disk):
        self.snapshots += 1
        self.ask("blockdev-snapshot-internal-sync", device=self.top, name=f"s{self.snapshots}")

    def end(self):
        return super().end() | {"cpu_us": None}  # most of it is the daemon's

    def close(self):
        super().close()
        if self.daemon:
            self.answers.close()
            self.monitor.close()
            self.daemon.terminate()
            try:
                self.daemon.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.daemon.kill()
                self.daemon.wait()
        self.daemon = None

    def remove(self):
        super().remove()
        if self.daemon:
            self.daemon.kill()
            self.daemon.wait()


class Chain(Qemu):
    """The same with external snapshots: each is a further file, which has what was written since."""
    name = "qcow2-chain"

    def __init__(self, bench):
        super().__init__(bench)
        self.newest = {}  # number of a disk's newest file

    def file(self, disk):
        return self.files(disk)[-1]

    def files(self, disk):
        return [self.bench.path(f"{self.name}.{disk}.{n}") for n in range(self.newest[disk] + 1)]

    def make(self, disk):
        self.newest[disk] = 0
        super().make(disk)

    def snapshot(self, disk):
        before = self.file(disk)
        self.newest[disk] += 1
        command("qemu-img", "create", "-q", "-f", "qcow2", "-o", f"compat={self.compat}", "-b", before, "-F", "qcow2", self.file(disk))

    def snapshot_live(self, disk):
        before, self.top = self.top, f"disk{self.newest[disk] + 1}"
        self.newest[disk] += 1
        self.ask("blockdev-snapshot-sync", **{"node-name": before, "snapshot-file": self.file(disk), "snapshot-node-name": self.top})


class Reflink(Side):
    """A file on a file system of its own, on a loop device; a snapshot is what cp --reflink makes."""
    handler = "raw"
    mkfs = options = ()

    def __init__(self, bench):
        need(self.mkfs[0], "losetup")
        if os.geteuid():
            raise Skip("needs root, to mount it")
        super().__init__(bench)
        self.copies = 0
        self.image, self.folder = bench.path(f"{self.name}.img"), bench.path(self.name)
        write_zeroes(self.image, bench.room)
        os.mkdir(self.folder)
        try:
            command(*self.mkfs, self.image)
            command("mount", "-o", ",".join(("loop", *self.options)), self.image, self.folder)
            for loop in command("losetup", "--noheadings", "--output", "NAME", "-j", self.image).split():
                command("losetup", "--direct-io=on", loop)
        except Failure as failure:
            self.remove()
            raise Skip(f"no such file system here: {failure}") from None

    def remove(self):
        super().remove()
        subprocess.run(["umount", self.folder], stderr=subprocess.DEVNULL)

    def file(self, disk):
        return f"{self.folder}/{disk}"

    def make(self, disk):
        with open(self.file(disk), "wb") as file:
            file.truncate(self.bench.size)

    def address(self, disk, durable):
        return f"raw/{self.file(disk)}{';dsync' if durable else ''}"

    def snapshot(self, disk):
        self.copies += 1
        with open(self.file(disk), "rb") as origin, open(f"{self.folder}/copy{self.copies}", "wb") as copy:
            fcntl.ioctl(copy.fileno(), FICLONE, origin.fileno())

    snapshot_live = snapshot


class Xfs(Reflink):
    name, mkfs = "xfs", ("mkfs.xfs", "-q", "-K", "-m", "reflink=1")


class Btrfs(Reflink):
    name, mkfs, options = "btrfs", ("mkfs.btrfs", "-q", "-K"), ("nodiscard",)


PEERS = (Raw, Qcow2, Qemu, Chain, Xfs, Btrfs, Fio)


def own_mounts():
    """What is mounted from here on is gone with this process, however it ends."""
    if os.geteuid() == 0 and ctypes.CDLL(None).unshare(CLONE_NEWNS) == 0:
        command("mount", "--make-rprivate", "/")
