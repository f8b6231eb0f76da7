#!/usr/bin/env python3
"""The benchmarks run and write what they say: every row against the device, every line of a table. No time is judged."""
import json
import os
import subprocess
import sys
import tempfile
import xml.dom.minidom

ROWS = 16
HERE = os.path.dirname(os.path.realpath(__file__))

with tempfile.TemporaryDirectory(prefix="plx-smoke-") as folder:

    def results_of(program, *words):
        done = subprocess.run([f"{HERE}/{program}", *words, "--quick", "--build", sys.argv[1], "--json", f"{folder}/b.json",
                               "--size", "64", "--rounds", "1", "--seconds", "0.02"])
        if done.returncode:
            sys.exit(done.returncode)  # 77: cannot run here, and it has said why
        xml.dom.minidom.parse(f"{folder}/b.svg")
        with open(f"{folder}/b.json") as file:
            return json.load(file)

    results = results_of("run", "--peers", "qcow2,qcow2-nbd,qcow2-chain")
    growth = results_of("growth", "order")

raw = [row for row in results["rows"] if row["peer"] == "raw"]
assert len(raw) + sum(row["peer"] == "raw" for row in results["skipped"]) == ROWS, "a row is missing"
assert len(growth["rows"]) == 10, "a line of the table is missing"
assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in results["rows"] + growth["rows"]), "a ratio is none"
