#!/usr/bin/env python3
"""File systems on VDIs through the kernel initiator: snapshots, clones, trim, growth, many LUNs.

A snapshot is compared with what was true at its instant: one taken after a sync with the exact list of files and
checksums, one taken amid writes with the files whose fsync had returned before it was asked for. Three of each file
system's are looked at, others each day; with PLX_NIGHTLY in the environment all of them.
"""
import itertools
import json
import re
import time

import lab
from lab import check, say

MIB = 1 << 20
SIZE = 384 * MIB  # mkfs.xfs wants 300 MiB
MOUNT = {"ext4": "mount -t ext4", "xfs": "mount -t xfs -o nouuid"}  # a clone has its origin's UUID
NOREPLAY = {"ext4": "mount -t ext4 -o ro,noload", "xfs": "mount -t xfs -o ro,norecovery,nouuid"}

# Changes of every kind between two snapshots: new files, overwriting in place, appending, truncating, deleting.
STEP = r"""
cd /mnt/$FS && mkdir -p d$STEP && for n in 1 2 3 4 5 6; do
    head -c $((n * n * 20000)) /dev/urandom >d$STEP/f$n || exit
done
dd if=/dev/urandom of=steady bs=4k count=64 seek=$((STEP * 16)) conv=notrunc status=none || exit
head -c 5000 /dev/urandom >>growing
[ $STEP -lt 2 ] || { rm d$((STEP - 1))/f1 && truncate -s 70000 d$((STEP - 1))/f4 && rm -rf d$((STEP - 2)); }
"""

# Writes files for ever; a file is named on stdout once its fsync, and the fsync of its folder, have returned.
STREAM = r"""
mkdir -p /mnt/$FS/stream && cd /mnt/$FS/stream || exit
n=0
while :; do
    n=$((n + 1))
    head -c $((RANDOM * 4)) /dev/urandom >s$n || exit
    sync s$n . || exit
    sha256sum s$n
    [ $n -le 40 ] || rm -f s$((n - 40))
done
"""

MANIFEST = "cd $WHERE && find . -type f ! -path './stream/*' -print0 | sort -z | xargs -0r sha256sum"


