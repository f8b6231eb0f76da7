#!/usr/bin/env python3
"""The store on a SAN: iscsi:// volumes that another guest serves to who has the password, and that guest dies under load.

What initiators see meanwhile (a pause or errors) is open; afterwards no acknowledged write may be missing.
"""
import os
import time

import lab
from crash import Oracle, SIZE, Writers
from lab import check, say


CREDENTIALS = "/etc/parallax/iscsi-credentials"
USER, PASSWORD = "lab", "only-the-file-has-it"


def serve_san(san):
    san.run(f"put_disk 0 /dev/ubda; put_disk 1 /dev/ubdb; printf {USER} >$TPG/auth/userid; "
            f"printf {PASSWORD} >$TPG/auth/password; echo 1 >$TPG/attrib/authentication")
    return [f"iscsi://{san.ip}/iqn.2026-11.org.lab:t/{lun}" for lun in range(2)]


def make_store(guest, san):
    """One that grows, whose registry is made anew: each by a name without the password, which is in a file only."""
    first, second = serve_san(san)
    refused = guest.run(f"kernel_up; parallax store format s --volume {first}", ok=False)
    check(refused.code != 0, "the target lets everybody in")
    guest.run(f"mkdir -p {os.path.dirname(CREDENTIALS)}; (umask 077; echo {san.ip} {USER} {PASSWORD} >{CREDENTIALS})")
    guest.run(f"parallax store format s --volume {first}; parallax store add-volume s {second}; "
              f"parallax vdi create s/v --size {SIZE}", timeout=60)
    guest.run(f"parallax store forget s; parallax store rebuild-registry --volume {first} --volume {second}; "
              "parallax store info s; parallax store check s", timeout=60)
    check(guest.run(f"grep -r {PASSWORD} /var/lib/parallax || true").out == "", "the password was kept")
    say("a store on two volumes of a target with CHAP: made, grown, its registry rebuilt")


def serve(guest):
    return guest.run(f"runner_up && put 0 parallax/s/v {SIZE} && login && disk 0", timeout=90).text


def busy(guest, seconds):
    """Hundredths of a second of CPU that tcmu-runner takes meanwhile."""
    script = f"ticks() {{ awk '{{print $14 + $15}}' /proc/$(pidof tcmu-runner)/stat; }}; a=$(ticks); sleep {seconds}; echo $(($(ticks) - a))"
    return int(guest.run(script).text)


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest()
        san = here.guest(mem="256M", disks=[here.disk("san.img", 2 << 30), here.disk("more.img", 1 << 30)])
        make_store(guest, san)
        disk = serve(guest)
        oracle = Oracle()
        writers = Writers(guest, disk, 1)
        time.sleep(3)
        guest.run("parallax snap create s/v@before")
        writers.stop(oracle, alive=True)
        oracle.verify(guest, disk)
        say(f"{oracle.acknowledged} writes acknowledged, all there")
        time.sleep(1)
        check(busy(guest, 3) < 150, "tcmu-runner is busy while nothing happens")

        writers = Writers(guest, disk, 2)
        time.sleep(2)
        san.kill()
        time.sleep(3)
        guest.run("runner_alive")
        san.start()
        serve_san(san)
        time.sleep(10)
        guest.run("runner_alive; runner_down KILL; pkill -f '^/usr/bin/python3 .*/blocks.py write' || true", timeout=60)
        writers.stop(oracle, alive=False)
        guest.run("runner_up", timeout=90)
        oracle.verify(guest, disk)
        say(f"the SAN crashed and came back: {oracle.acknowledged} writes acknowledged, all there")
        guest.run("logout; target_down; runner_down", timeout=60)
        say(guest.run("parallax store check s", timeout=120).text)


lab.main(test)
