#!/usr/bin/env python3
"""ext4 on a LUN of a store that fills up, with snapshots on: told before, refused at the end, and whole afterwards.

What an fsync has returned for is there when the store is full and again when there is space: by deleting snapshots, by
deleting files and trimming, by a further volume. tcmu-runner is never restarted, and who tries again gets through.
"""
import json

import lab
from lab import check, say

MIB = 1 << 20
SIZE = 256 * MIB   # of the disk
STORE = 160 * MIB  # and of what it lies on
MORE = 160 * MIB   # and of the volume that is added
RAW = 64 * MIB     # of a disk without a file system
FILES_MAX = 2000

# Files until one cannot be written; each is told, with its checksum, once its fsync has returned. Some are deleted again
# and live on in snapshots: what is told with no checksum may be there or not.
FILL = r"""
import hashlib, os, subprocess, sys
first, most = int(os.environ["FIRST"]), int(os.environ["MOST"])
for n in range(first, first + most):
    data = os.urandom(1 + n * 7919 % 900000)
    try:
        fd = os.open(f"/mnt/v/f{n}", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.write(fd, data)
        os.fsync(fd)
        os.close(fd)
        folder = os.open("/mnt/v", os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)
    except OSError as error:
        print("refused", os.strerror(error.errno), flush=True)
        break
    print(f"f{n}", hashlib.sha256(data).hexdigest(), flush=True)
    if n % 2 and n - first > 40:
        print(f"f{n - 40} gone", flush=True)
        os.unlink(f"/mnt/v/f{n - 40}")
    if n % 16 == 0 and os.environ["SNAPSHOTS"]:
        subprocess.run(["parallax", "-q", "snap", "create", "s/v"], check=True, stdout=subprocess.DEVNULL)
"""

# Writes a whole disk, again and again where it is refused for want of space, then reads it back.
PERSIST = r"""
import errno, mmap, os, random, sys, time
path, size, chunk = os.environ["DISK"], int(os.environ["SIZE"]), 256 << 10
fd = os.open(path, os.O_RDWR | os.O_DIRECT)
buffer = mmap.mmap(-1, chunk)
refused = 0
for at in range(0, size, chunk):
    buffer[:] = random.Random(at).randbytes(chunk)
    while True:
        try:
            assert os.pwritev(fd, [buffer], at) == chunk
            break
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            refused += 1
            open("/run/refused", "w").close()
            time.sleep(0.2)
os.fsync(fd)
for at in range(0, size, chunk):
    assert os.preadv(fd, [buffer], at) == chunk
    assert buffer[:] == random.Random(at).randbytes(chunk), at
print("refused", refused, "times")
"""


class Disk:
    """A file system on the LUN, and the files that it has acknowledged."""

    def __init__(self, guest):
        self.guest = guest
        self.files = {}
        self.next = 0

    def mount(self):
        self.guest.run("mkdir -p /mnt/v && mount -t ext4 -o errors=remount-ro,discard $(disk 0) /mnt/v", timeout=60)

    def unmount_and_check(self):
        """The journal is replayed by mounting; then there must be nothing to repair."""
        self.guest.run("umount /mnt/v", timeout=120)
        self.mount()
        self.guest.run("umount /mnt/v && e2fsck -fn $(disk 0)", timeout=120)
        self.mount()

    def fill(self, most=FILES_MAX, snapshots=True):
        """Returns why it ended; None: as many as were wanted."""
        done = self.guest.run("python3 - <<'END'\n" + FILL + "END\n", timeout=300,
                              env={"FIRST": str(self.next), "MOST": str(most), "SNAPSHOTS": "1" if snapshots else ""})
        lines = [line.split(maxsplit=1) for line in done.out.splitlines()]
        refused = lines.pop()[1] if lines and lines[-1][0] == "refused" else None
        for name, checksum in lines:
            self.files[name] = checksum
        self.files = {name: checksum for name, checksum in self.files.items() if checksum != "gone"}
        self.next = 1 + max(int(name[1:]) for name, _ in lines)
        say(f"up to file {self.next}, then: {refused}")
        return refused

    def verify(self):
        """From the device, not from the cache."""
        found = self.guest.run("echo 3 >/proc/sys/vm/drop_caches; cd /mnt/v && sha256sum f*", timeout=120).out
        there = {name: checksum for checksum, name in (line.split() for line in found.splitlines())}
        for name, checksum in self.files.items():
            check(there.get(name) == checksum, f"{name} is {there.get(name)}, not {checksum}")
        say(f"{len(self.files)} files are intact")

    def forget(self, every):
        gone = list(self.files)[::every]
        self.guest.run(f"cd /mnt/v && rm {' '.join(gone)} && sync && fstrim /mnt/v", timeout=120)
        for name in gone:
            del self.files[name]