class Disk:
    """A VDI with a file system, and what its snapshots have to show."""

    numbers = itertools.count()

    def __init__(self, guest, kind):
        self.guest, self.kind, self.lun = guest, kind, next(Disk.numbers)
        self.vdi = f"s/{kind}"
        self.manifests = {}  # label: text
        self.streams = {}    # label: {file: checksum} that must be there

    def run(self, script, **words):
        env = {"FS": self.kind, **{key: str(value) for key, value in words.items()}}
        return self.guest.run(script, env=env, timeout=120)

    def begin(self):
        self.run(f"parallax vdi create {self.vdi} --size {SIZE // MIB}M && put {self.lun} parallax/{self.vdi} {SIZE}")

    def mkfs(self):
        self.device = self.guest.run(f"disk {self.lun}").text
        self.run(f"mkfs.{self.kind} -q {self.device} && mkdir -p /mnt/{self.kind} && "
                 f"{MOUNT[self.kind]} {self.device} /mnt/{self.kind}")

    def step(self, number):
        label = f"step{number}"
        self.run(STEP, STEP=number)
        self.run(f"sync; parallax snap create {self.vdi}@{label}")
        self.manifests[label] = self.run(MANIFEST, WHERE=f"/mnt/{self.kind}").out

    def stream(self, seconds, snapshots):
        """Snapshots while files are being written and deleted."""
        command = self.guest.popen(f"exec bash -c '{STREAM}'", env={"FS": self.kind})
        thread = command.drain_in_background()
        # On a slow machine the first file takes its time.
        lab.wait_until(lambda: b"\n" in command.out, "no file was written:", command.err.decode)
        for number in range(snapshots):
            time.sleep(seconds / snapshots)
            lines = command.out[:command.out.rfind(b"\n") + 1].decode().splitlines()
            known = {name: checksum for checksum, name in (line.split() for line in lines)}
            label = f"mid{number}"
            self.run(f"parallax snap create {self.vdi}@{label}")
            # While the snapshot was taken the writer may have gone on to delete its oldest files.
            lines = command.out[:command.out.rfind(b"\n") + 1].decode().splitlines()
            last = len(lines) + 1
            self.streams[label] = {name: checksum for name, checksum in known.items()
                                   if int(name[1:]) > last - 40}
        command.conn.close()
        thread.join(10)
        check(command.code is None, "the stream ended by itself:", command.err.decode())
        check(any(self.streams.values()), "no file was written under the snapshots")

    def compare(self, where, label):
        if label in self.manifests:
            found = self.run(MANIFEST, WHERE=where).out
            check(found == self.manifests[label], f"{self.vdi}@{label} differs from its instant:\n"
                  f"wanted\n{self.manifests[label]}found\n{found}")
            return len(found.splitlines())
        wanted = self.streams[label]
        found = self.run("cd $WHERE/stream && sha256sum s*", WHERE=where).out
        there = {name: checksum for checksum, name in (line.split() for line in found.splitlines())}
        for name, checksum in wanted.items():
            check(there.get(name) == checksum, f"{self.vdi}@{label}: {name} is {there.get(name)}, not {checksum}")
        return len(wanted)

    def verify(self, label):
        """The snapshot itself, its journal replayed in a writable layer that is thrown away; then a clone."""
        guest, lun = self.guest, next(Disk.numbers)
        guest.run(f"put {lun} parallax/{self.vdi}@{label} {SIZE}; rescan", timeout=120)
        device = guest.run(f"disk {lun}").text
        refused = guest.run(f"dd if=/dev/zero of={device} bs=4k count=1 oflag=direct", ok=False)
        check(refused.code != 0, f"{self.vdi}@{label} can be written")
        guest.run(f"mkdir -p /mnt/look && truncate -s 64M /run/cow && "
                  f"echo \"0 {SIZE // 512} snapshot {device} $(losetup -f --show /run/cow) N 8\" | dmsetup create look && "
                  f"dmsetup mknodes && {MOUNT[self.kind]} /dev/mapper/look /mnt/look")
        files = self.compare("/mnt/look", label)
        guest.run("umount /mnt/look && dmsetup remove look && losetup -D && rm /run/cow")
        if label in self.manifests:  # after a sync the files are there without the journal
            guest.run(f"blockdev --setro {device}; {NOREPLAY[self.kind]} {device} /mnt/look")
            if self.kind == "xfs":  # XFS may hold synced changes in its log alone
                guest.run("ls -lR /mnt/look >/dev/null", ok=False)
            else:
                guest.run("ls -lR /mnt/look >/dev/null")
            guest.run("umount /mnt/look")
        self.drop(lun, device)

        guest.run(f"parallax vdi clone {self.vdi}@{label} {self.vdi}-{label}; "
                  f"put {lun} parallax/{self.vdi}-{label} {SIZE}; rescan", timeout=120)
        device = guest.run(f"disk {lun}").text
        guest.run(f"{MOUNT[self.kind]} {device} /mnt/look")
        self.compare("/mnt/look", label)
        guest.run("head -c 3000000 /dev/urandom >/mnt/look/mine && sync && umount /mnt/look && "
                  f"fsck.{self.kind} -n {device} >/dev/null" if self.kind == "ext4" else
                  f"head -c 3000000 /dev/urandom >/mnt/look/mine && sync && umount /mnt/look && xfs_repair -n {device} 2>/dev/null")
        self.drop(lun, device)
        say(f"{self.vdi}@{label}: {files} files as they were, in the snapshot and in a clone")

    def drop(self, lun, device):
        self.guest.run(f"echo 1 >/sys/block/{device[5:]}/device/delete; take {lun}")

    def grow(self):
        bigger = 2 * SIZE
        before = self.run(f"df --output=size -B1 /mnt/{self.kind} | tail -1").text
        self.run(f"parallax vdi resize {self.vdi} --size {bigger // MIB}M")
        self.run(f"[ $(cat $CORE/user_0/v{self.lun}/attrib/dev_size) = {bigger} ] || "
                 f"echo {bigger} >$CORE/user_0/v{self.lun}/attrib/dev_size; rescan; "
                 f"wait_for 10 eval '[ $(blockdev --getsize64 {self.device}) = {bigger} ]'")
        self.run(f"resize2fs {self.device} 2>&1" if self.kind == "ext4" else f"xfs_growfs /mnt/{self.kind}")
        after = self.run(f"df --output=size -B1 /mnt/{self.kind} | tail -1").text
        check(int(after) > int(before) * 1.8, f"{self.kind} did not grow: {before} to {after}")
        label = "step5"
        check(self.run(MANIFEST, WHERE=f"/mnt/{self.kind}").out == self.manifests[label],
              self.kind, "changed by growing")
        say(f"{self.vdi}: grown online from {before} to {after} bytes")


