#!/usr/bin/env python3
"""A write-back ring beside dm-writecache: the same slow SAN (dm-delay) and the same fast disk twice, in one guest, in turns.

Durable 4k writes one after the other, and a burst of 1 MiB writes from four clients, each on the fast disk itself, on dm-writecache
over fast disk and SAN, on a LUN with its ring over the same, and on the LUN without. The LUN has the way through iSCSI, LIO and
tcmu-runner, which dm-writecache has not. Nothing is judged; only the ratios mean something.

usage: tests/lab/writecache.py [ROUNDS]
"""
import json
import statistics
import sys

import lab
from lab import check, say

WRITE_MS = 5
SECTORS, FAST_SECTORS = 4 << 21, 512 << 11
FIO = "fio --name=b --direct=1 --ioengine=libaio --group_reporting --output-format=json --time_based --filename="
LOADS = {"4k, one after the other": "--rw=randwrite --bs=4k --iodepth=1 --sync=dsync --runtime=3 --size=96M",
         "4k and a flush": "--rw=randwrite --bs=4k --iodepth=1 --fsync=1 --runtime=3 --size=96M",
         "1M, four clients": "--rw=write --bs=1M --iodepth=1 --numjobs=4 --offset_increment=32M --size=32M --end_fsync=1 --runtime=2"}


def devices(guest):
    for disk, name in (("ubda", "slow"), ("ubdb", "slow2")):
        guest.run(f"modprobe dm-delay; echo '0 {SECTORS} delay /dev/{disk} 0 0 /dev/{disk} 0 {WRITE_MS}' | dmsetup create {name}; dmsetup mknodes")
    guest.run(f"modprobe dm-writecache && echo '0 {SECTORS} writecache s /dev/mapper/slow2 /dev/ubdd 4096 0' | dmsetup create cached; "
              "dmsetup mknodes")
    guest.run("mkfs.ext4 -q /dev/ubdf && mount /dev/ubdf /var/lib/parallax && parallax store format s --volume /dev/mapper/slow && "
              "parallax vdi create s/v --size 128M && parallax ring create s /dev/ubdc", timeout=120)
    lun = guest.run(f"runner_up && put 0 parallax/s/v {128 << 20} && login && disk 0", timeout=240).text
    return {"fast disk": "/dev/ubde", "dm-writecache": "/dev/mapper/cached", "ring": lun, "store": lun}


def measure(guest, path, load):
    result = json.loads(guest.run(f"{FIO}{path} {load}", timeout=120).out)
    return result["jobs"][0]["write"]["bw_bytes"]


def test():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 4 << 30), here.disk("origin.img", 4 << 30), here.disk("ring.img", 512 << 20),
                                  here.disk("cache.img", 512 << 20), here.disk("fast.img", 512 << 20), here.disk("state.img", 256 << 20)])
        figures, sides = {}, devices(guest)
        for _ in range(rounds):
            for side, path in sides.items():
                guest.run("parallax vdi set s/v --ring " + ("on" if side == "ring" else "off"), timeout=240)
                for load, words in LOADS.items():
                    figures.setdefault((load, side), []).append(measure(guest, path, words))
                # What is left of the burst is not the next side's.
                guest.run("dmsetup message cached 0 flush", timeout=240)
        for load in LOADS:
            median = {side: statistics.median(figures[load, side]) for side in sides}
            for side, speed in median.items():
                say(f"{load:24} {side:14} {speed / median['dm-writecache']:6.2f} times as fast as dm-writecache, "
                    f"{speed / median['store']:6.2f} times as fast as the LUN without a ring")
        check(guest.run("parallax vdi set s/v --ring off", timeout=240).code == 0, "the ring does not end")
        guest.stop()


if __name__ == "__main__":
    lab.main(test)
