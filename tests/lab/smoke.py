#!/usr/bin/env python3
"""The lab itself, with a stock handler: if this fails, no other lab test means anything."""
import glob
import os

import lab
from lab import check, say


def test():
    handlers = glob.glob("/usr/lib/*/tcmu-runner")
    check(handlers, "tcmu-runner has no handler folder")
    lab.HANDLERS = handlers[0]
    with lab.Lab() as here:
        h1 = here.guest(disks=[here.disk("a.img", 1 << 30)])
        h2 = here.guest(mem="256M")

        say("commands, exit codes, time limits")
        result = h1.run("echo out; echo err >&2; exit 3", ok=False)
        check((result.code, result.out, result.err) == (3, "out\n", "err\n"), vars(result))
        try:
            h1.run("sleep 100", timeout=1)
            raise AssertionError("a time limit was not kept")
        except lab.Failure:
            pass
        check(h1.run("sleep 0.3; pgrep -x sleep", ok=False).text == "", "a timed-out command still runs")
        check(h2.run("ping -c1 -W2 h1 >/dev/null; hostname").text == "h2", "h2 has another name")

        say("stock handler over iSCSI")
        h1.run(f"mkfs.ext4 -q /dev/ubda; mkdir /srv/a; mount /dev/ubda /srv/a; "
               "truncate -s 256M /srv/a/disk; runner_up")
        h1.run(f"put 0 qcow//srv/a/disk {256 << 20}; login")
        disk = h1.run("disk 0").text
        h1.run(f"mkfs.ext4 -q {disk} && mount {disk} /mnt && cp -r /usr/include/linux /mnt && umount /mnt")
        check("10.9.0.11:3260" in lab.host("iscsi-ls", "-s", "iscsi://10.9.0.11").out,
              "the target is not seen from outside")

        say("daemon killed under the file system")
        h1.run(f"mount {disk} /mnt; runner_down KILL; runner_up; "
               "diff -r /usr/include/linux /mnt/linux && umount /mnt", timeout=120)

        say("host killed")
        h1.kill()
        check(not os.path.exists(f"/proc/{h1.process.pid}"), "h1 still runs")
        h1.start()
        h1.run("fsck.ext4 -fp /dev/ubda || [ $? = 1 ]; mkdir -p /srv/a; mount /dev/ubda /srv/a; "
               f"runner_up; put 0 qcow//srv/a/disk {256 << 20}; login; "
               "mount $(disk 0) /mnt; diff -r /usr/include/linux /mnt/linux; umount /mnt; logout; "
               "target_down; runner_down", timeout=120)
        h1.stop()
        h2.stop()


lab.main(test)