def trim(guest):
    """Space that files held is free again after fstrim. Counted while the store is closed: what a running
    handler has freed since it last wrote its bitmaps is not on the store yet."""
    lun = next(Disk.numbers)
    guest.run("parallax store format t --volume /dev/ubdb; parallax vdi create t/trim --size 256M; mkdir -p /mnt/trim")

    def used(script):
        guest.run(f"put {lun} parallax/t/trim {256 * MIB}; rescan")
        device = guest.run(f"disk {lun}").text
        guest.run(script.format(device), timeout=120)
        guest.run(f"sync; umount /mnt/trim; echo 1 >/sys/block/{device[5:]}/device/delete; take {lun}")
        return json.loads(guest.run("parallax store info t --json").out)["used_blocks"]

    empty = used("mkfs.ext4 -q -E nodiscard {0}; mount {0} /mnt/trim")
    full = used("mount {0} /mnt/trim; head -c 80000000 /dev/urandom >/mnt/trim/big")
    after = used("mount {0} /mnt/trim; rm /mnt/trim/big; sync; fstrim -v /mnt/trim")
    say(f"fstrim: {empty} blocks used, {full} with files, {after} after")
    check(full > empty + 19000, f"80 MB of files use {full - empty} blocks")
    check(after < empty + 2000, f"{after} blocks used after fstrim, {empty} before the file, {full} with it")


def twenty(guest):
    """Twenty more LUNs, all written and verified at once."""
    first = next(Disk.numbers)
    luns = range(first, first + 20)
    guest.run("for n in " + " ".join(map(str, luns)) + "; do "
              f"parallax vdi create s/many$n --size 16M && put $n parallax/s/many$n {16 * MIB} || exit; done; rescan",
              timeout=180)
    disks = guest.run("for n in " + " ".join(map(str, luns)) + "; do disk $n || exit; done", timeout=180).out.split()
    check(len(set(disks)) == 20, "twenty LUNs give", disks)
    jobs = "".join(f"[j{n}]\nfilename={disk}\nrandseed={n}\n" for n, disk in enumerate(disks))
    guest.run("cat >/run/many.fio <<'END'\n[global]\nrw=randwrite\nbs=4k\nsize=1M\ndirect=1\nioengine=libaio\niodepth=4\n"
              f"verify=crc32c\nverify_fatal=1\nthread=1\n{jobs}END\nfio /run/many.fio >/run/many.out 2>&1 || "
              "{ tail -30 /run/many.out; exit 1; }", timeout=240)
    for number, disk in zip(luns, disks):
        guest.run(f"echo 1 >/sys/block/{disk[5:]}/device/delete; take {number}")
    say("twenty LUNs written and verified at once")


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(mem="768M", disks=[here.disk("store.img", 8 << 30), here.disk("trim.img", 1 << 30)])
        guest.run("modprobe -a ext4 xfs loop dm_snapshot; parallax store format s --volume /dev/ubda; runner_up")
        disks = [Disk(guest, kind) for kind in ("ext4", "xfs")]
        for disk in disks:
            disk.begin()
        guest.run("login")
        for disk in disks:
            disk.mkfs()
        for number in range(1, 5):
            for disk in disks:
                disk.step(number)
        for disk in disks:
            disk.stream(4, 3)
        for disk in disks:
            disk.step(5)
        say("snapshots taken:", guest.run("parallax snap list s/ext4; parallax snap list s/xfs").out)
        for disk in disks:
            for label in lab.turns(disk.manifests, 2) + lab.turns(disk.streams, 1):
                disk.verify(label)
        for disk in disks:
            disk.grow()
        trim(guest)
        twenty(guest)
        guest.run("umount /mnt/ext4 /mnt/xfs; logout; target_down; runner_alive; runner_down", timeout=120)
        say(guest.run("parallax store check s", timeout=180).text)
        say(re.sub(r"(?m)^", "    ", guest.run("parallax tree s").out))
        guest.stop()


lab.main(test)
