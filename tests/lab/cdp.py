#!/usr/bin/env python3
"""Continuous protection of a live LUN: every instant asked for later is there, and is what was written by then."""
import json
import time

import lab
from lab import check, say

SIZE = 64 << 20
STEPS = 6


def status(guest):
    return json.loads(guest.run("parallax cdp status s/v --json").out)


def write_steps(guest, disk, first):
    """Overwrites the same place again and again; after each the time, and the checksum of what was there then."""
    steps = []
    for number in range(first, first + STEPS):
        steps.append(guest.run(
            f"dd if=/dev/urandom of=/run/step bs=64k count=4 status=none; "
            f"dd if=/run/step of={disk} bs=64k oflag=direct status=none; sleep 0.5; "
            f"date -u +%Y-%m-%dT%H:%M:%S.%NZ; sha256sum </run/step").out.split()[:2])
        say(f"step {number}: {steps[-1][0]}")
    return steps


def verify(guest, steps):
    for when, checksum in steps:
        found = guest.run(f"parallax vdi export s/v@{when} - | head -c 256k | sha256sum").out.split()[0]
        check(found == checksum, f"the disk as it was at {when} is not what was written by then")


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 1 << 30)])
        disk = guest.run("parallax store format s --volume /dev/ubda && parallax vdi create s/v --size 64M && "
                         f"runner_up && put 0 parallax/s/v {SIZE} && login && disk 0", timeout=120).text
        guest.run("parallax cdp on s/v --every 10ms")
        steps = write_steps(guest, disk, 1)
        verify(guest, steps)
        taken = status(guest)
        check(taken["newest_seq"] >= STEPS, "too few instants:", taken)
        time.sleep(2)
        check(status(guest)["newest_seq"] == taken["newest_seq"], "snapshots were taken while nothing changed")
        say(f"{taken['newest_seq']} instants; idle takes none")

        guest.run("runner_down KILL; sleep 0.5; runner_up", timeout=60)
        steps += write_steps(guest, disk, STEPS + 1)
        again = status(guest)
        check(again["protection"] == "every 10ms", "protection did not come back:", again)
        check(again["newest_seq"] >= taken["newest_seq"] + STEPS, "it takes no snapshots after the restart:", again)
        verify(guest, steps)
        guest.run("parallax snap label s/v@-1s lately; parallax vdi clone s/v@lately s/then")
        guest.run("logout; target_down; runner_down", timeout=60)
        verify(guest, steps)
        say(guest.run("parallax cdp timeline s/v; parallax store check s", timeout=120).text)
        guest.stop()


lab.main(test)
