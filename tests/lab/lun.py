#!/usr/bin/env python3
"""parallax lun with the real kernel target, beside what an administrator made with targetcli."""
import json

import lab
from lab import check, say

MINE, EMPTY, NAMED = "iqn.2026-11.org.lab:prepared", "iqn.2026-11.org.lab:empty", "iqn.2026-11.org.parallax:s.v"
IQN = "iqn.2026-11.org.lab:h1"
# All of a target, so that two of them can be compared.
DUMP = """python3 -c '
import json, sys, rtslib_fb
print(json.dumps([t.dump() for t in rtslib_fb.FabricModule("iscsi").targets if t.wwn == sys.argv[1]], sort_keys=True))' """


def target(guest, wwn=MINE):
    found = json.loads(guest.run(DUMP + wwn).text)
    return found[0]["tpgs"][0] if found else None


def refused(guest, words, *command):
    before = guest.run(f"{DUMP} {MINE}; cat /etc/rtslib-fb-target/saveconfig.json || true").out
    result = guest.run(" ".join(("parallax lun create", *command)), ok=False)
    lines = result.err.strip().splitlines()
    check(result.code != 0 and len(lines) == 1 and words in lines[0], command, result.code, result.err)
    check(guest.run(f"{DUMP} {MINE}; cat /etc/rtslib-fb-target/saveconfig.json || true").out == before,
          "a refused command changed something:", command)
    print("  " + lines[0])


def inq(guest, wwn, name, ok):
    result = lab.host("iscsi-inq", "-i", name, f"iscsi://{guest.ip}/{wwn}/0", ok=False)
    check((result.code == 0) == ok, f"{name} at {wwn}: {result.out}{result.err}")


def who_may_log_in(guest):
    refused(guest, "--any-initiator", "s/v")
    guest.run(f"parallax lun create s/v --initiator {IQN}")
    inq(guest, NAMED, IQN, True)
    inq(guest, NAMED, IQN + "0", False)
    refused(guest, "only initiators with an ACL", f"s/v --target {NAMED} --any-initiator")
    # The marks outlive a restart: what was saved is restored, and deleted as what create made.
    guest.run("targetcli clearconfig confirm=True; targetcli restoreconfig")
    inq(guest, NAMED, IQN, True)
    guest.run("parallax lun delete s/v")
    check(target(guest, NAMED) is None, "the target that create made stays")
    guest.run("parallax lun create s/v --any-initiator")
    inq(guest, NAMED, IQN + "0", True)
    guest.run("parallax lun delete s/v")
    say("who may log in is who was said")


def what_was_prepared(guest):
    guest.run(f"""targetcli <<'END'
/iscsi create {MINE}
cd /iscsi/{MINE}/tpg1
set attribute authentication=1 generate_node_acls=0
acls/ create {IQN}9
cd /
saveconfig
exit
END""", timeout=60)
    before = target(guest)
    refused(guest, "other access rules", f"s/v --target {MINE} --any-initiator")
    refused(guest, "add the portal with targetcli", f"s/v --target {MINE} --initiator {IQN} --portal {guest.ip}:3261")
    guest.run(f"parallax lun create s/v --target {MINE} --initiator {IQN}")
    with_lun = target(guest)
    for kind in ("attributes", "parameters", "portals", "enable"):
        check(with_lun[kind] == before[kind], f"{kind} of the prepared target have changed")
    check({a["node_wwn"]: len(a["mapped_luns"]) for a in with_lun["node_acls"]} == {IQN: 1, IQN + "9": 0},
          with_lun["node_acls"])
    inq(guest, MINE, IQN, False)  # authentication is still asked for
    guest.run("parallax lun delete s/v")
    check(target(guest) == before, "the prepared target is not what it was:", target(guest))
    guest.run("targetcli restoreconfig clear_existing=True")
    check(target(guest) == before, "the saved configuration is not what it was:", target(guest))
    say("what an administrator prepared stays as it was")


def what_was_empty(guest):
    """Without a LUN or an ACL, as 'targetcli /iscsi create' leaves it."""
    guest.run(f"targetcli /iscsi create {EMPTY}", timeout=60)
    before = target(guest, EMPTY)
    guest.run(f"parallax lun create s/v --target {EMPTY} --initiator {IQN}")
    guest.run("parallax lun delete s/v")
    check(target(guest, EMPTY) == before, "the empty target is not what it was:", target(guest, EMPTY))
    say("so does a target that was empty")


def with_a_ring(guest):
    """When the LUN is deleted, the store has all that the ring acknowledged."""
    guest.run("parallax ring create s /dev/ubdb && parallax vdi set s/v --ring on && parallax lun create s/v --any-initiator", timeout=60)
    guest.run("login && dd if=/dev/urandom of=/run/data bs=1M count=16 && dd if=/run/data of=$(ls /dev/sd?) bs=64k oflag=direct && logout",
              timeout=120)
    guest.run("parallax lun delete s/v", timeout=60)
    disk, ring = (json.loads(guest.run(f"parallax {words} --json").out) for words in ("vdi info s/v", "ring info s"))
    check(disk["ring_setting"] == "on" and not disk["ring_needed"] and not ring["disks"], disk, ring)
    guest.run("parallax vdi export s/v /run/back && cmp -n $((16 << 20)) /run/data /run/back", timeout=60)
    guest.run("parallax vdi set s/v --ring off && parallax ring delete s")
    say("a deleted LUN leaves nothing on its ring")


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 1 << 30), here.disk("ring.img", 64 << 20)])
        guest.run("runner_up; parallax store format s --volume /dev/ubda; parallax vdi create s/v --size 32M")
        who_may_log_in(guest)
        with_a_ring(guest)
        what_was_prepared(guest)
        what_was_empty(guest)
        guest.run("runner_down; parallax store check s", timeout=60)
        guest.stop()


lab.main(test)
