#!/usr/bin/env python3
"""A machine is lost under load, with its root disk, and another one goes on with its store, by the words of README.md.

alpha and beta see one volume, as machines on a SAN do. What takes the store is a command that README.md prints, with
the names of this lab in it, and that a refusal tells to give. After each loss all that this side has heard of is looked
for, through the initiator: acknowledged writes, fsynced files, labels, clones, and instants of continuous protection.
"""
import hashlib
import json
import os
import re
import socket
import time

import lab
from crash import Oracle, Writers
from lab import check, say

VOLUME = "/dev/ubda"
WEB = "32M"
EXPORTED = ("web", "log", "files", "web-test", "web@before")
BUSY = 4
STEP = 256 << 10  # bytes that each step of the log overwrites
QUIET_S = 0.5     # between a write and the instant that is to show it

# A file is named once its fsync and that of its folder have returned.
FILES = """
cd /mnt/files
for ((n = 1; ; n++)); do
    head -c $((RANDOM * 4)) /dev/urandom >$ROUND-$n
    sync $ROUND-$n .
    sha256sum $ROUND-$n
    nap 0.1
done
"""

# The same place again and again; each time is one at which the disk held what has the checksum.
STEPS = f"""
while :; do
    dd if=/dev/urandom of=/run/step bs=64k count={STEP >> 16} status=none
    dd if=/run/step of=$DISK bs=64k oflag=direct status=none
    nap {QUIET_S}
    now=$EPOCHREALTIME # once: between two readings a second may end
    TZ=UTC printf -v now '%(%Y-%m-%dT%H:%M:%S)T.%sZ' "${{now%.*}}" "${{now#*.}}"
    echo "$now $(sha256sum </run/step)"
done
"""

# What alpha's root disk has on it. The stores it knows and its exports outlive a loss of power.
ROOT = """
blkid /dev/ubdb >/dev/null || mkfs.ext4 -q /dev/ubdb
mkdir -p /srv/root && mount /dev/ubdb /srv/root && mkdir -p /srv/root/parallax /srv/root/target/pr
mount --bind /srv/root/parallax /var/lib/parallax
mount --bind /srv/root/target /etc/rtslib-fb-target
"""


# ---- what README.md says --------------------------------------------------------------------------

def recipes():
    """Verb: command, of README.md's parts on a move and a disaster. Their names are /dev/sdb, web1, demo/web and IQN."""
    with open(os.path.join(lab.SOURCE, "README.md"), encoding="utf-8") as text:
        part = re.search(r"^## Moving to another machine.*?(?=^A store whose registry is damaged)", text.read(), re.S | re.M)
    check(part, "README.md has no part on the loss of a machine")
    lines = [line.partition("#")[0].strip() for line in part[0].splitlines() if line.startswith("    parallax ")]
    found = {" ".join(line.split()[1:3]): line for line in lines}
    wanted = {"store scan", "store take-over", "vdi list", "lun create", "store import", "store release"}
    check(set(found) == wanted, "README.md's commands are not those that are tested:", lines)
    return {verb: line.replace("/dev/sdb", VOLUME).replace("web1", "alpha") for verb, line in found.items()}


RECIPES = recipes()


def follow(guest, verb, **words):
    """Gives README.md's command, as a newcomer would."""
    command = RECIPES[verb]
    for example, word in words.items():
        command = command.replace(example.replace("_", "/"), word)
    print("  #", command)
    done = guest.run(command, timeout=120)
    for line in (done.err + done.out).splitlines():
        print("   ", line)
    return done


def refused(guest, command, *words):
    """One line that has the words; gives the line."""
    done = guest.run(command, ok=False, timeout=120)
    lines = done.err.strip().splitlines()
    check(done.code == BUSY and len(lines) == 1, f"{command}: exit {done.code}, not refused: {done.out}{done.err}")
    for word in words:
        check(word in lines[0], f"{command}: the refusal does not say '{word}':", lines[0])
    print("  #", command)
    print("   ", lines[0])
    return lines[0]


# ---- load, and what it has acknowledged ------------------------------------------------------------

class Stream:
    """A script that says line by line what is done."""

    def __init__(self, guest, script, **words):
        self.command = guest.popen(script, env=words)
        self.thread = self.command.drain_in_background()

    def lines(self):
        heard = bytes(self.command.out)
        return heard[:heard.rfind(b"\n") + 1].decode().splitlines()  # the loss may have cut off the last

    def stop(self, alive):
        check(not alive or self.command.code is None, "a load ended by itself:", self.command.err.decode())
        self.command.conn.shutdown(socket.SHUT_RDWR)
        self.thread.join(30)
        self.command.conn.close()
        return self.lines()


