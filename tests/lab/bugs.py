#!/usr/bin/env python3
"""The faults of kernel and tcmu-runner that a handler has to live with: each is provoked on one LUN,
after which that LUN works, its neighbour never stopped working, and the daemon is the same one as before."""
import threading
import time

import lab
from lab import check, say

MIB = 1 << 20
SIZE = 64 * MIB


class Stage:
    """LUN 0 is the victim, LUN 1 the neighbour, LUN 2 a snapshot of the victim. Restored after each case."""

    def __init__(self, guest):
        self.guest = guest
        guest.run("parallax store format s --volume /dev/ubda && parallax vdi create s/v --size 64M && "
                  f"parallax vdi create s/n --size 64M && runner_up && put 0 parallax/s/v {SIZE} && put 1 parallax/s/n {SIZE}; login")
        self.victim, self.neighbour = (guest.run(f"disk {n}").text for n in (0, 1))
        for disk in (self.victim, self.neighbour):
            guest.run(f"dd if=/dev/urandom of={disk} bs=1M count=4 oflag=direct status=none")
        guest.run(f"parallax snap create s/v@s && put 2 parallax/s/v@s {SIZE} && rescan")
        self.snapshot = guest.run("disk 2").text
        self.sums = {disk: self.sum(disk) for disk in (self.neighbour, self.snapshot)}
        self.daemon = guest.run("runner_pid").text

    def sum(self, disk, mib=4):
        return self.guest.run(f"timeout 50 dd if={disk} bs=1M count={mib} iflag=direct status=none | sha256sum").text

    def raw(self, disk, cdb, data=b"", read=0, timeout=60):
        """sg_raw; gives (exit status, everything it said). By the generic node: a write-protected block device refuses by itself."""
        disk = self.guest.run(f"echo /dev/$(ls /sys/block/{disk[5:]}/device/scsi_generic)").text
        words = f"-r {read}" if read else f"-s {len(data)} -i /run/raw" if data else ""
        if data:
            self.guest.run(f"echo {data.hex()} | xxd -r -p >/run/raw" if len(data) < 4096 else
                           f"head -c {len(data)} /dev/zero | tr '\\0' '\\{data[0]:o}' >/run/raw")
        for _ in range(3):
            result = self.guest.run(f"sg_raw --cmdset=1 -t {timeout} {words} {disk} {cdb} 2>&1", ok=False, timeout=timeout + 40)
            if "Unit Attention" not in result.out:
                break
        return result.code, result.out

    def fine(self, restarted=False):
        """Victim, neighbour and snapshot answer; what nobody may change has not changed."""
        self.guest.run("runner_alive")
        if not restarted:
            check(self.guest.run("runner_pid").text == self.daemon, "tcmu-runner is another one")
        for disk, wanted in self.sums.items():
            check(self.sum(disk) == wanted, f"{disk} changed")
        self.guest.run(f"dd if=/dev/urandom of=/run/p bs=64k count=1 status=none; "
                       f"timeout 50 dd if=/run/p of={self.victim} bs=64k seek=40 oflag=direct status=none; "
                       f"timeout 50 dd if={self.victim} bs=64k skip=40 count=1 iflag=direct status=none | cmp - /run/p", timeout=120)


class Load:
    """Reads and writes of the neighbour while something happens to the victim."""

    def __init__(self, stage):
        self.stage, self.worst, self.rounds, self.error, self.going = stage, 0, 0, None, True
        self.thread = threading.Thread(target=self.work)

    def work(self):
        while self.going:
            begin = time.monotonic()
            result = self.stage.guest.run(f"timeout 20 dd if=/dev/zero of={self.stage.neighbour} bs=4k count=50 seek=2048 oflag=direct status=none",
                                          ok=False, timeout=40)
            if result.code:
                self.error = result.err or f"exit {result.code}"
            self.worst = max(self.worst, time.monotonic() - begin)
            self.rounds += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.going = False
        self.thread.join()


