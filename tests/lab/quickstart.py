#!/usr/bin/env python3
"""packaging/quickstart as a user runs it: on a kernel without target (in a guest of its own), on one with it, and again."""
import os
import shutil
import socket
import subprocess
import tempfile

import lab
from lab import check, say

SCRIPT = os.path.join(lab.SOURCE, "packaging", "quickstart")


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return str(listener.getsockname()[1])


def forwarded():
    port = free_port()
    folder = tempfile.mkdtemp(prefix="plxdemo-")
    env = {**os.environ, "PLX_DEMO": os.path.join(folder, "demo"), "PLX_LAB_BUILD": lab.BUILD}

    def quickstart(*words):
        done = subprocess.run([SCRIPT, *words], env=env, text=True, capture_output=True, timeout=240,
                              stdin=subprocess.DEVNULL, check=False)
        check(done.returncode == 0, f"quickstart {words}: exit {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    try:
        out = quickstart("--guest", "--port", port)
        print(out)
        check(f"iscsi://127.0.0.1:{port}/" in out, "no address was printed")
        lab.host("iscsi-inq", f"iscsi://127.0.0.1:{port}/iqn.2026-11.org.parallax:demo/0")
        again = quickstart("--guest", "--port", port, "--quick-exit")
        check("mkfs" not in again, "the second run made a new file system")
        say("in a guest, twice")
    finally:
        subprocess.run([SCRIPT, "--remove"], env=env, timeout=60, check=False)
        shutil.rmtree(folder, ignore_errors=True)


def native():
    """A guest is a machine whose kernel has LIO."""
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("disk.img", 6 << 30)])
        out = guest.run("mkdir -p /srv/demo; mkfs.ext4 -q /dev/ubda; mount /dev/ubda /srv/demo; "
                        f"export PLX_DEMO=/srv/demo/d PLX_LAB_BUILD=$BUILD; {SCRIPT}", timeout=240).out
        check("has an iSCSI target" in out, "LIO was not found:\n" + out)
        address = "iqn.2026-11.org.parallax:demo/1"
        guest.run(f"iscsi-inq iscsi://127.0.0.1/{address}")
        check(lab.host("iscsi-inq", f"iscsi://{guest.ip}/{address}", ok=False).code != 0,
              "others on the network reach the demo's target")
        guest.run(f"export PLX_DEMO=/srv/demo/d PLX_LAB_BUILD=$BUILD; {SCRIPT} --stop; {SCRIPT} --quick-exit; "
                  f"{SCRIPT} --remove; ! pidof tcmu-runner; ! ls /srv/demo/d 2>/dev/null", timeout=240)
        say("on a kernel with LIO, twice")


def test():
    lab.need()
    lab.built("handler_parallax.so", "parallax")
    forwarded()
    native()


lab.main(test)
