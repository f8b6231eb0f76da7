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
# killed PHASE: a collection is killed in this phase.
killed() {
    local collection watcher
    coproc WATCH { exec "$REGISTRY_SQL" --wait demo.plx "SELECT 1 FROM collections WHERE phase = '$1' AND ('$1' = 'mark' OR EXISTS (SELECT 1 FROM garbage))"; }
    watcher=$WATCH_PID
    read -r _ <&"${WATCH[0]}"
    "$PARALLAX" gc demo >/dev/null 2>&1 </dev/null &
    collection=$!
    wait "$watcher" || die "no collection came to its $1"
    kill -9 $collection 2>/dev/null || return 1
    wait $collection 2>/dev/null
    [[ $1 == mark || $(registry "SELECT count(*) FROM garbage") != 0 ]]
}

for phase in mark sweep mark sweep; do
    run 0 vdi clone demo/outer@v2 demo/more # a collection that goes on with another has something left to find
    run 0 vdi import base.raw demo/more --force
    run 0 vdi delete demo/more --yes
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
[[ $used == 12 || $(json used_bytes) == $(json system_bytes) ]] || die "$used blocks are in use"
run 0 vdi create demo/again --size 16M
run 0 vdi import base.raw demo/again --force
exported again base.raw
leaked 0

step "what had changed hands before it was swept stays as it is"
sealed() { registry "SELECT count(*) FROM extents WHERE sealed = 1"; }
before=$(sealed)
((before > 10)) || die "only $before extents are full"
registry_edit demo.plx "UPDATE collections SET number = number + 1, phase = 'sweep', instance = 1000000;
    INSERT INTO garbage SELECT store, no, generation + 1, 1, '255+1' FROM extents WHERE sealed = 1"
run 0 gc demo --json
[[ $(json resumed) == true && $(json extents_missed) == "$before" ]] || die "not all of it was missed"
[[ $(sealed) == "$before" ]] || die "extents lost their seal"
exported again base.raw
leaked 0
