#!/bin/bash
# parallax gc, end to end, on a store in a file: families, crashes in every phase.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# leaked N: so many blocks are allocated and used by nobody, and nothing is damaged.
leaked() {
    run 0 store check demo --json
    [[ $(json errors) == 0 && $(json leaked_blocks) == "$1" ]] || die "$(json leaked_blocks) blocks left, not $1"
}

# exported VDI FILE: it holds what the file does.
exported() {
    run 0 vdi export "demo/$1" exported.raw --force
    same "$2" exported.raw
}

run 0 store format demo --volume "$DIR/demo.plx" --size 512M --extent-size 1M
head -c 16M /dev/urandom >base.raw
head -c 16M /dev/urandom >inner.raw

step "words"
run 2 gc
run 3 gc nothing
run 2 gc demo --memory lots
run 0 gc --help
says out "--dry-run"
run 0 __complete gc
says out "--memory="

step "nothing to collect"
run 0 vdi import base.raw demo/base
run 0 snap create demo/base@golden
run 0 gc demo --json
[[ $(json found_bytes) == 0 && $(json freed_bytes) == 0 && $(json slices) == 1 ]] || die "something was found"
leaked 0

step "a parent, and what is between it and its clone's clone"
run 0 vdi clone demo/base@golden demo/inner
run 0 vdi import inner.raw demo/inner --force
run 0 snap create demo/inner@v1
run 0 vdi clone demo/inner@v1 demo/outer
run 0 vdi import base.raw demo/inner --force
run 0 vdi delete demo/inner --yes
run 0 gc demo --dry-run --json
found=$(json found_bytes)
((found >= 16 << 20 && found < 18 << 20)) || die "a dry run finds $found bytes"
[[ $(json freed_bytes) == 0 ]] || die "a dry run frees"
run 0 gc demo --json
[[ $(json freed_bytes) == "$found" ]] || die "not what the dry run had found"
leaked 0
exported outer inner.raw
exported base base.raw
run 0 vdi delete demo/base --yes
run 0 gc demo --memory 512 --json
(($(json freed_bytes) >= 16 << 20 && $(json slices) > 1)) || die "the parent did not come back in slices"
leaked 0
exported outer inner.raw

step "broken off anywhere, it goes on"
run 0 snap create demo/outer@v2
for i in 1 2 3; do run 0 vdi clone demo/outer@v2 demo/c$i && run 0 vdi import base.raw demo/c$i --force; done
for i in 1 2 3; do run 0 vdi delete demo/c$i --yes; done
# killed PHASE: a collection is killed in this phase; in the sweep when some of it is done.
killed() {
    python3 -c '
import glob, sqlite3, subprocess, sys, time
command, phase, state = sys.argv[1:]
db = sqlite3.connect(glob.glob(state + "/registry*")[0], timeout=20)
def ask(sql):
    return db.execute(sql).fetchone()[0]
process = subprocess.Popen([command, "gc", "demo"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
most = 0
while process.poll() is None:
    left = ask("SELECT count(*) FROM garbage")
    most = max(most, left)
    if ask("SELECT phase FROM collections") == phase and (phase == "mark" or left < most):
        process.kill()
        process.wait()
        sys.exit(0)
    time.sleep(0.0005)
sys.exit("it ended before it could be killed")' "$PARALLAX" "$1" "$PARALLAX_STATE_DIR" 2>err
}

for phase in mark sweep mark sweep; do
    killed $phase || die "no collection was killed in its $phase"
    exported outer inner.raw
done
run 0 gc demo --json
[[ $(json resumed) == true ]] || die "it did not go on"
leaked 0
exported outer inner.raw

step "everything comes back, to the block"
run 0 vdi delete demo/outer --yes
run 0 gc demo
run 0 store check demo --json
used=$(json used_blocks)
run 0 store info demo --json
[[ $(json data_extents) == 0 && $(json metadata_extents) == 0 ]] || die "extents are still in use"
[[ $used == 12 || $(json used_bytes) == 1048576 ]] || die "$used blocks are in use"
run 0 vdi create demo/again --size 16M
run 0 vdi import base.raw demo/again --force
exported again base.raw
leaked 0

step "what had changed hands before it was swept stays as it is"
sealed() { python3 -c '
import glob, sqlite3, sys
db = sqlite3.connect(glob.glob(sys.argv[1] + "/registry*")[0], timeout=20)
for statement in sys.argv[2:]:
    db.execute(statement)
db.commit()
print(db.execute("SELECT count(*) FROM extents WHERE sealed = 1").fetchone()[0])' "$PARALLAX_STATE_DIR" "$@"; }
before=$(sealed)
((before > 10)) || die "only $before extents are full"
sealed "UPDATE collections SET number = number + 1, phase = 'sweep', instance = 1000000" \
    "INSERT INTO garbage SELECT store, no, generation + 1, 1, '255+1' FROM extents WHERE sealed = 1" >out
run 0 gc demo --json
[[ $(json resumed) == true && $(json extents_missed) == "$before" ]] || die "not all of it was missed"
[[ $(sealed) == "$before" ]] || die "extents lost their seal"
exported again base.raw
leaked 0
