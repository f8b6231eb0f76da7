"""Rows of a comparison (run, lvm): each measures all sides in slices of time, interleaved, and gives a ratio for each peer.

A ratio is taken from neighbouring slices; a row's is the median of its rounds, its spread the quartiles.
"""
import argparse
import collections
import json
import os
import signal
import statistics
import sys
import time

import chart
from sides import BLOCK, MIB, Failure, Skip

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.realpath(__file__))))

# A row is a disk, what is done to it before, and a load. goals: by peer; snapshots: how many there are of the disk;
# live: it is snapshots that are measured, while the load goes on; copies: with overwrite=copy, where there is that.
Row = collections.namedtuple("Row", "name disk load goals snapshots durable cold live copies", defaults=({}, 0, False, False, False, False))
WARM_UP = "randread 4096 32"
SKIPPED = 77
LIVE_SNAPSHOTS = 4  # in a slice


class Bench:
    """Where it happens, and how long it takes."""

    def __init__(self, options, folder):
        self.build, self.folder = os.path.realpath(options.build), folder
        self.size, self.rounds, self.seconds = options.size * MIB, options.rounds, options.seconds
        self.only = options.only
        self.room = 7 * self.size + 512 * MIB  # for a store or a file system: its disks and what snapshots keep
        self.log = open(self.path("log"), "a+")

    def chosen(self, rows):
        chosen = [row for row in rows if self.only in row.name]
        if not chosen:
            raise Failure(f"no row's name has '{self.only}' in it; there are: {', '.join(row.name for row in rows)}")
        return chosen

    def path(self, name):
        return f"{self.folder}/{name}"

    def image(self):
        """A full disk: one block, which is not zeroes, again and again."""
        path = self.path("image")
        if not os.path.exists(path):
            mark = os.urandom(BLOCK)
            with open(path, "wb") as file:
                for _ in range(self.size // MIB):
                    file.write(mark * (MIB // BLOCK))
        return path

    def program(self, name):
        return f"{self.build}/{name}"

    def last_words(self):
        self.log.seek(0)
        return " ".join(self.log.read().split("\n")[-4:]).strip() or "no reason given"


def prepare(bench, row, side):
    side.copies = row.copies
    if row.disk != "full":
        side.make(row.disk)
    for _ in range(row.snapshots):
        side.snapshot(row.disk)
    if not row.cold:
        side.open(row.disk, row.durable)
        side.load(WARM_UP, min(bench.seconds, 0.2))
    if row.live:
        side.snapshot_live(row.disk)


def measure_live(bench, row, side):
    """Milliseconds of a snapshot while the disk is written."""
    took = []
    side.begin(row.load, bench.seconds)
    try:
        for _ in range(LIVE_SNAPSHOTS):
            time.sleep(bench.seconds / (LIVE_SNAPSHOTS + 1))
            start = time.monotonic()
            side.snapshot_live(row.disk)
            took.append((time.monotonic() - start) * 1000)
    finally:
        result = side.end()
    return result | {"value": statistics.median(took)}


def measure(bench, row, side):
    """One slice of time; a longer one where nothing at all was done in it, as on a busy machine."""
    side.forget(row.disk)
    if row.live:
        return measure_live(bench, row, side)
    if row.cold:
        side.open(row.disk, row.durable)
    for times in 1, 10, 100:
        result = side.load(row.load, bench.seconds * times)
        value = result["mib_per_s" if unit(row) == "MiB/s" else "iops"]
        if value:
            break
    if row.cold:
        side.close()
    return result | {"value": value}


def unit(row):
    return "ms" if row.live else "MiB/s" if "1048576" in row.load else "1/s"


def quartiles(values):
    return statistics.quantiles(values, n=4, method="inclusive") if len(values) > 1 else values * 3


def median(slices, member):
    values = [piece[member] for piece in slices if piece[member] is not None]
    return statistics.median(values) if values else None


def compare(row, peer, ours, theirs):
    """Of slices side by side, one result. Left out are those in which no block was left to be written first."""
    pairs = [(a, b) for a, b in zip(ours, theirs) if a["value"] and b["value"]]
    if not pairs:
        raise Failure(f"{row.name}: nothing was done within a slice; give it more --seconds")
    ours, theirs = zip(*pairs)
    ratios = [b["value"] / a["value"] if row.live else a["value"] / b["value"] for a, b in pairs]
    low, ratio, high = quartiles(ratios)
    result = {"name": row.name, "peer": peer, "ratio": round(ratio, 3), "low": round(low, 3), "high": round(high, 3),
              "rounds": len(pairs), "unit": unit(row), "ours": median(ours, "value"), "theirs": median(theirs, "value"),
              "our_cpu_us": median(ours, "cpu_us"), "their_cpu_us": median(theirs, "cpu_us")}
    if peer in row.goals:
        result["goal"] = row.goals[peer]
    return result


def measure_all(bench, row, everyone):
    """Slices of each side by its name, and who was left out. A peer that fails is no peer any more: it is taken out of everyone."""
    slices, skipped = {}, []

    def attempt(what, side):
        try:
            return what(bench, row, side)
        except Skip as reason:
            side.close()
            skipped.append({"name": row.name, "peer": side.name, "reason": str(reason)})
        except Failure as reason:
            if side.essential:
                raise
            side.remove()
            everyone.remove(side)
            skipped.append({"name": f"{row.name} and all after it", "peer": side.name, "reason": str(reason)})
        slices.pop(side.name, None)

    for side in list(everyone):
        slices[side.name] = []
        attempt(prepare, side)
    for round_number in range(bench.rounds):
        order = everyone[::-1] if round_number % 2 else everyone  # what one leaves to do in the background slows the next down
        for side in [side for side in order if side.name in slices]:
            result = attempt(measure, side)
            if result:
                slices[side.name].append(result)
    for side in everyone:
        side.close()
    return slices, skipped


LINE = "{:<31}{:<11}{:>7}  {:>15}  {:<8}{:>10}{:>10} {:<6}{:>9}"


def show_head():
    print(LINE.format("", "peer", "ratio", "quartiles", "goal", "parallax", "peer", "", "CPU us"))


def show(result):
    goal = result.get("goal")
    reached = goal and ("yes" if result["ratio"] >= goal else "no")
    cpu = [f"{value:.1f}" for value in (result["our_cpu_us"], result["their_cpu_us"]) if value is not None]
    figures = ["{:,.{}f}".format(result[who], 2 if result["unit"] == "ms" else 0) for who in ("ours", "theirs")]
    print(LINE.format(result["name"], result["peer"], f"{result['ratio']:.2f}", f"{result['low']:.2f} - {result['high']:.2f}",
                      f"{goal:g} {reached}" if goal else "", *figures, result["unit"], "/".join(cpu) if len(cpu) == 2 else ""), flush=True)


def compare_all(bench, rows, everyone):
    """Row by row; what came out is shown at once."""
    results, skipped = [], []
    show_head()
    for row in bench.chosen(rows):
        slices, left_out = measure_all(bench, row, everyone)
        ours = slices.pop("parallax")
        found = [compare(row, peer, ours, theirs) for peer, theirs in slices.items()]
        results += found
        skipped += left_out
        for result in found:
            show(result)
    for line in skipped:
        print(f"skipped: {line['name']}: {line['peer']}: {line['reason']}")
    return results, skipped


def write(options, results, skipped):
    """As JSON, and as a chart."""
    with open(options.json, "w") as file:
        json.dump({"size_mib": options.size, "rounds": options.rounds, "seconds": options.seconds, "rows": results, "skipped": skipped},
                  file, indent=1)
    svg = os.path.splitext(options.json)[0] + ".svg"
    with open(svg, "w") as file:
        file.write(chart.draw(results))
    print(f"{options.json}, {svg}")


# ---- Commands --------------------------------------------------------------------------------


def parser_of(program, description, results):
    """results: what their file is called."""
    parser = argparse.ArgumentParser(prog=program, description=description.split("\n")[0])
    parser.add_argument("--build", default=f"{ROOT}/build", help="a folder built with -DCMAKE_BUILD_TYPE=Release (default build)")
    parser.add_argument("--quick", action="store_true", help="small disks, few and short rounds")
    parser.add_argument("--json", metavar="FILE", help=f"where results go; a chart beside it (default BUILD/{results}.json)")
    parser.set_defaults(results=results)
    parser.add_argument("--size", type=int, metavar="MIB", help="of a disk")
    parser.add_argument("--only", metavar="TEXT", default="", help="rows with this in their name")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float, help="of one slice")
    return parser


def parse(parser, words, full, quick):
    """full, quick: what is measured unless the words say otherwise, as size, rounds, seconds."""
    options = parser.parse_args(words)
    for name, value in zip(("size", "rounds", "seconds"), quick if options.quick else full):
        if getattr(options, name) is None:
            setattr(options, name, value)
    options.json = options.json or f"{options.build}/{options.results}.json"
    if options.size < 64 or options.size & (options.size - 1):
        parser.error("--size must be a power of two, at least 64")
    for name in ("harness", "parallax", "handler_parallax.so"):
        if not os.path.exists(f"{options.build}/{name}"):
            parser.error(f"{options.build}/{name} is missing: build this folder first (tests/README.md)")
    warn_of_debugging(options.build)
    return options


def warn_of_debugging(build):
    try:
        with open(f"{build}/CMakeCache.txt") as cache:
            if "CMAKE_BUILD_TYPE:STRING=Release" not in cache.read():
                print(f"{build} is not built with -DCMAKE_BUILD_TYPE=Release: ratios are worse than they should be")
    except FileNotFoundError:
        pass


def run_command(main):
    """Its end becomes an exit status."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(143))
    try:
        main()
    except Skip as reason:
        print(f"skipped: {reason}")
        sys.exit(SKIPPED)
    except (Failure, OSError) as failure:
        sys.exit(f"bench: {failure}")
