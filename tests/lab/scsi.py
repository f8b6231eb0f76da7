#!/usr/bin/env python3
"""iscsi-test-cu against a VDI, suite by suite. What may fail or be skipped, and why: scsi.expected."""
import os
import re
import subprocess

import lab
from lab import check, say

SIZE = 256 << 20
LEAST = 150  # of 230 tests have to pass


def expected():
    """{"fail": {test: reason}, "skip": {...}} from scsi.expected."""
    lists = {"fail": {}, "skip": {}}
    with open(os.path.join(lab.HERE, "scsi.expected"), encoding="utf-8") as text:
        for line in text:
            if line.strip() and not line.startswith("#"):
                kind, name, reason = line.split(maxsplit=2)
                lists[kind][name] = reason.strip()
    return lists


def outcomes(suite, output):
    """{test: pass, fail or skip} from CUnit's verbose output, into which libiscsi mixes its own words."""
    found = {}
    for name, body in re.findall(r"^  Test: (\S+) \.\.\.(.*?)(?=^  Test: |^Run Summary|\Z)", output,
                                 flags=re.M | re.S):
        plain = re.sub(r"\[(FAILED|WARNING|INFO)\].*", "", body)
        if re.search(r"^\s*FAILED", plain, flags=re.M):
            found[f"{suite}.{name}"] = "fail"
        elif "[SKIPPED]" in plain:
            found[f"{suite}.{name}"] = "skip"
        elif re.search(r"passed\s*$", plain, flags=re.M):
            found[f"{suite}.{name}"] = "pass"
        else:
            found[f"{suite}.{name}"] = "fail"  # it neither passed nor failed: it died
    return found


def run_suites(url):
    names = lab.host("iscsi-test-cu", "--list").out.split()
    results = {}
    suites = sorted({".".join(name.split(".")[:2]) for name in names
                     if name.startswith("ALL.") and name.count(".") == 2})
    # MultipathIO.CompareAndWrite zeroes 256 blocks and expects 257 to be zero: it needs a disk nobody has written.
    suites.sort(key=lambda suite: suite != "ALL.MultipathIO")
    for suite in suites:
        output = ""
        try:
            # Twice the same address: the tests of two paths want two sessions.
            done = subprocess.run(["iscsi-test-cu", "-d", "-v", "-t", suite, url, url], text=True,
                                  stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                                  errors="replace", check=False)
            output = done.stdout
        except subprocess.TimeoutExpired as late:
            output = (late.stdout or b"").decode(errors="replace")
            say(suite, "did not end within 60 s")
        results.update({name: "fail" for name in names if name.startswith(suite + ".")})
        results.update(outcomes(suite, output))
        for name, outcome in results.items():
            if name.startswith(suite + ".") and outcome == "fail" and os.environ.get("PLX_LAB_VERBOSE"):
                print(output)
                break
    return results


def compare(results):
    lists = expected()
    count = {kind: sum(1 for outcome in results.values() if outcome == kind)
             for kind in ("pass", "fail", "skip")}
    say(f"{len(results)} tests: {count['pass']} passed, {count['fail']} failed, {count['skip']} skipped")
    wrong = []
    for name, outcome in sorted(results.items()):
        if outcome == "pass":
            for kind in ("fail", "skip"):
                if name in lists[kind]:
                    print(f"  better than expected: {name} passes; it is listed as {kind}")
        elif name not in lists[outcome] and not (outcome == "skip" and name in lists["fail"]):
            wrong.append(name)
            print(f"  unexpected {outcome}: {name}")
        elif outcome == "skip":
            print(f"  skipped: {name}: {lists['skip'].get(name) or lists['fail'][name]}")
    check(not wrong, len(wrong), "outcomes are not in scsi.expected")
    check(count["pass"] >= LEAST, "only", count["pass"], "tests passed;", LEAST, "are required")


def test():
    stock = os.environ.get("PLX_LAB_STOCK")  # handler_qcow instead, to tell the handler's faults from the lab's
    if stock:
        lab.HANDLERS = stock
    else:
        lab.built("handler_parallax.so", "parallax")
    with lab.Lab() as here:
        h1 = here.guest(disks=[here.disk("store.img", 2 << 30)])
        if stock:
            h1.run("mkfs.ext4 -q /dev/ubda; mkdir /srv/a; mount /dev/ubda /srv/a; truncate -s 256M /srv/a/disk; "
                   f"runner_up; put 0 qcow//srv/a/disk {SIZE}")
        else:
            h1.run("parallax store format s --volume /dev/ubda && parallax vdi create s/v --size 256M && "
                   f"runner_up && put 0 parallax/s/v {SIZE}")
        results = run_suites(f"iscsi://{h1.ip}/iqn.2026-11.org.lab:t/0")
        h1.run("runner_alive")
        if not stock:
            h1.run("target_down; runner_down; parallax store check s", timeout=120)
        compare(results)


lab.main(test)
