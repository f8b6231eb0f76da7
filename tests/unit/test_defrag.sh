#!/bin/bash
# Bringing scattered blocks together by the parallax command, end to end, on a store in a file.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

run 0 store format demo --volume "$DIR/demo.plx" --size 2G
run 0 vdi create demo/web --size 64M
run 0 vdi create demo/huge --size 200T

step "words"
run 2 defrag
run 2 defrag demo/web@1
run 2 defrag demo/web --rate 0
run 3 defrag demo/nothing
run 3 defrag nothing/web

step "nothing to do"
run 0 defrag demo/web --json
[[ $(json fragments_before) == 0 && $(json moved_bytes) == 0 ]] || die "an empty disk has fragments"
run 0 defrag demo/huge --json
[[ $(json mapped_bytes) == 0 ]] || die "an empty disk has blocks"
head -c 8M /dev/urandom >image
run 0 vdi import image demo/inorder
run 0 defrag demo/inorder --json
[[ $(json fragments_before) == 8 && $(json moved_bytes) == 0 ]] || die "it lay in order"
for disk in web inorder; do
    run 0 defrag demo/$disk
    grep -q "can be moved" err && die "demo/$disk has no snapshots"
done

step "scattered"
run 0 vdi bench demo/web --rw randwrite --force --bs 4k --iodepth 8 --runtime 1 --size 16M
run 0 vdi export demo/web before
run 0 defrag demo/web --dry-run --json
fragments=$(json fragments_before) left=$(json fragments_after) mapped=$(json mapped_bytes)
((fragments > 100 && left <= 16)) || die "$fragments fragments, $left would be left"
[[ $(json dry_run) == true ]] || die "no dry run"
run 0 defrag demo/web --dry-run
says out "Fragments before"
says err "nothing was moved"
run 0 defrag demo/web --json
[[ $(json fragments_before) == "$fragments" ]] || die "measuring moved something"
[[ $(json fragments_after) == "$left" && $(json mapped_bytes) == "$mapped" ]] ||
    die "it came otherwise than was told"
run 0 defrag demo/web --json
[[ $(json fragments_before) == "$left" && $(json moved_bytes) == 0 ]] || die "it moves again"
run 0 vdi export demo/web after
same before after
run 0 store check demo --data
run 0 store check demo --json
[[ $(json leaked_blocks) == 0 ]] || die "old places are lost"

step "what a snapshot sees stays"
run 0 snap create demo/web@seen
run 0 vdi bench demo/web --rw randwrite --force --bs 4k --iodepth 8 --runtime 1 --size 4M
run 0 snap create demo/web
run 0 defrag demo/web --json
[[ $(json moved_bytes) == 0 && $(json shared_bytes) == "$(json mapped_bytes)" ]] || die "it moved"
for words in "" --dry-run; do
    run 0 defrag demo/web $words
    says err "have all blocks of demo/web as well, so none of them can be moved"
done
run 0 vdi export demo/web@seen seen
same before seen

step "what a clone began with stays when its origin is gone: it is not called another's"
run 0 vdi clone demo/web@seen demo/clone
run 0 vdi delete demo/web --yes
run 0 gc demo
for words in "" --dry-run; do
    run 0 defrag demo/clone $words
    says err "have all blocks of demo/clone as well, or its origin had them when it was cloned, so none of them can be moved"
    says out "  of snapshots or clones: "
done

step "rate, interruption"
run 0 vdi create demo/slow --size 64M
run 0 vdi bench demo/slow --rw randwrite --force --bs 4k --iodepth 8 --runtime 1 --size 16M
run 0 vdi export demo/slow slow
timeout --foreground -s INT 2 "$PARALLAX" defrag demo/slow --rate 64k >out 2>err </dev/null
says err "goes on from there"
run 0 vdi export demo/slow slower
same slow slower
run 0 defrag demo/slow --json
(($(json moved_bytes) < 16 << 20)) || die "it began again"
run 0 store check demo --data

step "a store without room"
run 0 store format small --volume "$DIR/small.plx" --size 32M --extent-size 1M
run 0 vdi create small/web --size 64M
run 0 vdi bench small/web --rw randwrite --force --bs 4k --iodepth 8 --runtime 1 --size 8M
run 0 vdi create small/filler --size 64M
run 6 vdi bench small/filler --rw write --force --bs 64k --runtime 20
run 6 defrag small/web
says err "left to writes"
