#!/usr/bin/env python3
"""A LUN with a write-back ring: a guest with a fast disk of its own and a slow SAN (dm-delay).

kill -9 of tcmu-runner and of the guest during bursts, the SAN gone for a minute in which the ring goes on acknowledging, the ring's
device failing under load, each as often as the argument says: no acknowledged write is missing, none is out of order, and labels and
instants of continuous protection from before a kill, also those that only the ring had, are what was written by then.
"""
import json
import sys
import time

import crash
import lab
from lab import check, say

WRITE_MS = 5  # a start makes hundreds of writes, one after another
SECTORS = 4 << 21  # of the store, 4 GiB
RING_SECTORS = 160 << 11
SLOW = f"modprobe dm-delay; echo '0 {SECTORS} delay /dev/ubda 0 0 /dev/ubda 0 {WRITE_MS}' | dmsetup create slow; "
FAST = f"echo '0 {RING_SECTORS} linear /dev/ubdc 0' | dmsetup create fast; dmsetup mknodes; "


BEHIND = crash.WORKERS * crash.REGION * 512 >> 16  # where no worker writes, in 64 KiB


def serve(guest, first):
    guest.run(SLOW + FAST)
    if first:
        guest.run("mkfs.ext4 -q /dev/ubdb && mount /dev/ubdb /var/lib/parallax && "
                  "parallax store format s --volume /dev/mapper/slow && parallax vdi create s/v --size 128M && "
                  "parallax ring create s /dev/mapper/fast && parallax vdi set s/v --ring on", timeout=120)
    else:
        guest.run("mount /dev/ubdb /var/lib/parallax")
    return guest.run(f"runner_up && put 0 parallax/s/v {crash.SIZE} && login && disk 0", timeout=240).text


def stats(guest):
    return json.loads(guest.run("parallax vdi stats s/v --json", timeout=60).out)


def info(guest):
    return json.loads(guest.run("parallax vdi info s/v --json", timeout=60).out)


def on_ring_only(guest, writers):
    """Until so many writes are acknowledged while the SAN hangs, which goes on: these the store lacks for certain. Where the SAN is only
    slow, next to nothing is left on the ring at times, and a kill would show nothing. Writers of parts of blocks wait meanwhile. Returns
    an instant that the store lacks, too, and what was acknowledged by then."""
    lab.wait_until(lambda: free_for_data(guest) >= 16 << 20, "the store has no room to promise:", lambda: free_for_data(guest))
    records = stats(guest)["ring_records"]
    guest.run("dmsetup suspend --nolockfs slow")
    before = writers.acknowledged()
    newest = writers.newest()
    when = guest.run("sleep 1; date -u +%Y-%m-%dT%H:%M:%S.%NZ").text
    lab.wait_until(lambda: writers.acknowledged() >= before + 200, "the ring does not acknowledge while the SAN hangs:",
                   lambda: writers.acknowledged() - before, seconds=24)  # after 30 s the target gives up what waits for the store
    say(f"killed with {writers.acknowledged() - before} acknowledged writes that the store lacks, {records} records before that")
    return [(when, newest)]


def kill_runner(guest, writers):
    instant = on_ring_only(guest, writers)
    guest.run('kill -KILL "$(runner_pid)"; dmsetup resume slow; wait_for 30 runner_gone', timeout=60)
    return instant


def kill_guest(guest, writers):
    instant = on_ring_only(guest, writers)
    guest.kill()
    return instant


def listed(guest):
    """The LUN's disk, among what is exported."""
    rows = {row["name"]: row["ring"] for row in json.loads(guest.run("parallax lun list --json", timeout=60).out)}
    check(rows == {"s/v": "on"}, "'lun list' shows another ring:", rows)


def free_for_data(guest):
    return json.loads(guest.run("parallax store stats s --json", timeout=60).out)["data_free_blocks"] << 12


def san_gone(guest, oracle, disk, seed, seconds):
    """The store's I/O hangs; the ring goes on acknowledging what needs nothing from the store: whole blocks. The writers pause, for a
    full ring and a write without promised room wait for the store, and what waits for 30 s the target gives up."""
    writers = crash.Writers(guest, disk, seed, whole=crash.WORKERS, pause_ms=100)
    writers.go_on("before the SAN is gone")
    lab.wait_until(lambda: free_for_data(guest) >= 64 << 20, "the store has no room to promise:", lambda: free_for_data(guest))
    guest.run("dmsetup suspend --nolockfs slow")
    heard = [writers.heard()]
    for _ in range(2):
        time.sleep(seconds / 2)
        heard.append(writers.heard())
    guest.run("dmsetup resume slow")
    counters = stats(guest)
    time.sleep(1)
    writers.stop(oracle, alive=True)
    oracle.verify(guest, disk)
    check(counters["ring_drained_bytes"] and not {"ring_records", "ring_oldest_waits_ns", "ring_full"} - set(counters),
          "its counters do not show it:", counters)
    check(all(after > before + 1000 * seconds / 60 for before, after in zip(heard, heard[1:])),
          "the ring does not acknowledge all the while that the SAN is gone:", heard)
    say(f"the SAN was gone for {seconds} s: {heard[1] - heard[0]} and {heard[2] - heard[1]} bytes of acknowledgements in its halves, none missing")