def inquiry_leak(stage):
    """tcmu-runner answers INQUIRY in the ring's memory and leaves what another command left there."""
    pattern = b"\xa5" * 65536
    for _ in range(8):
        stage.raw(stage.victim, "2a 00 00 00 20 00 00 00 80 00", data=pattern)
    for cdb, length in (("12 00 00 00 ff 00", 255), ("12 01 00 00 ff 00", 255), ("12 01 80 00 ff 00", 255),
                        ("12 01 83 00 ff 00", 255), ("12 01 b0 00 ff 00", 255), ("12 01 b2 00 ff 00", 255)):
        out = stage.guest.run(f"sg_raw -r {length} -b {stage.victim} {cdb} 2>/dev/null | xxd -p | tr -d '\\n'",
                              ok=False).text
        check("a5a5a5a5" not in out, f"INQUIRY {cdb} leaks another command's data: {out}")
    # What is not of the answer has to be zero, the snapshot's data included.
    out = stage.guest.run(f"sg_raw -r 255 -b {stage.victim} 12 00 00 00 ff 00 2>/dev/null | xxd -p | tr -d '\\n'").text
    data = bytes.fromhex(out)
    check(not any(data[5 + data[4]:]), "INQUIRY is followed by", data[5 + data[4]:].hex())


def unmap(stage):
    """tcmu-runner divides by the alignment that a handler did not set."""
    result = stage.guest.run(f"sg_unmap --force --lba=8192 --num=8192 {stage.victim} && "
                             f"sg_unmap --force --lba=8193 --num=3 {stage.victim} && sg_unmap --force --lba=1 --num=1 {stage.victim} && "
                             f"sg_unmap --force --lba=0 --num=0 {stage.victim}", ok=False)
    check(result.code == 0, "UNMAP:", result.out, result.err)
    data = stage.guest.run(f"dd if={stage.victim} bs=512 skip=8192 count=8192 iflag=fullblock status=none | tr -d '\\0' | wc -c").text
    check(data == "0", "unmapped sectors read as", data, "bytes that are not zero")


def write_same_unmap(stage):
    for options in ("--10 --unmap --lba=8192 --num=1024", "--16 --unmap --lba=8192 --num=1024", "--16 --unmap --lba=3 --num=5",
                    "--16 --lba=16384 --num=4096 --ff", "--16 --lba=17 --num=3 --ff"):
        result = stage.guest.run(f"sg_write_same {options} --xferlen=512 {stage.victim}", ok=False)
        check(result.code == 0, "WRITE SAME", options, result.out, result.err)


def unmap_of_a_snapshot(stage):
    """A failed UNMAP is reported as GOOD: it must fail before tcmu-runner gets it, and must never take effect."""
    for command in (f"sg_unmap --force --lba=0 --num=2048 {stage.snapshot}",
                    f"sg_write_same --16 --unmap --lba=0 --num=2048 --xferlen=512 {stage.snapshot}",
                    f"sg_write_same --16 --lba=0 --num=2048 --xferlen=512 --ff {stage.snapshot}",
                    f"dd if=/dev/zero of={stage.snapshot} bs=4k count=1 oflag=direct"):
        result = stage.guest.run(command, ok=False)
        check(result.code != 0, "a snapshot took:", command)
        check(stage.sum(stage.snapshot) == stage.sums[stage.snapshot], "a snapshot was changed by", command)
    code, out = stage.raw(stage.snapshot, "2a 00 00 00 00 00 00 00 01 00", data=b"\x11" * 512)
    check(code != 0 and "rite protect" in out, "a write to a snapshot is not 'write protected':", out)


def format_unit(stage):
    """tcmu-runner emulates FORMAT UNIT for everybody by writing zeroes: it must not reach the data of others."""
    code, out = stage.raw(stage.victim, "04 00 00 00 00 00", timeout=120)
    say("  FORMAT UNIT:", code, " ".join(out.split())[:160])
    code, out = stage.raw(stage.snapshot, "04 00 00 00 00 00", timeout=120)
    check(code != 0, "a snapshot was formatted:", out)


def big_commands(stage):
    """The advertised limit of 128 sectors is not kept by anyone."""
    for size in (128 << 10, 1 << 20):
        blocks = size // 512
        cdb = f"2a 00 00 00 10 00 00 {blocks >> 8:02x} {blocks & 255:02x} 00"
        code, out = stage.raw(stage.victim, cdb, data=b"\x5a" * size)
        say(f"  WRITE of {size} bytes:", "done" if code == 0 else " ".join(out.split())[:120])
        if code == 0:
            left = stage.guest.run(f"dd if={stage.victim} bs=512 skip=4096 count={blocks} iflag=fullblock status=none | tr -d 'Z' | wc -c").text
            check(left == "0", f"{left} bytes of a {size} byte write did not arrive")


