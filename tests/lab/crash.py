#!/usr/bin/env python3
"""kill -9 of tcmu-runner and of the whole host, ten rounds, under write load, snapshots and clones.

A write counts as acknowledged when this side has read the guest's word for it, so what a dying guest
could not say any more binds nobody. After each crash every acknowledged sector holds its value or a later one,
what is read back once stays, and the store's own check finds nothing.
"""
import socket
import sys
import time

import lab
from lab import check, say

SIZE = 128 << 20
WORKERS = 4
REGION = 8192  # sectors of each worker, 4 MiB: small, so that blocks are overwritten often


class Oracle:
    """The least sequence number each sector may show."""

    def __init__(self):
        self.least = [0] * (WORKERS * REGION)
        self.acknowledged = 0

    def take(self, lines):
        # The last line may be cut off by the crash; then the host did not hear it.
        for line in lines[:lines.rfind(b"\n") + 1].decode().splitlines():
            seq, start, count = map(int, line.split())
            self.acknowledged += 1
            for n in range(start, start + count):
                self.least[n] = max(self.least[n], seq)

    def verify(self, guest, disk):
        result = guest.run(f"{lab.HERE}/blocks.py check {disk} 0 {len(self.least)}", timeout=120, ok=False)
        check(result.code == 0, f"unsound sectors on {disk}:", result.out[:2000], result.err)
        missing = []
        for line in result.out.splitlines():
            start, seq, count = map(int, line.split())
            for n in range(start, start + count):
                if seq < self.least[n]:
                    missing.append(f"sector {n}: {seq:#x}, acknowledged {self.least[n]:#x}")
                # Read once, an unacknowledged write must not vanish again.
                self.least[n] = max(self.least[n], seq)
        check(not missing, len(missing), "sectors lost acknowledged writes:", "; ".join(missing[:5]))


class Writers:
    """The workers, and what they have acknowledged so far. whole: so many of them write whole blocks only."""

    def __init__(self, guest, disk, seed, whole=0, pause_ms=0):
        self.guest, self.seed = guest, seed
        self.commands = [guest.popen(f"exec {lab.HERE}/blocks.py write {disk} {n} {n * REGION} {REGION} {seed} {int(n < whole)} {pause_ms}")
                         for n in range(WORKERS)]
        self.threads = [command.drain_in_background() for command in self.commands]

    def heard(self):
        """Bytes of acknowledgements."""
        return sum(len(command.out) for command in self.commands)

    def acknowledged(self):
        """Writes."""
        return sum(command.out.count(b"\n") for command in self.commands)

    def newest(self):
        """The last sequence number that each has acknowledged."""
        return [int(command.out[:command.out.rfind(b"\n") + 1].decode().split("\n")[-2].split()[0]) if b"\n" in command.out else 0
                for command in self.commands]

    def go_on(self, where):
        before = self.heard()
        lab.wait_until(lambda: self.heard() >= before + 500, "I/O does not go on", where)

    def stop(self, oracle, alive):
        if alive:
            for command in self.commands:
                check(command.code is None, "a writer ended:", command.err.decode())
            # Anchored and by full name: only the workers.
            self.guest.run("pkill -f '^/usr/bin/python3 .*/blocks.py write' || true")
        for command, thread in zip(self.commands, self.threads):
            if not alive:
                command.conn.shutdown(socket.SHUT_RD)  # a dead host says no goodbye
            thread.join(30)
            check(not thread.is_alive(), "a writer does not end")
            command.conn.close()
            oracle.take(command.out)


def serve(guest, first):
    """Daemon, LUN and session of a host that has just booted; gives the initiator's device."""
    if first:
        guest.run("mkfs.ext4 -q /dev/ubdb && mount /dev/ubdb /var/lib/parallax && "
                  "parallax store format s --volume /dev/ubda && parallax vdi create s/v --size 128M")
    else:
        guest.run("mount /dev/ubdb /var/lib/parallax")
    return guest.run(f"runner_up && put 0 parallax/s/v {SIZE} && login && disk 0", timeout=120).text


def snapshots(guest, seed, seconds, writers):
    """Load of a second kind: blocks become shared while they are being written. Returns each one's label, and what was acknowledged
    before it was asked for."""
    end = time.monotonic() + seconds
    taken = []
    while time.monotonic() < end:
        taken.append((f"r{seed}n{len(taken) + 1}", writers.newest()))
        guest.run(f"parallax snap create s/v@{taken[-1][0]}")
    return taken