class Truth:
    """What has to be there, whoever has the store."""

    def __init__(self):
        self.oracle = Oracle()
        self.files = []  # lines of sha256sum
        self.steps = []  # (time, checksum)
        self.sums = {}   # of what is not written any more
        self.names = None
        self.round = 0
        self.load = None

    def begin(self, guest, disks):
        self.round += 1
        guest.run(f"mkdir -p /mnt/files; mount -t ext4 {disks['files']} /mnt/files")
        self.load = (Writers(guest, disks["web"], self.round),
                     Stream(guest, FILES, ROUND=f"round{self.round}"), Stream(guest, STEPS, DISK=disks["log"]))

    def heard(self):
        writers, files, steps = self.load
        return min(writers.heard() // 20, len(files.lines()), 3 * len(steps.lines()))

    def go_on(self, amount=12, seconds=90):
        """Until every load has acknowledged something more."""
        amount += self.heard()
        lab.wait_until(lambda: self.heard() >= amount, "a load does not go on:",
                       lambda: [stream.command.err.decode() for stream in self.load[1:]], seconds=seconds)

    def end(self, alive):
        writers, files, steps = self.load
        writers.stop(self.oracle, alive)
        self.files += files.stop(alive)
        self.steps += [tuple(line.split()[:2]) for line in steps.stop(alive)]
        say(f"heard so far: {self.oracle.acknowledged} writes, {len(self.files)} files, {len(self.steps)} instants")

    def verify(self, guest, disks):
        self.oracle.verify(guest, disks["web"])
        for name, checksum in self.sums.items():
            check(checksum_of(guest, disks[name]) == checksum, f"{name} is not what it was")
        guest.run(f"mkdir -p /mnt/files; mount -t ext4 {disks['files']} /mnt/files")
        files = guest.run('cd /mnt/files; echo "$FILES" | sha256sum --check --quiet',
                          env={"FILES": "\n".join(self.files)}, ok=False)
        check(files.code == 0, "fsynced files are missing or wrong:", files.out[-2000:], files.err[-1000:])
        guest.run(f"umount /mnt/files; fsck.ext4 -fn {disks['files']}")
        check(names(guest) == self.names, "disks, clones or labels are not what they were:", names(guest), self.names)
        self.verify_instants(guest)
        say(f"all there: {self.oracle.acknowledged} writes, {len(self.files)} files, {len(self.steps)} instants, "
            f"{len(self.names['vdis'])} disks, their labels and the clone")

    def verify_instants(self, guest):
        script = f"for at in $TIMES; do parallax vdi export demo/log@$at - | head -c {STEP} | sha256sum; done"
        found = guest.run(script, env={"TIMES": " ".join(when for when, _ in self.steps)}, timeout=400).out.splitlines()
        for (when, checksum), line in zip(self.steps, found, strict=True):
            got = line.split()[0]
            if got != checksum:  # what there is around that time tells whether a snapshot came late
                around = guest.run(f"parallax cdp status demo; parallax snap list demo/log | grep -F '{when[:17]}' | tail -n 40", ok=False)
                check(False, f"demo/log as it was at {when} is not what was written by then, but by",
                      [at for at, other in self.steps if other == got], "\n" + around.out)


def checksum_of(guest, disk):
    return guest.run(f"dd if={disk} bs=1M iflag=direct status=none | sha256sum", timeout=120).text


def names(guest):
    lists = {"vdis": "vdi list demo", "web": "snap list demo/web --labels", "log": "snap list demo/log --labels"}
    found = {name: json.loads(guest.run(f"parallax {words} --json").out) for name, words in lists.items()}
    for row in found["vdis"]:
        row.pop("open_by", None)
        row.pop("used_bytes", None)  # what a reader finds in use while it is written
    return found


# ---- a machine's doings ----------------------------------------------------------------------------

def export(guest):
    """Exports all by README.md's command and logs in: the initiator's device of each."""
    guest.run("runner_up", timeout=90)
    iqn = f"iqn.2026-11.org.lab:{guest.name}"
    addresses = {name: follow(guest, "lun create", demo_web=f"demo/{name}", IQN=iqn).text for name in EXPORTED}
    guest.run("login", timeout=90)
    disks = {}
    for name, address in addresses.items():
        *_, target, lun = address.split("/")
        disks[name] = guest.run(f"TPG=/sys/kernel/config/target/iscsi/{target}/tpgt_1; disk {lun}").text
    return disks


def prepare(alpha, truth):
    """On alpha: disks, a label, a clone that differs from it, continuous protection; all are exported."""
    alpha.run(f"""{ROOT}
parallax store format demo --volume {VOLUME}
truncate -s {WEB} /run/image
dd if=/dev/urandom of=/run/image bs=1M seek=20 count=4 conv=notrunc status=none # behind what the writers write
parallax vdi import /run/image demo/web
parallax snap create demo/web@before
parallax vdi clone demo/web@before demo/web-test
parallax vdi create demo/log --size 16M
parallax cdp on demo/log --every 10ms
parallax vdi create demo/files --size 128M""", timeout=120)
    disks = export(alpha)
    alpha.run(f"dd if=/dev/urandom of={disks['web-test']} bs=64k count=16 seek=300 oflag=direct status=none; "
              f"mkfs.ext4 -q {disks['files']}; parallax snap create demo/log@empty; sync")
    truth.sums = {name: checksum_of(alpha, disks[name]) for name in ("web-test", "web@before")}
    truth.names = names(alpha)
    check(len(set(truth.sums.values())) == 2, "the clone is not what was written to it")
    say("alpha exports", ", ".join(disks))
    return disks


# ---- the story -------------------------------------------------------------------------------------

def take_over(alpha, beta, truth):
    """alpha is lost, beta goes on."""
    say("beta while alpha runs: it finds the store, and does not get it")
    check(re.search(rf"{VOLUME} .* alpha ", follow(beta, "store scan").out), "scan does not name alpha")
    advice = refused(beta, RECIPES["store import"], "belongs to host alpha")
    check(f"'{RECIPES['store take-over']}'" in advice, "the refusal does not tell to do what README.md does")
    refused(beta, RECIPES["store take-over"].replace(" --i-checked-it-is-off", ""), "--i-checked-it-is-off")
    refused(beta, RECIPES["store take-over"], "in use by host alpha", "is running")
    truth.go_on()

    say("alpha loses power")
    alpha.kill()
    truth.end(alive=False)
    refused(beta, RECIPES["store import"], "belongs to host alpha")
    check(beta.run("parallax store list --json").text == "[]", "a refused store is known all the same")
    follow(beta, "store take-over")
    check("on alpha, gone" in follow(beta, "vdi list").out, "vdi list does not say that who had the disks is gone")
    disks = export(beta)
    truth.verify(beta, disks)
    print("   ", beta.run("parallax store check demo --data", timeout=120).text)
    return disks


def comes_back(alpha, beta, truth, disks, image):
    """alpha comes back with its root disk, while beta has the store and when beta is off."""
    truth.begin(beta, disks)
    say("alpha comes back while beta goes on")
    alpha.start()
    alpha.run(ROOT)
    tries(alpha)
    truth.go_on()
    say("beta loses power; alpha still has no right to the store")
    beta.kill()
    truth.end(alive=False)
    before = digest(image)
    tries(alpha)
    check(digest(image) == before, "alpha wrote to a store that beta has")


def tries(alpha):
    """All that would write, and what a machine does by itself when it starts."""
    alpha.run("runner_up", timeout=90)
    take = "'parallax store take-over demo --from beta --i-checked-it-is-off'"
    for command in ("snap create demo/web@stale", "vdi create demo/stale --size 1M", "cdp off demo/log", "gc demo",
                    "store release demo"):
        refused(alpha, "parallax " + command, "belongs to host beta", take)
    # By the handler, whose words come through tcmu-runner's log.
    refused(alpha, f"parallax lun create demo/web --initiator iqn.2026-11.org.lab:{alpha.name}", "belongs to host beta",
            take)
    for command in (RECIPES["store import"], RECIPES["store import"].replace("import", "rebuild-registry")):
        refused(alpha, command, "belongs to host beta", RECIPES["store take-over"].replace("alpha", "beta"))
    restored = alpha.run("targetcli restoreconfig; ls -d $CORE/user_*/* || true", timeout=120, ok=False)
    check("demo.web" in restored.out + restored.err, "alpha's exports were not saved:", restored.out, restored.err)
    check(alpha.run("ls -d $CORE/user_*/*/enable || true").text == "", "alpha exports disks of beta's store")
    alpha.run("runner_down", timeout=60)


def state_lost(beta, truth):
    """The same machine after a loss of power that took its state directory along."""
    say("beta comes back and knows nothing of its store")
    beta.start()
    check(beta.run("ls -A /var/lib/parallax").text == "", "beta's state directory outlived it")
    check(re.search(rf"{VOLUME} .* beta ", follow(beta, "store scan").out), "scan does not name beta")
    follow(beta, "store import")
    disks = export(beta)
    truth.verify(beta, disks)
    truth.begin(beta, disks)
    truth.go_on()
    truth.end(alive=True)
    beta.run("wait_for 20 umount /mnt/files")
    truth.verify(beta, disks)
    print("   ", beta.run("parallax store check demo --data", timeout=120).text)


def handed_over(alpha, beta, truth):
    """In order: beta gives the store up, alpha takes it."""
    say("beta gives the store back to alpha")
    beta.run("logout")
    for name in EXPORTED:
        beta.run(f"parallax lun delete demo/{name}")
    follow(beta, "store release")
    follow(alpha, "store import")
    disks = export(alpha)
    truth.verify(alpha, disks)
    alpha.run("logout; runner_down", timeout=60)
    print("   ", alpha.run("parallax store check demo --data", timeout=120).text)


def digest(path):
    with open(path, "rb") as image:
        return hashlib.file_digest(image, "sha256").hexdigest()


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        image = here.disk("store.img", 1 << 30, shared=True)
        alpha = here.guest(disks=[image, here.disk("alpha.img", 256 << 20)], name="alpha")
        beta = here.guest(disks=[image], name="beta")
        truth = Truth()
        truth.begin(alpha, prepare(alpha, truth))
        truth.go_on()
        disks = take_over(alpha, beta, truth)
        comes_back(alpha, beta, truth, disks, image)
        state_lost(beta, truth)
        handed_over(alpha, beta, truth)
        alpha.stop()
        beta.stop()


if __name__ == "__main__":
    lab.main(test)
