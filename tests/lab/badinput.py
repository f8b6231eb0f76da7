#!/usr/bin/env python3
"""What users get wrong: each is refused with a reason, leaves nothing behind, and the LUN beside it goes on."""
import lab
from lab import check, say

MIB = 1 << 20
SIZE = 32 * MIB
GOOD = "parallax/s/v"


class Neighbour:
    """A LUN in use. However wrong the input, it must answer and hold its data, and the daemon must live."""

    def __init__(self, guest):
        self.guest = guest
        self.device = guest.run("disk 0").text
        guest.run(f"dd if=/dev/urandom of={self.device} bs=1M count=8 oflag=direct status=none")
        self.sum = self.read()

    def read(self):
        return self.guest.run(f"timeout 20 dd if={self.device} bs=1M count=8 iflag=direct status=none | sha256sum").text

    def fine(self, after):
        self.guest.run("runner_alive")
        check(self.read() == self.sum, "the neighbour's data changed after", after)


# Wrong only by what there is: check_config, which any user may ask, must not tell.
NOT_THERE = {"store with a typo", "VDI with a typo", "snapshot with a typo"}
# What, cfgstring, bytes, words that the reason must contain (in small letters, any of them).
CFGSTRINGS = [
    ("no VDI", "parallax/s", SIZE, ("store/vdi", "name", "vdi")),
    ("empty", "parallax/", SIZE, ("store/vdi", "name", "empty", "vdi")),
    ("empty name", "parallax/s/", SIZE, ("name", "empty", "vdi")),
    ("store with a typo", "parallax/ss/v", SIZE, ("ss",)),
    ("VDI with a typo", "parallax/s/vv", SIZE, ("vv",)),
    ("snapshot with a typo", "parallax/s/v@nope", SIZE, ("nope",)),
    ("empty snapshot", "parallax/s/v@", SIZE, ("snapshot", "empty", "name", "label")),
    ("unknown option", "parallax/s/v;colour=red", SIZE, ("colour",)),
    ("option without a value", "parallax/s/v;overwrite", SIZE, ("overwrite",)),
    ("option with a wrong value", "parallax/s/v;overwrite=sideways", SIZE, ("sideways", "overwrite")),
    ("name with a slash", "parallax/s/v/w", SIZE, ("name", "v/w", "slash", "/")),
    ("name of 300 characters", "parallax/s/" + "n" * 300, SIZE, ("long", "name", "255")),
    ("control character", "parallax/s/v\x01w", SIZE, ("name", "character", "not")),
    ("not UTF-8", "parallax/s/v\\xff", SIZE, ("name", "not", "utf")),
    ("size mismatch", GOOD, 2 * SIZE, ("size",)),
    ("size too small", GOOD, SIZE // 2, ("size",)),
    ("size 0", GOOD, 0, ("size", "0")),
    ("size of 300 TiB", GOOD, 300 << 40, ("size",)),
    ("size off by a sector", GOOD, SIZE + 512, ("size",)),
    ("another subtype with our prefix", "parallaxx/s/v", SIZE, ()),
]


def refused_by_configfs(guest, neighbour):
    """The kernel's interface checks nothing: open() has to, and tcmu-runner's log has the reason."""
    for what, cfg, size, words in CFGSTRINGS:
        log = guest.run("wc -l </var/log/tcmu-runner.log").text
        cfg = cfg.replace("\\xff", "$'\\xff'") if "\\xff" in cfg else cfg
        result = guest.run(f"store_add bad {quote(cfg)} {size}", ok=False, timeout=30)
        check(result.code != 0, "configfs accepted:", what)
        check(guest.run("ls -d $CORE/user_0/bad 2>/dev/null", ok=False).text == "", what, "left a backstore")
        reason = guest.run(f"tail -n +$(({log} + 1)) /var/log/tcmu-runner.log | grep ERROR | head -3").text.lower()
        helpful(what, words, reason)
        neighbour.fine(what)
    say(len(CFGSTRINGS), "bad cfgstrings refused by open()")


def helpful(what, words, reason):
    check(reason and (not words or any(word in reason for word in words)), f"{what}: the reason does not help: {reason}")


def quote(text):
    return text if text.startswith("$'") else "'" + text.replace("'", "'\\''") + "'"


def refused_by_targetcli(guest, neighbour):
    """The way people take: the handler's reason must reach them. One targetcli, for it starts slowly."""
    script = ["targetcli <<'END' 2>&1"]
    shown = []
    for what, cfg, size, words in CFGSTRINGS:
        subtype, _, rest = cfg.partition("/")
        if subtype != "parallax" or size == 0 or not cfg.isprintable() or not rest or "\\x" in cfg:
            continue  # targetcli itself refuses or mangles these
        script += ["cd /", f"/backstores/user:parallax create name=bad size={size} cfgstring={rest}"]
        shown.append((what, words))
    script += ["cd /", "/backstores/user:parallax create name=good size=%d cfgstring=%s" % (SIZE, "s/w"), "exit", "END"]
    out = guest.run("\n".join(script), timeout=180, ok=False).out
    print(out)
    reasons = [line.lower() for line in out.splitlines() if "cfgstring invalid" in line or "creation failed" in line]
    check(len(reasons) == len(shown), "targetcli gave", len(reasons), "reasons for", len(shown), "mistakes")
    for (what, words), reason in zip(shown, reasons):
        # check_config is not told the size and looks nothing up: what only open() can refuse has its
        # reason in the log (above), and targetcli does not pass it on.
        if "size" in what or what in NOT_THERE:
            check("creation failed" in reason, f"{what}: check_config told more than it should: {reason}")
        else:
            helpful(what, words, reason)
    say("targetcli shows the reasons")
    check("Created user-backed storage object good" in out, "after the mistakes a right cfgstring is refused")
    neighbour.fine("targetcli")
    guest.run("targetcli /backstores/user:parallax delete good", timeout=60)


def refused_by_command(guest, neighbour):
    long = "n" * 300
    cases = [
        "vdi create s/zero --size 0", "vdi create s/big --size 300T", "vdi create s/neg --size=-5M",
        "vdi create s/odd --size 1000", "vdi create s/word --size many", "vdi create s/a/b --size 32M",
        f"vdi create s/{long} --size 32M", "vdi create s/v --size 32M", "vdi create nostore/v --size 32M", "vdi create s/ --size 32M",
        "vdi resize s/v --size 16M", "vdi clone s/v@nope s/x", "vdi clone s/v s/v", "snap create s/nope",
        f"snap create s/v@{long}", "vdi delete s/nope --yes", "store info nope", "frobnicate s/v", "vdi frobnicate s/v",
        "vdi create s/x --size 32M --colour red", "store format s --volume /dev/ubda",
        "store format t --volume /root/foreign", "store rebuild-registry --volume /root/foreign",
        "store rebuild-registry --volume /root/none", "store format t --volume /nodir/t.plx --size 1G",
    ]
    before = guest.run("parallax tree s; parallax store list").out
    guest.run("cp /bin/ls /root/foreign; sha256sum /root/foreign >/root/foreign.sum")
    for case in cases:
        result = guest.run(f"parallax {case} </dev/null", ok=False, timeout=30)
        check(0 < result.code < 126, f"parallax {case[:60]}: exit {result.code}")
        lines = result.err.strip().splitlines()
        check(len(lines) == 1, f"parallax {case[:60]}: not one line: {result.err} {result.out}")
        print(f"  {case[:60]}: {lines[0][:160]}")
    guest.run("sha256sum -c --quiet /root/foreign.sum")
    check(guest.run("parallax tree s; parallax store list").out == before, "refused commands changed something")
    neighbour.fine("bad commands")
    say(len(cases), "bad commands refused, one line each")


def full(guest, neighbour):
    """A store without space: the write fails with the right sense, the rest goes on, deleting helps."""
    guest.run("mkdir -p /srv/small; mkfs.ext4 -q /dev/ubdb; mount /dev/ubdb /srv/small; "
              "parallax store format small --volume /srv/small/store --size 128M --extent-size 8M; "
              f"parallax vdi create small/v --size 512M; put 5 parallax/small/v {512 * MIB}; rescan")
    device = guest.run("disk 5").text
    result = guest.run(f"dd if=/dev/urandom of={device} bs=1M oflag=direct 2>&1", ok=False, timeout=120)
    check(result.code != 0, "512 MiB fit into a store of 128 MiB")
    done = int(result.out.split(" records out")[0].splitlines()[-1].split("+")[0])
    check(done >= 32, f"a store of 128 MiB is full after {done} MiB")
    # What is left is less than 1 MiB: use it up.
    guest.run(f"dd if=/dev/urandom of={device} bs=4k seek=114688 count=1024 oflag=direct 2>&1", ok=False, timeout=120)
    sense = guest.run(f"head -c 4096 /dev/urandom >/run/p; sg_raw -s 4096 -i /run/p {device} 2a 00 00 0f 00 00 00 00 08 00 2>&1", ok=False)
    say("full:", " ".join(sense.out.split()))
    check(sense.code != 0 and "Data Protect" in sense.out and "27" in sense.out or "pace allocation" in sense.out,
          "sense of a full store is not 07/27/07:", sense.out)
    guest.run(f"dd if={device} bs=1M count={done} iflag=direct of=/dev/null status=none; "
              f"parallax snap create small/v; sg_sync {device}", timeout=60)
    guest.run(f"blkdiscard -o 0 -l $((16 << 20)) {device}; parallax store info small")
    neighbour.fine("a full store")
    guest.run(f"echo 1 >/sys/block/{device[5:]}/device/delete; take 5")
    guest.run("parallax store check small", timeout=60)
    say(f"store full after {done} MiB of 128, reads, flush and snapshot still work")


def disk_full(guest, neighbour):
    """The disk under a sparse file volume fills up: an error, then recovery when there is space again."""
    guest.run("parallax store format thin --volume /srv/small/thin --size 1G; "
              f"parallax vdi create thin/v --size 512M", ok=False)
    result = guest.run(f"put 6 parallax/thin/v {512 * MIB} && rescan", ok=False)
    if result.code:
        say("a file volume larger than its disk is refused:", result.err.strip()[-200:])
        neighbour.fine("an impossible volume")
        return
    device = guest.run("disk 6").text
    result = guest.run(f"dd if=/dev/urandom of={device} bs=1M oflag=direct 2>&1", ok=False, timeout=120)
    check(result.code != 0, "the disk did not fill up")
    neighbour.fine("a full disk")
    guest.run(f"echo 1 >/sys/block/{device[5:]}/device/delete; take 6")
    guest.run("rm /srv/small/store; parallax store check thin", timeout=60)
    guest.run(f"put 6 parallax/thin/v {512 * MIB} && rescan")
    device = guest.run("disk 6").text
    guest.run(f"dd if=/dev/urandom of={device} bs=1M count=8 oflag=direct status=none; "
              f"echo 1 >/sys/block/{device[5:]}/device/delete; take 6")
    say("full disk under a file volume: an error, and recovery with space")


def read_only(guest, neighbour):
    guest.run("mkdir -p /srv/ro; mkfs.ext4 -q /dev/ubdc; mount /dev/ubdc /srv/ro; "
              "parallax store format ro --volume /srv/ro/store --size 256M; parallax vdi create ro/v --size 32M; "
              "mount -o remount,ro /srv/ro")
    result = guest.run(f"put 7 parallax/ro/v {SIZE}", ok=False)
    check(result.code != 0, "a VDI on a read-only file was opened for writing")
    result = guest.run("parallax vdi create ro/w --size 32M", ok=False)
    check(result.code != 0 and len(result.err.strip().splitlines()) == 1, "read-only file:", result.err)
    neighbour.fine("a read-only file")
    guest.run("mount -o remount,rw /srv/ro")
    guest.run(f"put 7 parallax/ro/v {SIZE}; take 7")
    say("read-only file refused:", result.err.strip())


def volumes(guest, neighbour):
    """Truncated, foreign and vanished volumes."""
    guest.run("parallax store format cut --volume /srv/ro/cut --size 256M; parallax vdi create cut/v --size 32M; "
              "cp --sparse=always /srv/ro/cut /srv/ro/whole; truncate -s 100M /srv/ro/cut")
    for what, spoil in (("truncated", ":"), ("foreign", "head -c 256M /dev/urandom >/srv/ro/cut"),
                        ("empty", ": >/srv/ro/cut"), ("gone", "rm /srv/ro/cut")):
        guest.run(spoil)
        result = guest.run(f"put 8 parallax/cut/v {SIZE}", ok=False)
        check(result.code != 0, f"a VDI on a {what} volume was opened")
        result = guest.run("parallax vdi info cut/v", ok=False)
        check(result.code != 0 and len(result.err.strip().splitlines()) == 1, what, "volume:", result.err)
        print(f"  {what}: {result.err.strip()}")
        neighbour.fine(f"a {what} volume")
    guest.run(f"cp --sparse=always /srv/ro/whole /srv/ro/cut; put 8 parallax/cut/v {SIZE}; take 8")
    say("truncated, foreign, empty and vanished volumes refused; the whole one serves again")


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 1 << 30), here.disk("small.img", 320 << 20),
                                  here.disk("ro.img", 1 << 30)])
        guest.run("parallax store format s --volume /dev/ubda && parallax vdi create s/n --size 32M && "
                  "parallax vdi create s/v --size 32M && parallax vdi create s/w --size 32M && "
                  f"runner_up && put 0 parallax/s/n {SIZE} && login")
        neighbour = Neighbour(guest)
        for part in (refused_by_configfs, refused_by_targetcli, refused_by_command, full, disk_full, read_only, volumes):
            part(guest, neighbour)
        # The VDI that all the wrong attempts named is not held by any of them.
        guest.run(f"put 1 {GOOD} {SIZE}; take 1; take 0 || true; logout; target_down; runner_down; parallax store check s",
                  timeout=60)
        guest.stop()


lab.main(test)