def judge_instant(found, base, writes, least):
    """What is wrong with a worker's sectors in a snapshot: it makes one write at a time, so what is there of it are all its writes
    up to one of them, `least` or a later one. Of the last one that may be a part. base: the sectors before it began."""
    last = max(found)
    expected, before = list(base), list(base)
    for seq, start, count in writes:
        for n in range(start, start + count):
            if seq <= last:
                expected[n] = seq
            if seq < last:
                before[n] = seq
    last = last if last > max(base) else 0
    heard = max((seq for seq, _, _ in writes), default=0)
    if last < least:
        return f"it shows nothing behind {last:#x}, {least:#x} was acknowledged before"
    for n, seq in enumerate(found):
        # Nobody heard where one lay that the crash cut off.
        allowed = (expected[n],) if last == least else (expected[n], before[n], last if last > heard else expected[n])
        if seq not in allowed:
            return f"sector {n}: {seq:#x}, not {expected[n]:#x}, though it shows {last:#x}"
    return None


def judge_instants(guest, writers, base, instants):
    """What was to be seen at each of them is seen, and everything in its order. base: all sectors before the writers began."""
    for name, newest in instants:
        guest.run(f"parallax vdi export 's/v@{name}' - | head -c {len(base) * 512} >/var/lib/parallax/instant", timeout=240)
        result = guest.run(f"{lab.HERE}/blocks.py check /var/lib/parallax/instant 0 {len(base)}; rm /var/lib/parallax/instant", timeout=120)
        found = []
        for line in result.out.splitlines():
            check(not line.startswith("bad"), f"unsound sectors at {name}:", line)
            _, seq, count = map(int, line.split())
            found += [seq] * count
        for n, command in enumerate(writers.commands):
            first = n * REGION
            lines = command.out[:command.out.rfind(b"\n") + 1].decode().splitlines()
            writes = [(seq, start - first, count) for seq, start, count in (map(int, line.split()) for line in lines)]
            wrong = judge_instant(found[first:first + REGION], base[first:first + REGION], writes, newest[n])
            check(not wrong, f"the disk at {name}, worker {n}:", wrong)
    if instants:
        say(f"{len(instants)} instants before that show what was written by then, in order: {', '.join(name for name, _ in instants)}")


def some_of(taken, judged):
    """So many of the labels: the newest ones."""
    return taken[len(taken) - min(judged, len(taken)):]


def daemon_rounds(guest, disk, oracle, rounds, kill=lambda guest, writers: guest.run("runner_down KILL") and [], whole=0, judged=0):
    for seed in range(1, rounds + 1):
        base = list(oracle.least)
        writers = Writers(guest, disk, seed, whole)
        taken = snapshots(guest, seed, 3, writers)
        more = kill(guest, writers)
        guest.run("runner_up", timeout=120)
        writers.go_on("after the restart of tcmu-runner")
        writers.stop(oracle, alive=True)
        oracle.verify(guest, disk)
        say(f"round {seed}: tcmu-runner killed, {oracle.acknowledged} writes acknowledged so far, none missing")
        if judged:
            judge_instants(guest, writers, base, some_of(taken, judged) + more)


def host_rounds(guest, disk, oracle, rounds, serve, kill=lambda guest, writers: guest.kill() or [], whole=0, judged=0):
    for seed in range(101, 101 + rounds):
        base = list(oracle.least)
        writers = Writers(guest, disk, seed, whole)
        taken = snapshots(guest, seed, 3, writers)
        more = kill(guest, writers)
        writers.stop(oracle, alive=False)
        guest.start()
        disk = serve(guest, False)
        oracle.verify(guest, disk)
        if judged:
            judge_instants(guest, writers, base, some_of(taken, judged) + more)
        say(f"round {seed - 100}: host killed, {oracle.acknowledged} writes acknowledged so far, none missing")


def fio_round(guest, disk):
    """The same with fio's own verification; the region behind the workers'."""
    offset = WORKERS * REGION * 512
    fio = guest.popen(f"exec fio --name=v --filename={disk} --offset={offset} --size=48M --direct=1 --rw=randwrite "
                      "--bsrange=4k-64k --bs_unaligned=0 --ioengine=libaio --iodepth=8 --fsync=16 --verify=crc32c "
                      "--verify_fatal=1 --randseed=7 --output-format=terse")
    time.sleep(3)
    guest.run("runner_down KILL; runner_up", timeout=60)
    result = fio.finish(180)
    fio.conn.close()
    check(result.code == 0, "fio --verify:", result.out[-500:], result.err[-1000:])
    say("fio --verify with fsync across kill -9 of tcmu-runner: sound")


def test():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 4 << 30), here.disk("state.img", 256 << 20)])
        oracle = Oracle()
        disk = serve(guest, True)
        daemon_rounds(guest, disk, oracle, rounds)
        fio_round(guest, disk)
        host_rounds(guest, disk, oracle, rounds, serve)
        guest.run("target_down; runner_down", timeout=60)
        say(guest.run("parallax store check s", timeout=120).text)
        guest.stop()


if __name__ == "__main__":
    lab.main(test)
