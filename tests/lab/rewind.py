#!/usr/bin/env python3
"""A database on a live LUN goes back to instants: it opens, is intact, and holds every commit acknowledged by then."""
import json
import time

import lab
from lab import check, say

SIZE = 256 << 20
SECONDS = 10

# Commits for ever; each is told, with the time, once it was acknowledged.
LOAD = r"""
import os, sqlite3, time
db = sqlite3.connect("/mnt/db/commits", isolation_level=None)
db.execute("PRAGMA journal_mode=" + os.environ["JOURNAL"])
db.execute("PRAGMA synchronous=EXTRA")  # FULL need not keep the last commit of a rollback journal over a power cut
db.execute("CREATE TABLE IF NOT EXISTS t (n INTEGER PRIMARY KEY, filler BLOB)")
n = db.execute("SELECT coalesce(max(n), 0) FROM t").fetchone()[0]
while True:
    n += 1
    db.execute("BEGIN IMMEDIATE")
    db.execute("INSERT INTO t VALUES (?, ?)", (n, os.urandom(n * 37 % 9000)))
    if n % 7 == 0:
        db.execute("UPDATE t SET filler = ? WHERE n = ?", (os.urandom(3000), n // 2))
    db.execute("COMMIT")
    print(n, time.time_ns(), flush=True)
"""

JUDGE = r"""
import json, sqlite3
db = sqlite3.connect("/mnt/db/commits")
intact = db.execute("PRAGMA integrity_check").fetchone()[0]
count, newest = db.execute("SELECT count(*), coalesce(max(n), 0) FROM t").fetchone()
print(json.dumps({"intact": intact, "count": count, "newest": newest}))
"""


def text_of(ns):
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(ns // 10**9)) + f".{ns % 10**9:09d}Z"


class Database:
    """A file system with a database on the LUN, and what it has acknowledged."""

    def __init__(self, guest, journal):
        self.guest, self.journal = guest, journal
        self.commits = []  # (number, time in ns)

    def python(self, script, **words):
        return self.guest.run("python3 - <<'END'\n" + script + "END\n", timeout=120, env=words)

    def mount(self):
        self.guest.run("login; mkdir -p /mnt/db; mount -t ext4 $(disk 0) /mnt/db", timeout=60)

    def unmount(self):
        self.guest.run("wait_for 20 umount /mnt/db; logout", timeout=60)  # the load may still be ending

    def load(self, seconds):
        command = self.guest.popen("exec python3 - <<'END'\n" + LOAD + "END\n", env={"JOURNAL": self.journal})
        thread = command.drain_in_background()
        time.sleep(seconds)
        command.conn.close()
        thread.join(10)
        check(command.code is None, "the load ended by itself:", command.err.decode())
        lines = command.out[:command.out.rfind(b"\n") + 1].decode().splitlines()
        done = [tuple(map(int, line.split())) for line in lines]
        check(len(done) > 20, "only", len(done), "commits in", seconds, "seconds")
        self.commits += done

    def judge(self, until_ns):
        """After a rewind to an instant at this time."""
        due = max((n for n, when in self.commits if when <= until_ns), default=0)
        self.mount()
        found = json.loads(self.python(JUDGE).out)
        self.unmount()
        check(found["intact"] == "ok", "the database is damaged:", found)
        check(found["count"] == found["newest"] >= due, f"{due} commits were acknowledged by then:", found)
        say(f"{due} acknowledged by then, {found['newest']} there")


def rewind(guest, to, *words):
    done = json.loads(guest.run(f"parallax rewind s/v --to {to} --json {' '.join(words)}", timeout=60).out)
    seconds, _, rest = done["time"].partition(".")
    fraction = rest[:rest.index("+")] if "+" in rest else rest.rstrip("Z")
    done["time_ns"] = int(guest.run(f"date -d '{done['time']}' +%s").text) * 10**9 + int(fraction.ljust(9, "0"))
    say(f"rewound to {seconds}.{fraction}, before: {done['before']}")
    return done


def back_and_forth(database):
    guest = database.guest
    newest = database.commits[-1][1]
    first = database.commits[0][1]
    before = []
    for part in (0.75, 0.25, 0.5):  # also forward, to what the one before had taken back
        to = rewind(guest, text_of(int(first + (newest - first) * part)))
        check(to["time_ns"] <= first + (newest - first) * part, "a later instant than was asked for")
        database.judge(to["time_ns"])
        before.append(to["before"])
    rewind(guest, before[0])
    database.judge(newest)


def refuse_and_go_live(guest):
    """Logged in: no; with --live, the initiator's next command is told."""
    guest.run("parallax snap create s/v@here; login", timeout=60)
    refused = guest.run("parallax rewind s/v --to here", ok=False)
    check(refused.code == 4 and "logged in" in refused.err, "not refused:", refused.code, refused.err)
    refused = guest.run("parallax rewind s/v --to here --dry-run", ok=False)
    check(refused.code == 4 and "logged in" in refused.err, "a dry run is not refused:", refused.code, refused.err)
    rewind(guest, "here", "--live")
    told = guest.run("sg_turs -v $(disk 0) || sg_turs $(disk 0) && echo then ready", ok=False)
    check("may have changed" in (told.out + told.err).lower() and "then ready" in told.out,
          "no unit attention:", told.code, told.out, told.err)
    guest.run("logout", timeout=60)


def test():
    lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        guest = here.guest(disks=[here.disk("store.img", 3 << 30)])
        guest.run("parallax store format s --volume /dev/ubda && parallax vdi create s/v --size 256M && "
                  f"runner_up && put 0 parallax/s/v {SIZE} && login && mkfs.ext4 -q $(disk 0) && logout", timeout=120)
        guest.run("parallax cdp on s/v --every 10ms")
        for journal in ("WAL", "DELETE"):
            database = Database(guest, journal)
            database.mount()
            guest.run("rm -f /mnt/db/commits*; sync")
            database.load(SECONDS)
            database.unmount()
            say(f"{journal}: {len(database.commits)} commits")
            back_and_forth(database)
        guest.run("runner_down KILL; sleep 0.5; runner_up", timeout=60)
        database.judge(database.commits[-1][1])
        refuse_and_go_live(guest)
        guest.run("target_down; runner_down", timeout=60)
        say(guest.run("parallax snap list s/v --labels; parallax store check s --data", timeout=120).text)
        guest.stop()


lab.main(test)
