#!/usr/bin/env python3
"""What measures rings runs, finds all that it asks for, and prints each of its lines. No time is judged.

Of tests/lab/writecache.py only its loads: fio takes them, and says of each what is read there.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import types
import xml.dom.minidom

HERE = os.path.dirname(os.path.realpath(__file__))
sys.path.insert(0, f"{HERE}/../lab")
sys.dont_write_bytecode = True
import writecache  # noqa: E402
MEMORY = "/dev/shm"
SIDES = ("raw", "hashed", "ring", "store")
WRITES = r" +[1-9]\d* a second, p50 +[1-9]\d* us, p99 +[1-9]\d* us$"
BURST = r" +[1-9]\d* MiB/s +[\d.]+ of raw +[\d.]+ s of CPU for a GiB +[1-9]\d* MiB of memory$"


def lines_of(*words):
    done = subprocess.run([f"{HERE}/ring", "--quick", "--build", sys.argv[1], "--folder", folder, *words], check=True, text=True,
                          stdout=subprocess.PIPE)
    print(done.stdout)
    return done.stdout


def has(text, pattern, count=1):
    found = len(re.findall(pattern, text, re.MULTILINE))
    assert found == count, f"{found} instead of {count} lines like: {pattern}"


def rows(text, writes, clients):
    for side in SIDES:
        has(text, f"^4k, {writes} +{side}{WRITES}")
        has(text, f"^8 MB, {clients} +{side}{BURST}")


def run_here(command, timeout):
    done = subprocess.run(command, shell=True, check=True, text=True, stdout=subprocess.PIPE, timeout=timeout)
    return types.SimpleNamespace(out=done.stdout)


def measure_loads(path):
    if not shutil.which("fio"):
        print("PART SKIPPED: the loads of tests/lab/writecache.py: there is no fio")
        return
    for load, words in writecache.LOADS.items():
        speed = writecache.measure(types.SimpleNamespace(run=run_here), path, re.sub(r"--runtime=\d+", "--runtime=1", words))
        assert speed > 0, f"{load}: fio says {speed}"


with tempfile.TemporaryDirectory(prefix="plx-smoke-", dir=MEMORY if shutil.disk_usage(MEMORY).free > 4 << 30 else None) as folder:
    alone = lines_of("--drain")
    shared = lines_of("--disks", "3")
    drawn = lines_of("--picture", f"{folder}/ring.svg")
    xml.dom.minidom.parse(f"{folder}/ring.svg")
    measure_loads(f"{folder}/fio")

rows(alone, "one after the other", "four clients")
rows(shared, "each waits for its own", "3 disks")
has(alone, r"^what the store gets +(ring|store) +[1-9]\d* MiB/s$", 2)
has(alone, r"^beside a burst +(ring|store) +[1-9]\d* a second$", 2)
goals = len(re.findall(": (?:reached|missed)$", alone, re.MULTILINE))
assert goals in (4, 5), f"{goals} goals"  # reads beside draining, if that took long enough
reached, missed = map(int, re.search(r"^goals: (\d+) reached, (\d+) missed(?:: .*)?\n\Z", alone, re.MULTILINE).groups())
assert reached + missed == goals
has(drawn, r"on the store after [\d.]+ s$")
