#!/usr/bin/env python3
"""The registry is lost; the store describes itself, so everything is served again."""
import lab
from lab import check, say

MIB = 1 << 20
LUNS = {0: "s/a", 1: "s/b", 2: "s/a@one", 3: "s/clone", 4: "s/a@two"}


def serve(guest):
    """Every LUN's checksum, read through the initiator."""
    guest.run("runner_up; " + "; ".join(f"put {lun} parallax/{vdi} {32 * MIB}" for lun, vdi in LUNS.items()) + "; login",
              timeout=120)
    sums = {}
    for lun, vdi in LUNS.items():
        sums[vdi] = guest.run(f"dd if=$(disk {lun}) bs=1M iflag=direct status=none | sha256sum").text
    return sums


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 1 << 30)])
        guest.run("parallax store format s --volume /dev/ubda && parallax vdi create s/a --size 32M && "
                  "parallax vdi create s/b --size 32M && runner_up && "
                  f"put 0 parallax/s/a {32 * MIB} && put 1 parallax/s/b {32 * MIB} && login")
        fill = "dd if=/dev/urandom of=$(disk {}) bs=64k count={} seek={} oflag=direct status=none"
        guest.run(fill.format(0, 100, 0))
        guest.run("parallax snap create s/a@one")
        guest.run(fill.format(0, 100, 50) + "; " + fill.format(1, 200, 0))
        guest.run("parallax snap create s/a@two; parallax vdi clone s/a@one s/clone")
        guest.run(fill.format(0, 30, 300))
        guest.run("logout; target_down; runner_down", timeout=60)
        before = serve(guest)
        guest.run("logout; target_down; runner_down", timeout=60)
        check(len(set(before.values())) == len(LUNS) - 1, "s/clone is s/a@one and nothing else is alike:", before)
        check(before["s/clone"] == before["s/a@one"], "the clone differs from its snapshot")
        names = guest.run("parallax snap list s/a; parallax vdi list s | sort").out
        say("served:", ", ".join(before))

        guest.run("rm -rf /var/lib/parallax/*; ls -A /var/lib/parallax")
        lost = guest.run("parallax vdi list s", ok=False)
        check(lost.code != 0 and len(lost.err.splitlines()) == 1, "a lost registry is not one clear error:", lost.err)
        say("without registry:", lost.err.strip())
        say(guest.run("parallax store rebuild-registry --volume /dev/ubda", timeout=120).text)
        found = guest.run("parallax snap list s/a; parallax vdi list s | sort").out
        check(found == names, f"names differ, before:\n{names}after:\n{found}")
        after = serve(guest)
        check(after == before, f"data differs: {before} {after}")
        guest.run(fill.format(3, 10, 0) + "; parallax snap create s/clone@later")
        guest.run("logout; target_down; runner_down", timeout=60)
        say(guest.run("parallax store check s", timeout=120).text)
        guest.stop()


lab.main(test)
