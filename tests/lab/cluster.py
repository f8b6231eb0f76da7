#!/usr/bin/env python3
"""A store whose registry lies on an rqlite node: LUNs under load while tcmu-runner, the node and the host are killed.

The oracle is crash.py's: no acknowledged write is missing. While the node is away, writes go on. Words: rounds, 1 by default.
"""
import os
import sys
import time

import crash
import lab
from lab import check, say

RQLITED = os.environ.get("PLX_RQLITED", "/var/cache/parallax/rqlite/bin/rqlited")
AWAY = 10  # seconds without the node


def start_node(guest):
    """The node has its data beside the state directory, which outlives the host."""
    guest.run(f"setsid {RQLITED} -fk -node-id n0 -http-addr 127.0.0.1:4001 -raft-addr 127.0.0.1:4002 /var/lib/parallax/node "
              ">>/run/node.out 2>&1 </dev/null & echo $! >/run/node.pid")
    lab.wait_until(lambda: guest.run("parallax cluster status", ok=False).code == 0, "the node does not answer:",
                   lambda: guest.run("tail -n 20 /run/node.out; parallax cluster status 2>&1", ok=False).out, seconds=120)


def serve(guest, first):
    guest.run("mkdir -p /etc/parallax && printf '[registry]\\nnode = http://127.0.0.1:4001\\n' >/etc/parallax/parallax.conf")
    if first:
        guest.run("mkfs.ext4 -q /dev/ubdb")
    guest.run("mount /dev/ubdb /var/lib/parallax")
    start_node(guest)
    if first:
        guest.run("parallax store format s --volume /dev/ubda && parallax vdi create s/v --size 128M && parallax cluster init s", timeout=120)
    return guest.run(f"runner_up && put 0 parallax/s/v {crash.SIZE} && login && disk 0", timeout=120).text


def node_round(guest, disk, oracle, seed):
    """seed: above those of the rounds before. Without the registry nothing can be opened; what is open goes on, and nobody is told an error."""
    writers = crash.Writers(guest, disk, seed)
    writers.go_on("before the node is killed")
    guest.run("kill -9 $(cat /run/node.pid)")
    end = time.monotonic() + AWAY
    while time.monotonic() < end:
        writers.go_on("without the node")
        time.sleep(0.5)
    refused = guest.run("parallax vdi create s/w --size 1M", timeout=60, ok=False)
    check(refused.code == 1 and len(refused.err.splitlines()) == 1, "without the node:", refused.code, refused.err)
    start_node(guest)
    guest.run("parallax vdi create s/w --size 1M && parallax vdi delete s/w --yes", timeout=60)
    writers.go_on("with the node again")
    writers.stop(oracle, alive=True)
    oracle.verify(guest, disk)
    say(f"{AWAY} s without the node: writes go on, {oracle.acknowledged} acknowledged so far, none missing")


def test():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    lab.built("handler_parallax.so", "parallax")
    if not os.access(RQLITED, os.X_OK):
        raise lab.Skip(f"there is no {RQLITED} (tests/install-deps builds it, and says why if it cannot)")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 4 << 30), here.disk("state.img", 512 << 20)])
        oracle = crash.Oracle()
        disk = serve(guest, True)
        crash.daemon_rounds(guest, disk, oracle, rounds)
        for seed in range(51, 51 + rounds):
            node_round(guest, disk, oracle, seed)
        crash.host_rounds(guest, disk, oracle, rounds, serve)
        guest.run("logout; target_down; runner_down", timeout=60)
        say(guest.run("parallax store check s", timeout=120).text)
        guest.run("parallax cluster leave s && kill -9 $(cat /run/node.pid) && rm /etc/parallax/parallax.conf", timeout=120)
        disk = guest.run(f"runner_up && put 0 parallax/s/v {crash.SIZE} && login && disk 0", timeout=120).text
        oracle.verify(guest, disk)
        guest.run("logout; target_down; runner_down", timeout=60)
        say(guest.run("parallax store check s", timeout=120).text)
        guest.stop()


lab.main(test)