def unsupported(stage):
    """Commands that nobody implements end at once, with ILLEGAL REQUEST."""
    for cdb in ("b9 00 00 00 00 00 00 00 00 00 00 00", "3b 00 00 00 00 00 00 00 00 00", "51 00 00 00 00 00 00 00 00 00",
                "a4 05 00 00 00 00 00 00 00 00 00 00"):
        begin = time.monotonic()
        code, out = stage.raw(stage.victim, cdb)
        check(code != 0 and time.monotonic() - begin < 10, cdb, code, out)


def write_cache_switched(stage):
    """A reconfiguration under load: the attribute changes, nothing else."""
    with Load(stage) as load:
        for value in (1, 0, 1, 0):
            stage.guest.run(f"echo {value} >$CORE/user_0/v0/attrib/emulate_write_cache", ok=False)
            time.sleep(0.2)
    check(not load.error, "the neighbour:", load.error)
    cached = stage.guest.run("cat $CORE/user_0/v0/attrib/emulate_write_cache").text
    check(cached == "0", "the write cache cannot be switched off again")


def dropped_opcodes(stage):
    """Groups 3, 6 and 7 are dropped between kernel and tcmu-runner: the command stalls, and only that one."""
    with Load(stage) as load:
        for opcode in ("c0", "62"):
            begin = time.monotonic()
            code, out = stage.raw(stage.victim, f"{opcode} 00 00 00 00 00", timeout=5)
            say(f"  opcode {opcode}: status {code} after {time.monotonic() - begin:.0f} s")
            check(code != 0, f"opcode {opcode} succeeded:", out)
    check(not load.error, "the neighbour:", load.error)
    say(f"  the neighbour's slowest 50 writes took {load.worst:.1f} s")


def reset(stage):
    """Resets under load: everything that was running completes or is retried."""
    with Load(stage) as load:
        writer = stage.guest.popen(f"for n in 1 2 3 4 5 6; do dd if=/dev/zero of={stage.victim} bs=64k count=64 seek=512 oflag=direct status=none || exit; done")
        for _ in range(3):
            stage.guest.run(f"sg_reset --device {stage.victim}", timeout=90)
        result = writer.finish(120)
        writer.conn.close()
    check(result.code == 0, "a writer got an error from a reset:", result.err)
    check(not load.error, "the neighbour:", load.error)


def failed_open(stage):
    """open() is called twice when it fails; neither call may keep anything."""
    guest = stage.guest
    guest.run("parallax vdi create s/f --size 32M")
    for _ in range(3):
        result = guest.run(f"store_add f parallax/s/f {48 * MIB}", ok=False)
        check(result.code != 0, "a wrong size was accepted")
    guest.run(f"store_add f parallax/s/f {32 * MIB}; store_del f; parallax vdi delete s/f --yes")


def ended(popen):
    """What a command in the background said, once it has ended well."""
    result = popen.finish(120)
    popen.conn.close()
    check(result.code == 0, f"exit {result.code}:", result.out, result.err)
    return result.text


def open_while_held(stage):
    """A command has the disk of a LUN that begins: open() waits for a moment. Others' I/O goes on, snapshots and
    LUNs wait with it and then succeed; a disk that is free in time is opened, one that is not is refused."""
    guest = stage.guest
    guest.run("rm -f /run/held; mkfifo /run/held")
    for name in "hof":
        guest.run(f"parallax vdi create s/{name} --size 32M")
    hold = ("exec 9<>/run/held; parallax vdi import /run/held s/h --force >/dev/null 2>&1 9>&- & p=$!; "
            "until parallax vdi info s/h --json | grep -q '\"open_by\": \"admin'; do sleep 0.1; done; ")
    with Load(stage) as load:
        holder = guest.popen(hold + "sleep 30; kill -INT $p; wait $p || true")
        guest.run("until parallax vdi info s/h --json | grep -q '\"open_by\": \"admin'; do sleep 0.1; done", timeout=60)
        begin, rounds = time.monotonic(), load.rounds
        beside = {"the LUN": f"! store_add h parallax/s/h {32 * MIB}", "a free one": f"store_add o parallax/s/o {32 * MIB}",
                  "a snapshot": "parallax -q snap create s/n >/dev/null", "a label": "parallax -q snap create s/n@beside >/dev/null", "a removal": "take 2"}
        running = {}
        for what, command in beside.items():
            running[what] = guest.popen(f"b=${{EPOCHREALTIME/./}}; {command} || exit; echo $(((${{EPOCHREALTIME/./}} - b) / 1000))")
            time.sleep(0.3)
        took = {what: ended(popen) for what, popen in running.items()}
        rounds = load.rounds - rounds
        say(f"  {took} ms; {rounds} rounds of the neighbour in {time.monotonic() - begin:.1f} s, the longest {load.worst:.1f} s")
        check(int(took["the LUN"]) > 2900, "a disk that a command has was not waited for")
        check(rounds >= 2, "the neighbour stood still while a LUN waited")
        ended(holder)
        holder = guest.popen(hold + "sleep 1; kill -INT $p; wait $p || true")
        guest.run("until parallax vdi info s/h --json | grep -q '\"open_by\": \"admin'; do sleep 0.1; done; "
                  f"store_add h parallax/s/h {32 * MIB}", timeout=60)
        ended(holder)
    check(not load.error, "the neighbour:", load.error)
    guest.run(f"store_del h; store_del o; put 2 parallax/s/v@s {SIZE}; "
              "for d in h o f; do parallax vdi delete s/$d --yes; done", timeout=60)


