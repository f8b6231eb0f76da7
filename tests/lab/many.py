#!/usr/bin/env python3
"""Many LUNs under one tcmu-runner that ends, in order and by SIGKILL, while all of them are written to.

How many is the first argument (64). Every LUN is there again, with what was acknowledged, and no write fails. How long the last LUN
was silent and how much memory tcmu-runner had is printed; a guest is slow, so tests/bench/restart judges times.
"""
import sys
import time

import lab
from lab import check, say

MIB = 1 << 20
SIZE = 16 * MIB
BY_LUN = """
import glob, os
disks = {int(os.path.realpath(f"{path}/device").rpartition(":")[2]): os.path.basename(path) for path in glob.glob("/sys/block/sd*")}
print(*(f"/dev/{name}" for _, name in sorted(disks.items())))
"""
# A thread a LUN: blocks of its number and a counter, one after the other. A line for each round that all of them have
# finished; on SIGTERM the last counter of each.
WRITER = """
import mmap, os, signal, struct, sys, threading, traceback
disks = sys.argv[1:]
rounds, told, lock = [0] * len(disks), 0, threading.Lock()
def write(n):
    global told
    try:
        fd, block = os.open(disks[n], os.O_RDWR | os.O_DIRECT), mmap.mmap(-1, 4096)
        while True:
            counter = rounds[n] + 1
            block[:] = struct.pack("<QQ", n, counter) * 256
            os.pwrite(fd, block, counter % 1024 * 4096)
            os.fsync(fd)
            with lock:
                rounds[n] = counter
                if min(rounds) > told:
                    told = min(rounds)
                    print(told, flush=True)
    except Exception:
        traceback.print_exc()
        os._exit(1)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
for n in range(len(disks)):
    threading.Thread(target=write, args=(n,), daemon=True).start()
signal.sigwait([signal.SIGTERM])
with lock:
    print("end", *rounds, flush=True)
    os._exit(0)
"""
READER = """
import mmap, os, struct, sys
for n, word in enumerate(sys.argv[1:]):
    disk, counter = word.split("=")
    fd, block = os.open(disk, os.O_RDONLY | os.O_DIRECT), mmap.mmap(-1, 4096)
    os.preadv(fd, [block], int(counter) % 1024 * 4096)
    found = struct.unpack_from("<QQ", block)
    if found[0] != n or found[1] < int(counter) or block[:] != struct.pack("<QQ", *found) * 256:
        sys.exit(f"{disk}: acknowledged {counter}, found {found}")
"""


def restart(guest, writer, how):
    before = writer.out.count(b"\n")
    since = time.monotonic()
    guest.run(f"runner_down {how}", timeout=60)
    down = time.monotonic() - since
    guest.run("runner_up", timeout=120)
    ready = time.monotonic() - since
    lab.wait_until(lambda: writer.out.count(b"\n") >= before + 2, "not every LUN is written to again after", how)
    return f"{how}: tcmu-runner has ended after {down:.1f} s, is ready after {ready:.1f}, every LUN has answered after " \
           f"{time.monotonic() - since:.1f}"


def finish(guest, writer, thread, disks):
    guest.run("pkill -f '^python3 /run/writer.py'")
    thread.join(60)
    last = writer.out.decode().strip().split("\n")[-1].split()
    check(last[0] == "end" and len(last) == len(disks) + 1, "the writer has failed:", writer.out[-300:], writer.err[-2000:])
    guest.run("python3 /run/reader.py " + " ".join(f"{disk}={counter}" for disk, counter in zip(disks, last[1:])), timeout=60)
    guest.run("logout && runner_down && parallax store check s --data", timeout=300)


def test():
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 64
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        # The kernel keeps 8 MiB for each LUN's ring of commands.
        guest = here.guest(mem=f"{512 + 12 * count}M", disks=[here.disk("store.img", (count * SIZE * 4) + (1 << 30))])
        guest.run("runner_up && parallax store format s --volume /dev/ubda --extent-size 4M")
        guest.run(f"for ((n = 0; n < {count}; n++)); do parallax vdi create s/v$n --size {SIZE} && put $n parallax/s/v$n {SIZE} || exit; done",
                  timeout=300)
        guest.run("login", timeout=120)
        disks = guest.run(f"python3 -c '{BY_LUN}'").out.split()
        check(len(disks) == count, "not every LUN has a disk:", disks)
        guest.run(f"cat >/run/writer.py <<'END'\n{WRITER}\nEND\ncat >/run/reader.py <<'END'\n{READER}\nEND")
        writer = guest.popen(f"exec python3 /run/writer.py {' '.join(disks)}")
        thread = writer.drain_in_background()
        lab.wait_until(lambda: writer.out.count(b"\n") >= 3, "not every LUN is written to")
        for how in ("TERM", "KILL", "TERM"):
            say(f"{count} LUNs, {restart(guest, writer, how)}")
        memory = guest.run("sed -n 's/^VmHWM: *//p' /proc/$(runner_pid)/status").out.strip()
        say(f"{count} LUNs: tcmu-runner had at most {memory}")
        finish(guest, writer, thread, disks)
        guest.stop()


lab.main(test)
