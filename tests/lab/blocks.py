#!/usr/bin/python3
"""Writes and checks sectors that say what they are; runs in a guest, driven by crash.py.

  blocks.py write DEVICE WORKER FIRST COUNT SEED [WHOLE [PAUSE_MS]]
                                                   until killed; prints "SEQ SECTOR COUNT" when a write is acknowledged;
                                                   WHOLE 1: of whole blocks of 4 KiB only; PAUSE_MS: between two writes
  blocks.py check DEVICE FIRST COUNT               prints "SECTOR SEQ RUN" for runs of equal, sound sectors

Every sector holds, repeated, {magic, sector, seq, magic ^ sector ^ seq}; never written ones are zero (seq 0).
A sector that is neither is reported as "bad SECTOR" and status 1.
"""
import mmap
import os
import random
import struct
import sys
import time

SECTOR = 512
MAGIC = 0x506172616C6C6178
MASK = (1 << 64) - 1
LENGTHS = (1, 3, 7, 8, 8, 8, 8, 16, 17, 64, 128)  # sectors: sub-block, block and larger, aligned or not


def sector(number, seq):
    return struct.pack("<QQQQ", MAGIC, number, seq, (MAGIC ^ number ^ seq) & MASK) * (SECTOR // 32)


def write(device, worker, first, count, seed, whole=0, pause_ms=0):
    """One write at a time; sequence numbers rise, so a sector's value tells which writes it has seen."""
    fd = os.open(device, os.O_RDWR | os.O_DIRECT)
    buffer = mmap.mmap(-1, max(LENGTHS) * SECTOR)
    rng = random.Random(f"{seed}/{worker}")
    seq = seed << 32
    while True:
        seq += 1
        length = rng.choice([n for n in LENGTHS if n % 8 == 0] if whole else LENGTHS)
        start = first + rng.randrange(count - length)
        if whole or (length >= 8 and rng.random() < 0.8):
            start &= ~7
        for n in range(length):
            buffer[n * SECTOR:(n + 1) * SECTOR] = sector(start + n, seq)
        view = memoryview(buffer)[:length * SECTOR]
        done = os.pwrite(fd, view, start * SECTOR)
        view.release()
        if done != length * SECTOR:
            sys.exit(f"short write at {start}: {done}")
        os.write(1, b"%d %d %d\n" % (seq, start, length))
        if pause_ms:
            time.sleep(pause_ms / 1000)


def check(device, first, count):
    fd = os.open(device, os.O_RDONLY | os.O_DIRECT)
    step = 256
    buffer = mmap.mmap(-1, step * SECTOR)
    zero = bytes(SECTOR)
    bad = 0
    run = None  # (sector, seq, length)
    for base in range(first, first + count, step):
        size = min(step, first + count - base) * SECTOR
        view = memoryview(buffer)[:size]
        if os.preadv(fd, [view], base * SECTOR) != size:
            sys.exit(f"short read at {base}")
        for n in range(size // SECTOR):
            data = bytes(view[n * SECTOR:(n + 1) * SECTOR])
            seq = 0 if data == zero else struct.unpack_from("<Q", data, 16)[0]
            if seq and data != sector(base + n, seq):
                print("bad", base + n, data[:32].hex())
                bad += 1
            if run and run[1] == seq:
                run = (run[0], seq, run[2] + 1)
            else:
                if run:
                    print(*run)
                run = (base + n, seq, 1)
        view.release()
    print(*run)
    sys.exit(1 if bad else 0)


if sys.argv[1] == "write":
    write(sys.argv[2], *map(int, sys.argv[3:]))
else:
    check(sys.argv[2], *map(int, sys.argv[3:]))
