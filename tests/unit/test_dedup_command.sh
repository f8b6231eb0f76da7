#!/bin/bash
# parallax dedup, end to end, on a store in a file: equal blocks share their space, and nothing else changes.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# exported VDI FILE: it holds what the file does.
exported() {
    run 0 vdi export "demo/$1" exported.raw --force
    same "$2" exported.raw
}

# in_use: bytes that disks have, in $used; the store is whole, and nothing is lost after a collection.
in_use() {
    run 0 gc demo
    run 0 store check demo --data --json
    [[ $(json errors) == 0 && $(json leaked_blocks) == 0 ]] || die "$(json errors) errors, $(json leaked_blocks) leaks"
    used=$(($(json used_blocks) * 4096))
}

run 0 store format demo --volume "$DIR/demo.plx" --size 512M --extent-size 1M
head -c 8M /dev/urandom >one.raw
{ head -c 4M one.raw && head -c 4M /dev/urandom; } >two.raw # half of it is equal
head -c 4096 /dev/urandom >block.raw
for _ in {1..256}; do cat block.raw; done >same.raw # one block, 1 MiB of it

step "words"
run 2 dedup
run 3 dedup nothing
run 2 dedup demo/web
run 2 dedup demo --memory lots
run 0 dedup --help
says out "--dry-run"
run 0 __complete dedup
says out "--rate="

step "nothing to share"
run 0 dedup demo --json
[[ $(json disks) == 0 && $(json saved_bytes) == 0 ]] || die "there is nothing"
run 0 vdi create demo/huge --size 200T
run 0 vdi import one.raw demo/one
run 0 dedup demo --json
[[ $(json disks) == 2 && $(json saved_bytes) == 0 && $(json mapped_bytes) == $((8 << 20)) ]] || die "random blocks are equal"

step "a dry run only counts"
run 0 vdi import two.raw demo/two
run 0 vdi import same.raw demo/same
in_use
before=$used
run 0 dedup demo --dry-run --json
expected=$(((4 << 20) + 255 * 4096))
[[ $(json saved_bytes) == "$expected" && $(json dry_run) == true ]] || die "$(json saved_bytes) would be saved"
in_use
[[ $used == "$before" ]] || die "a dry run changes something"
run 0 dedup demo --dry-run
says err "nothing was changed"

step "shared"
run 0 dedup demo --json
[[ $(json saved_bytes) == "$expected" && $(json unreadable) == 0 ]] || die "$(json saved_bytes) saved"
exported one one.raw
exported two two.raw
exported same same.raw
in_use
# Some metadata more or less.
((before - used > expected - (1 << 18) && before - used < expected + (1 << 18))) || die "$((before - used)) came free"
shared=$used
run 0 dedup demo --json
[[ $(json saved_bytes) == 0 && $(json common_bytes) == $(((8 << 20) + 256 * 4096)) ]] || die "it finds something again"
in_use
((used <= shared)) || die "the second one takes space"

step "what is written to one does not show in another"
head -c 2M /dev/urandom >new.raw
{ cat new.raw && tail -c +$(((2 << 20) + 1)) two.raw; } >two.new
run 0 vdi import two.new demo/two --force
exported two two.new
exported one one.raw
run 0 vdi delete demo/one --yes
in_use
exported two two.new
exported same same.raw

step "a third one joins what is common already, in slices"
run 0 vdi import one.raw demo/three
run 0 vdi import same.raw demo/more
run 0 dedup demo --memory 4k --json
(($(json saved_bytes) == (2 << 20) + 256 * 4096 && $(json slices) > 1)) || die "$(json saved_bytes) saved in $(json slices) slices"
exported three one.raw
exported more same.raw
exported two two.new
in_use

step "a store of which snapshots see everything: it says why it finds nothing"
run 0 store format held --volume "$DIR/held.plx" --size 64M --extent-size 1M
run 0 vdi import same.raw held/web
run 0 dedup held --dry-run
grep -q "no blocks were compared" err && die "there is no snapshot"
run 0 snap create held/web@v1
for words in --dry-run ""; do
    run 0 dedup held $words
    says err "no blocks were compared: all that are not shared yet belong to snapshots or clones"
done

step "what was saved comes back with a collection, and a store without room says so"
run 0 store format tight --volume "$DIR/tight.plx" --size 64M --extent-size 1M
for disk in 1 2 3 4 5; do run 0 vdi import one.raw "tight/$disk"; done
run 0 dedup tight --dry-run
grep -q "parallax gc" err && die "nothing was saved"
run 0 dedup tight
says err "what was saved is free for use after the next collection: 'parallax gc tight'"
run 0 vdi create tight/more --size 64M
run 6 vdi bench tight/more --rw write --bs 1M --size 64M --runtime 30 --force
says err "; 'parallax gc tight' may free what was deleted or shared and has not come back yet; if that is not enough, delete"
run 6 vdi bench tight/more --rw write --bs 1M --size 64M --runtime 30 --force --json
says err "\"advice\":\"'parallax gc tight' may free"
run 0 gc tight
run 0 vdi import one.raw tight/more --force
run 0 dedup tight
run 0 dedup tight
grep -q "parallax gc" err && die "nothing was saved by the second one"

step "what a snapshot sees stays"
run 0 vdi import new.raw demo/seen
run 0 snap create demo/seen@v1
run 0 dedup demo --json
[[ $(json saved_bytes) == 0 && $(json seen_bytes) == $((2 << 20)) ]] || die "it was shared"
run 0 vdi clone demo/seen@v1 demo/clone
run 0 vdi import same.raw demo/clone --force
run 0 dedup demo
exported seen new.raw
in_use

step "no collection beside it, and it goes on after a crash"
registry_edit demo.plx "UPDATE collections SET number = number + 1, phase = 'mark', instance = 999999"
run 0 dedup demo # of a dead one
[[ $(($(registry "SELECT number FROM collections") % 2)) == 0 ]] || die "the entry stays"
[[ $(registry "SELECT wanted FROM collections") != 0 ]] || die "no collection is wanted"
registry_edit demo.plx "UPDATE collections SET number = number + 1, phase = 'sweep', instance = 999999"
run 4 dedup demo
says err "goes on with it"
run 0 gc demo --json
[[ $(json resumed) == true ]] || die "the collection was lost"
run 0 vdi import one.raw demo/slow
"$PARALLAX" dedup demo --rate 64k >slow.out 2>slow.err </dev/null &
slow=$!
for _ in {1..100}; do
    [[ $(($(registry "SELECT number FROM collections") % 2)) == 1 ]] && break
    sleep 0.05
done
run 4 gc demo --wait 0
says err "deduplicating"
kill -9 $slow
wait $slow 2>/dev/null
in_use # takes the entry over
exported slow one.raw
"$PARALLAX" dedup demo --rate 64k >slow.out 2>slow.err </dev/null &
slow=$!
sleep 1
kill -INT $slow
wait $slow
grep -q "stays so" slow.err || die "it was not interrupted"
run 0 dedup demo
exported slow one.raw
in_use