def second_writer(stage):
    """The same VDI cannot be opened for writing twice, whatever name the backstore has."""
    result = stage.guest.run(f"store_add twice parallax/s/v {SIZE}", ok=False)
    check(result.code != 0, "one VDI was opened for writing twice")


def lun_removed_under_io(stage):
    """Removal while the initiator writes: the initiator gets errors, nothing hangs, and the LUN can come back."""
    guest = stage.guest
    guest.run(f"parallax vdi create s/r --size 32M; put 5 parallax/s/r {32 * MIB}; rescan")
    disk = guest.run("disk 5").text
    writer = guest.popen(f"timeout 60 dd if=/dev/zero of={disk} bs=64k count=400 oflag=direct status=none")
    time.sleep(0.3)
    guest.run("take 5", timeout=60)
    writer.finish(90)
    writer.conn.close()
    guest.run(f"echo 1 >/sys/block/{disk[5:]}/device/delete; put 5 parallax/s/r {32 * MIB}; take 5; "
              "parallax vdi delete s/r --yes", timeout=60)


def orderly_restart(stage):
    """SIGTERM and start again under load: the initiator sees a pause and no error."""
    with Load(stage) as load:
        stage.guest.run("runner_down TERM; runner_up", timeout=90)
        stage.guest.run(f"timeout 50 dd if={stage.victim} bs=4k count=10 iflag=direct of=/dev/null status=none")
    check(not load.error, "the neighbour:", load.error)
    say(f"  longest pause {load.worst:.1f} s")
    stage.daemon = stage.guest.run("runner_pid").text


def no_daemon(stage):
    """A LUN that is being created while nobody listens is served by the next daemon."""
    guest = stage.guest
    guest.run("parallax vdi create s/late --size 32M; runner_down TERM")
    creation = guest.popen(f"put 6 parallax/s/late {32 * MIB}")
    time.sleep(2)
    guest.run("runner_up", timeout=60)
    stage.daemon = guest.run("runner_pid").text
    created = creation.finish(60)
    creation.conn.close()
    if created.code:
        say("  refused without a daemon:", created.err.strip()[-100:])
        guest.run(f"put 6 parallax/s/late {32 * MIB}")
    guest.run("rescan; d=$(disk 6); timeout 30 dd if=/dev/zero of=$d bs=4k count=4 oflag=direct status=none; "
              "echo 1 >/sys/block/${d#/dev/}/device/delete; take 6", timeout=60)


CASES = [inquiry_leak, unmap, write_same_unmap, unmap_of_a_snapshot, big_commands, unsupported, write_cache_switched,
         reset, failed_open, open_while_held, second_writer, lun_removed_under_io, orderly_restart, no_daemon, format_unit, dropped_opcodes]


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 2 << 30)])
        stage = Stage(guest)
        wrong = []
        for case in CASES:
            try:
                case(stage)
                stage.fine()
                say("ok:", case.__name__)
            except lab.Failure as reason:
                wrong.append(case.__name__)
                say(f"FAILED {case.__name__}: {reason}")
                guest.run("runner_alive || runner_up", timeout=60)  # the next case deserves its chance
                stage.daemon = guest.run("runner_pid").text
        check(not wrong, "not survived:", ", ".join(wrong))
        # SIGTERM never ends a daemon that has dropped a command: only a crash does.
        guest.run("logout; target_down; runner_down TERM || runner_down KILL; parallax store check s", timeout=120)
        guest.stop()


lab.main(test)
