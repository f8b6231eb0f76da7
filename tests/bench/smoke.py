#!/usr/bin/env python3
"""The benchmark runs and writes what it says: every row against the device, no request failed. No time is judged."""
import json
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

ROWS = 14
HERE = os.path.dirname(os.path.realpath(__file__))

with tempfile.TemporaryDirectory(prefix="plx-smoke-") as folder:
    words = ["--json", f"{folder}/b.json", "--peers", "qcow2,qcow2-nbd", "--size", "64", "--rounds", "1", "--seconds", "0.02"]
    done = subprocess.run([f"{HERE}/run", "--quick", "--build", sys.argv[1], *words])
    if done.returncode:
        sys.exit(done.returncode)  # 77: cannot run here, and it has said why
    with open(f"{folder}/b.json") as file:
        results = json.load(file)
    xml.dom.minidom.parse(f"{folder}/b.svg")

raw = [row for row in results["rows"] if row["peer"] == "raw"]
assert len(raw) + sum(row["peer"] == "raw" for row in results["skipped"]) == ROWS, "a row is missing"
assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in results["rows"]), "a ratio is none"