def automatic(guest, oracle, disk):
    """The ring acknowledges while the SAN is slower than usual, and the disk does not need it afterwards."""
    guest.run("parallax vdi set s/v --ring off; parallax vdi set s/v --ring auto", timeout=120)
    writers = crash.Writers(guest, disk, 250)
    time.sleep(6)
    check(not info(guest)["ring_acknowledges"], "the ring acknowledges though the SAN is as it was before:", info(guest))
    guest.run("dmsetup suspend --nolockfs slow; sleep 2; dmsetup resume slow")
    lab.wait_until(lambda: info(guest)["ring_acknowledges"], "the ring does not acknowledge after the SAN was gone:", lambda: info(guest))
    writers.go_on("on the ring")
    writers.stop(oracle, alive=True)
    lab.wait_until(lambda: not info(guest)["ring_needed"], "the disk still needs the ring:", lambda: info(guest), seconds=180)
    oracle.verify(guest, disk)
    guest.run("parallax vdi set s/v --ring on", timeout=120)
    say("--ring auto: the ring acknowledged after the SAN was gone, and the disk needs it no longer when the burst is over")


def ring_back(guest):
    """Its device works again. A ring that has stopped is used again by who opens it again."""
    guest.run(f"logout; target_down; runner_down; echo '0 {RING_SECTORS} linear /dev/ubdc 0' | dmsetup load fast && dmsetup resume fast",
              timeout=120)
    disk = guest.run(f"runner_up && put 0 parallax/s/v {crash.SIZE} && login && disk 0", timeout=240).text
    lab.wait_until(lambda: info(guest)["ring_acknowledges"], "the ring that came back is not used:", lambda: info(guest))
    return disk


def ring_pulled(guest, oracle, disk, seed):
    """The ring's device fails: what it has drains from memory, and the store acknowledges."""
    writers = crash.Writers(guest, disk, seed)
    time.sleep(2)
    guest.run(f"echo '0 {RING_SECTORS} error' | dmsetup load fast && dmsetup suspend --noflush --nolockfs fast && "
              "dmsetup resume fast")
    writers.go_on("without the ring")
    writers.stop(oracle, alive=True)
    oracle.verify(guest, disk)
    lab.wait_until(lambda: not info(guest)["ring_needed"], "the disk still needs the ring that has failed")
    say("the ring's device failed under load: none missing, and the disk does not need the ring any more")


def instants(guest, disk):
    """The same place overwritten again and again: what each instant shows is what was written by then."""
    guest.run("parallax cdp on s/v --every 10ms", timeout=60)
    steps = [guest.run(f"dd if=/dev/urandom of=/run/step bs=64k count=4 status=none; "
                       f"dd if=/run/step of={disk} bs=64k seek={BEHIND} oflag=direct status=none; sleep 0.3; "
                       f"date -u +%Y-%m-%dT%H:%M:%S.%NZ; sha256sum </run/step").out.split()[:2] for _ in range(5)]
    guest.run("parallax vdi set s/v --ring off", timeout=120)
    for when, checksum in steps:
        found = guest.run(f"parallax vdi export s/v@{when} - | tail -c +$(({BEHIND} * 65536 + 1)) | head -c 256k | sha256sum", timeout=60).out.split()[0]
        check(found == checksum, f"the disk as it was at {when} is not what was written by then")
    # Nobody uses the ring any more, though the handler lives.
    guest.run("parallax ring delete s; parallax ring create s /dev/mapper/fast --force; "
              "parallax vdi set s/v --ring on; parallax cdp off s/v", timeout=120)
    say(f"{len(steps)} instants are what was written by then")


def rewound(guest, disk):
    """What needs the whole disk on the store drains first."""
    guest.run(f"dd if=/dev/urandom of=/run/one bs=64k count=4 status=none; dd if=/run/one of={disk} bs=64k seek={BEHIND} oflag=direct status=none; "
              f"parallax snap create s/v@one; dd if=/dev/zero of={disk} bs=64k seek={BEHIND} count=4 oflag=direct status=none; "
              "parallax rewind s/v --to one --live; "
              f"blockdev --flushbufs {disk}; dd if={disk} bs=64k skip={BEHIND} count=4 iflag=direct status=none | cmp - /run/one", timeout=240)
    # It is turned on behind the rewind, which does not wait for that.
    lab.wait_until(lambda: info(guest)["ring_acknowledges"], "the ring is not on again after the rewind:", lambda: info(guest))
    say("rewound, and the ring is on again")


def test():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 4 << 30), here.disk("state.img", 256 << 20),
                                  here.disk("ring.img", 160 << 20)])
        oracle = crash.Oracle()
        disk = serve(guest, True)
        listed(guest)
        guest.run("parallax cdp on s/v --every 100ms", timeout=60)
        crash.daemon_rounds(guest, disk, oracle, rounds, kill_runner, whole=crash.WORKERS // 2, judged=2)
        for n in range(rounds):
            san_gone(guest, oracle, disk, 51 + n, 20 if n else 60)
        crash.host_rounds(guest, disk, oracle, rounds, serve, kill_guest, whole=crash.WORKERS // 2, judged=2)
        instants(guest, disk)
        rewound(guest, disk)
        automatic(guest, oracle, disk)
        for n in range(rounds):
            if n:
                disk = ring_back(guest)
            ring_pulled(guest, oracle, disk, 301 + n)
        guest.run("logout; target_down; runner_down", timeout=120)
        check(not info(guest)["ring_needed"], "a disk that was closed needs the ring")
        say(guest.run("parallax store check s", timeout=240).text)
        guest.stop()


if __name__ == "__main__":
    lab.main(test)