def space(guest):
    info = json.loads(guest.run("parallax store info s --json").out)
    say("  ".join(f"{key} {info[key + '_bytes'] // MIB}M" for key in ("used", "available", "reserved")))
    check(0 < info["recovery_bytes"] <= info["reserved_bytes"], "nothing is left to recovering the open disks", info)
    return info


def refused_raw(guest):
    """A disk of its own, without a file system between: the initiator's kernel knows the sense code."""
    done = guest.run("dd if=/dev/urandom of=$(disk 1) bs=64k count=512 oflag=direct", ok=False, timeout=120)
    check(done.code != 0 and "No space left on device" in done.err, "not refused for space:", done.code, done.err)


def told(guest):
    """The soft limit: the handler's log has it, and that of the initiator's kernel with the next command."""
    guest.run("wait_for 20 grep -q 'bytes used, limit' /var/log/tcmu-runner.log")
    check("soft limit is crossed" in guest.run("parallax store info s").out, "store info does not warn")
    # What the file system could not write, of itself, is told to whoever reads the device next, once.
    guest.run("read='dd if='$(disk 0)' of=/dev/null bs=4k count=1 iflag=direct'; $read || $read; dmesg | grep 'provisioning soft threshold'")


def let_go(guest):
    """All snapshots but a new one."""
    guest.run("parallax -q snap create s/v >/dev/null && parallax -q snap delete s/v@.. --force", timeout=120)


def grow(guest):
    """While one writer stands on a disk of the full store; nobody logs in again."""
    before = space(guest)
    writer = guest.popen("exec python3 - <<'END'\n" + PERSIST + "END\n", env={"DISK": guest.run("disk 1").out.strip(),
                                                                              "SIZE": str(RAW)})
    guest.run("wait_for 60 test -e /run/refused", timeout=90)
    guest.run("parallax store add-volume s /dev/ubdb", timeout=60)
    done = writer.finish(180)
    writer.conn.close()
    check(done.code == 0, "the writer did not get through:", done.out, done.err)
    say(f"a disk of {RAW // MIB} MiB was written through, {done.out.strip()}")
    after = space(guest)
    check(after["size_bytes"] > before["size_bytes"] + MORE // 2, "the store did not grow")
    guest.run("runner_alive")


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", STORE), here.disk("more.img", MORE)])
        guest.run("parallax store format s --volume /dev/ubda --extent-size 1M && parallax vdi create s/v --size 256M && "
                  f"parallax vdi create s/raw --size {RAW} && parallax store set s --warn-at 60% && "
                  f"runner_up && put 0 parallax/s/v {SIZE} && put 1 parallax/s/raw {RAW} && login && "
                  "mkfs.ext4 -q -m 0 $(disk 0)", timeout=120)
        disk = Disk(guest)
        disk.mount()
        check(disk.fill() is not None, "the store did not fill up")
        told(guest)
        full = space(guest)
        refused_raw(guest)
        disk.verify()
        let_go(guest)
        check(space(guest)["available_bytes"] > full["available_bytes"], "deleting snapshots freed nothing")
        disk.unmount_and_check()
        disk.verify()
        disk.fill(40, snapshots=False)
        before = space(guest)["used_bytes"]
        disk.forget(2)
        let_go(guest)
        check(space(guest)["used_bytes"] < before - 5 * MIB, "trimming freed nothing")
        disk.verify()
        guest.run("fio --name=again --directory=/mnt/v --size=8M --rw=randwrite --bs=4k --verify=crc32c "
                  "--end_fsync=1 --do_verify=1 --minimal >/dev/null && rm /mnt/v/again*", timeout=180)
        check(disk.fill() is not None, "the store did not fill up again")
        grow(guest)
        disk.unmount_and_check()
        disk.verify()
        check(disk.fill(40) is None, "refused although the store has grown")
        disk.verify()
        let_go(guest)
        guest.run("runner_alive && umount /mnt/v && logout && target_down && runner_down", timeout=120)
        guest.run("parallax store check s --data", timeout=180)
        guest.stop()


lab.main(test)
