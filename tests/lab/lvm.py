#!/usr/bin/env python3
"""Snapshots of Parallax beside those of LVM, as ratios: tests/bench/lvm in a guest, which takes the words (--quick). No time is judged."""
import os
import shutil
import sys

import lab

ROOM = 4 << 30  # sparse; what is used of it depends on --size


def test():
    lab.built("handler_parallax.so", "parallax", "harness")
    with lab.Lab() as here:
        guest = here.guest("1G", [here.disk(f"{name}.img", ROOM) for name in ("raw", "parallax", "classic", "thin")])
        missing = guest.run("modinfo dm-snapshot dm-thin-pool tcm_loop >/dev/null", ok=False)
        if missing.code:
            raise lab.Skip(f"the guest's kernel: {missing.err.strip()}")
        words = " ".join(sys.argv[1:])
        with guest.popen(f"exec $LAB/../bench/lvm --build $BUILD --json /run/lab/lvm.json {words} /dev/ubd[abcd]") as command:
            lab.check(command.show(timeout=600) == 0, "tests/bench/lvm failed")
        for name in ("lvm.json", "lvm.svg"):
            lab.say(shutil.move(os.path.join(guest.share, name), os.path.join(lab.BUILD, name)))
        guest.stop()


lab.main(test)
