#!/bin/bash
# find and diff tell the same: of every two snapshots that follow each other, beside rewinds, deletions and labels.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# image FILE SEED: 2 MiB, of which some stretches are zero.
image() {
    python3 -c '
import os, random, sys
chance = random.Random(int(sys.argv[2]))
with open(sys.argv[1], "wb") as file:
    for _ in range(32):
        file.write(os.urandom(65536) if chance.random() < 0.4 else bytes(65536))' "$1" "$2"
}

# take SEED LABEL: another image, and a snapshot.
take() {
    image now.raw "$1"
    run 0 vdi import now.raw demo/m --force
    run 0 snap create demo/m${2:+@$2}
}

# agree WHAT: of blocks, of ranges of them and of bytes, and of the whole disk.
agree() {
    python3 - "$PARALLAX" >"$DIR/out" 2>"$DIR/err" <<'END' || die "find and diff do not agree: $1"
import json, subprocess, sys

def ask(*words):
    done = subprocess.run([sys.argv[1], *words, "--json"], capture_output=True, text=True, check=True)
    return json.loads(done.stdout)

def differ(earlier, later):
    return [(r["offset"], r["offset"] + r["length"]) for r in ask("diff", f"demo/m@{earlier or ''}..{later or ''}")]

snapshots = [0] + [row["seq"] for row in ask("snap", "list", "demo/m", "--all")] + [0]
pairs = [(a, b, differ(a, b)) for a, b in zip(snapshots, snapshots[1:])]
ways = [([], 0, 1 << 40)]
ways += [(["--block", str(n)], n * 4096, (n + 1) * 4096) for n in (0, 16, 17, 100, 511)]
ways += [(["--block", f"{a}..{b}"], a * 4096, (b + 1) * 4096) for a, b in ((0, 15), (30, 33), (64, 300))]
ways += [(["--offset", "1M", "--length", "64k"], 1 << 20, (1 << 20) + 65536), (["--offset", "200k"], 200 << 10, 201 << 10)]
bad = False
for words, first, end in ways:
    found = ask("find", "demo/m", *words)
    told = [(row["after_seq"], row["by_seq"]) for row in found if row["certain"]]
    perhaps = [(row["after_seq"], row["by_seq"]) for row in found if not row["certain"]]
    right = [(a, b) for a, b, ranges in reversed(pairs) if any(x < end and first < y for x, y in ranges)]
    honest = [(0, snapshots[1])] if snapshots[1] > 1 else [] # others before it are gone
    if told != right or perhaps not in ([], honest):
        print(words, "find:", told, "diff:", right, "perhaps:", perhaps)
        bad = True
sys.exit(bad)
END
}

run 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 1M
run 0 vdi create demo/m --size 2M
agree "a new disk"
take 1 a
take 2
agree "before any rewind"

step "rewinds"
run 0 rewind demo/m --to a
agree "a rewind that no snapshot follows"
run 0 snap create demo/m
agree "a rewind"
run 0 rewind demo/m --to a
run 0 snap create demo/m
agree "a rewind to what the disk holds already"
run 0 find demo/m --block 0..511 --limit 1 --json
[[ $(json 0 by_seq) == 4 ]] || die "that rewind counts as a change"
take 3 b
image now.raw 4
run 0 vdi import now.raw demo/m --force
run 0 rewind demo/m --to b
take 5
run 0 rewind demo/m --to 2
take 6 c
agree "changes before and behind rewinds"

step "deletions"
for seq in 4 7; do # the first ones behind a rewind
    run 0 snap delete "demo/m@$seq" --force
    agree "snapshot $seq was deleted"
done
take 7
take 8
take 9 d
run 0 snap delete demo/m@c..d --force
agree "a range was deleted"
run 0 vdi resize demo/m --size 4M
run 0 rewind demo/m --to a
run 0 snap create demo/m
agree "a disk that grew"
run 0 snap list demo/m --all --json
run 4 snap delete "demo/m@..$(json 0 seq)" --force
take 10
agree "the oldest one stays, for a rewind went back to it"
run 0 snap delete demo/m@.. --force
agree "all but one were deleted"
run 0 snap list demo/m -q
[[ $(wc -l <out) == 1 ]] || die "they are still there"
run 0 find demo/m --block 0..511 --json
[[ $(json 0 after) == "(creation)" ]] || die "a snapshot that is gone is named"

step "what a clone began with"
image now.raw 11
run 0 vdi create demo/p --size 2M
run 0 vdi import now.raw demo/p
run 0 snap create demo/p@start
run 0 vdi clone demo/p@start demo/k
run 0 snap create demo/k
run 0 find demo/k --json
[[ $(<out) == "[]" ]] || die "a clone that was not written has changed"
run 0 vdi import now.raw demo/k --force
run 0 snap create demo/k
run 0 snap delete demo/k@..1 --force
run 0 find demo/k --json
[[ $(json 0 certain) == true && $(json 0 after_seq) == 0 ]] || die "a clone that was written has not changed"

step "continuous protection, and two rewinds to one snapshot"
run 0 vdi delete demo/m --yes
run 0 vdi create demo/m --size 2M
take 12 a
image now.raw 13
run 0 vdi import now.raw demo/m --force
run 0 cdp on demo/m --every 10ms --keep all:1s
run 0 rewind demo/m --to a
run 0 rewind demo/m --to a
agree "two rewinds"
sleep 2
run 0 cdp apply demo/m
agree "what the policy keeps"
run 0 store check demo --data
echo "find: all is well"
