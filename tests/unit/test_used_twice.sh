#!/bin/bash
# A disk's record went back in both copies, and nobody knows of it, since the registry cannot be read: what contradicts
# it is what other disks have in its blocks.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

for name in one two three; do head -c 4M /dev/urandom >$name.raw; done
head -c 4M /dev/zero >zero.raw

# rebuilt STATUS: what is found is in err.
rebuilt() {
    timeout -k 5 60 "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" >out 2>err
    [[ $? == "$1" ]] || die "the rebuild did not end with $1"
}

# made: a store whose disk a is in old.plx as it was.
made() {
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
    run 0 vdi import one.raw demo/a
    run 0 vdi import two.raw demo/b
    cp --sparse=always demo.plx old.plx
}

# refused DISK: nothing is read of it and nothing is written to it.
refused() {
    run 5 vdi export "demo/$1" out.raw --force
    run 5 vdi import two.raw "demo/$1" --force
    timeout -k 5 60 "$PARALLAX" vdi accept-older "demo/$1" --yes >out 2>err
    [[ $? == 5 ]] || die "$1 is accepted"
    says err "blocks of an older state are in use by others; nothing was changed"
}

# pages_back OLDER VOLUME: the header pages of extents as they are in the older volume.
pages_back() {
    python3 - "$@" <<'END' || die "the pages cannot be put back"
import sys
older, volume = open(sys.argv[1], "rb").read(), open(sys.argv[2], "r+b")
for at in range(1 << 20, len(older), 1 << 20):
    volume.seek(at)
    if volume.read(8) == b"PLXEXTNT":
        volume.seek(at)
        volume.write(older[at : at + 8192])
END
}

# has DISK IMAGE
has() {
    run 0 vdi export "demo/$1" out.raw --force
    same "$2" out.raw
}

for registry in unreadable older; do
    step "a disk went back, and its blocks are another's by now; the registry is $registry"
    made
    run 0 vdi import zero.raw demo/a --force
    run 0 vdi import three.raw demo/young
    record_back old.plx demo.plx 0
    if [[ $registry == unreadable ]]; then
        no_registry demo.plx
    else
        registry_edit demo.plx "UPDATE vdis SET written_epoch = 1, written_state = 0 WHERE name = 'a'"
    fi
    rebuilt 5
    says err "virtual disk a: its record is older than what was written last: a block that it names is by now one of young"
    grep -q "virtual disk \(b\|young\)" err && die "a disk is named that is as it should be"
    rebuilt 5 # this time the registry knows
    says err "virtual disk a: its record is older than what was written last; it is refused: another virtual disk may have"
    refused a
    run 5 vdi info demo/a
    says err "or give it up by 'parallax vdi delete demo/a --lost': 'parallax vdi accept-older demo/a' accepts it only if"
    timeout -k 5 60 "$PARALLAX" store check demo >out 2>err
    says out "another virtual disk may have blocks of it"
    run 5 gc demo
    for n in 1 2; do run 0 vdi import two.raw demo/fill$n; done
    run 0 vdi import one.raw demo/b --force
    has young three.raw
    run 0 vdi delete --lost demo/a --yes
    run 0 gc demo
    run 0 vdi import two.raw demo/fill3
    has young three.raw
    has b one.raw
    run 0 store check demo --data
    rebuilt 0
done

step "an origin went back to before the snapshot that a clone has: the clone goes on"
made
run 0 snap create demo/a@one
run 0 vdi clone demo/a@one demo/clone
record_back old.plx demo.plx 0
no_registry demo.plx
rebuilt 5
says err "virtual disk a: its record is older than what was written last: it lacks a snapshot that has a clone, clone"
refused a
has clone one.raw
run 0 vdi import three.raw demo/b --force
run 0 vdi delete --lost demo/a --yes
run 0 gc demo
run 0 vdi import three.raw demo/more
has clone one.raw
run 0 store check demo --data

cp three.raw mixed.raw
dd if=one.raw of=mixed.raw bs=4k count=1 seek=500 skip=500 conv=notrunc status=none

# beside: disk b is in use until b_ends. Its process has the extents that are in use, so that what a's old record leads to
# is not overwritten.
beside() {
    timeout -k 5 60 "$PARALLAX" vdi bench demo/b --rw randwrite --iodepth 1 --runtime 4 --size 256k --force >/dev/null 2>&1 &
    bench=$!
    sleep 0.7
}
b_ends() { wait $bench || die "the bench of b failed"; }

# Of these blocks neither has a checksum that says whose they are. The origin lacks the clone's snapshot, but that may have
# been accepted long ago (below).
for image in one mixed; do
    step "an origin's blocks are overwritten in place before the snapshot, with $image.raw: nothing is proven of its clone"
    made
    beside
    run 0 vdi import $image.raw demo/a --force
    run 0 snap create demo/a@one
    run 0 vdi clone demo/a@one demo/clone
    b_ends
    record_back old.plx demo.plx 0
    no_registry demo.plx
    rebuilt 5
    says err "virtual disks a and clone: both have one block, and nothing tells which one has it no longer"
    refused a
    refused clone
    run 0 vdi delete --lost demo/a --yes
    run 0 vdi accept-older demo/clone --yes -q
    has clone $image.raw
    run 0 gc demo
    run 0 vdi import two.raw demo/more
    has clone $image.raw
done

step "a clone went back, and its origin has its blocks by now: that origins lack snapshots is looked at"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 128M --extent-size 1M
# Every second megabyte has a block, so that no whole extent is free below, and blocks are soon given out again.
truncate -s 96M sparse.raw
for n in $(seq 0 2 94); do head -c 4096 one.raw | dd of=sparse.raw bs=1M seek="$n" conv=notrunc status=none; done
for name in eight again; do head -c 8M /dev/urandom >$name.raw; done
run 0 vdi import sparse.raw demo/sparse
run 0 vdi create demo/a --size 8M
run 0 vdi import one.raw demo/a --force
run 0 snap create demo/a@one
run 0 vdi clone demo/a@one demo/clone
run 0 vdi import two.raw demo/clone --force
run 0 vdi delete demo/sparse --yes
run 0 gc demo
cp --sparse=always demo.plx old.plx
run 0 vdi import zero.raw demo/clone --force
run 0 vdi import eight.raw demo/a --force
run 0 vdi import again.raw demo/a --force
record_back old.plx demo.plx 2
no_registry demo.plx
rebuilt 5
says err "virtual disks a and clone: both have one block, and nothing tells which one has it no longer"
refused a
refused clone
run 0 vdi delete --lost demo/clone --yes
run 0 vdi accept-older demo/a --yes -q
has a again.raw

step "nothing tells which of two disks went back: both are kept as they are"
made
run 0 vdi import zero.raw demo/a --force
run 0 vdi import one.raw demo/young
record_back old.plx demo.plx 0
no_registry demo.plx
rebuilt 5
says err "both have one block, and nothing tells which one has it no longer"
says err "'parallax vdi delete demo/"
says err "'parallax vdi accept-older demo/"
refused a
refused young
for n in 1 2; do run 0 vdi import two.raw demo/fill$n; done
run 0 vdi delete --lost demo/a --yes
run 0 vdi accept-older demo/young --yes -q
run 0 gc demo
run 0 vdi import two.raw demo/fill3
has young one.raw
run 0 store check demo --data
rebuilt 0
step "the same, and the bitmaps went back as well: nobody gets the blocks of disks that are refused"
made
run 0 vdi import zero.raw demo/a --force
cp --sparse=always demo.plx middle.plx
run 0 vdi import one.raw demo/young
record_back old.plx demo.plx 0
pages_back middle.plx demo.plx
no_registry demo.plx
rebuilt 5
says err "both have one block, and nothing tells which one has it no longer"
says err "a disk has blocks in it that its bitmap calls free; nothing is allocated in it any more"
rebuilt 5
for n in 1 2 3 4 5 6; do run 0 vdi import two.raw demo/fill$n; done
run 0 vdi delete --lost demo/a --yes
run 0 vdi accept-older demo/young --yes -q
has young one.raw

step "an origin lost a snapshot once, which was accepted; its clone went back later: the origin is not blamed"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi create demo/a --size 4M
cp --sparse=always demo.plx before.plx
run 0 vdi import one.raw demo/a --force
run 0 vdi import two.raw demo/a --force # in place: no checksums
run 0 snap create demo/a@one
run 0 vdi clone demo/a@one demo/clone
record_back before.plx demo.plx 0
run 0 vdi accept-older demo/a --yes -q
has clone two.raw
cp --sparse=always demo.plx old.plx
run 0 vdi import zero.raw demo/clone --force
run 0 gc demo
run 0 vdi import three.raw demo/a --force
record_back old.plx demo.plx 1
cp --sparse=always demo.plx twice.plx
no_registry demo.plx
rebuilt 5
says err "virtual disks a and clone: both have one block, and nothing tells which one has it no longer"
refused a
refused clone
run 0 vdi delete --lost demo/clone --yes
run 0 vdi accept-older demo/a --yes -q
has a three.raw

step "the same, and the origin only reads the blocks by now"
cp --sparse=always twice.plx demo.plx
run 0 snap create demo/a@two
timeout -k 5 60 "$PARALLAX" store check demo >out 2>err
[[ $? == 5 ]] || die "the check finds nothing"
says out "one block is used twice"
timeout -k 5 60 "$PARALLAX" vdi accept-older demo/clone --yes >out 2>err
[[ $? == 5 ]] || die "the clone is accepted"
says err "blocks of an older state are in use by others; nothing was changed"

# read_twice KIND: disk a went back to blocks that b has by now, and both only read them. Of disks that are written again in place
# nobody knows checksums.
read_twice() {
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 512M --extent-size 16M
    run 0 vdi import sparse128.raw demo/sparse
    run 0 vdi import sparse128.raw demo/too
    run 0 vdi import one.raw demo/a
    run 0 vdi import two.raw demo/c
    [[ $1 == in-place ]] && run 0 vdi import one.raw demo/a --force
    run 0 snap create demo/a@s
    cp --sparse=always demo.plx old.plx
    run 0 vdi delete demo/sparse --yes
    run 0 vdi delete demo/too --yes
    run 0 gc demo
    run 0 vdi import zero.raw demo/a --force
    run 0 snap create demo/a@t
    run 0 snap delete demo/a@s
    run 0 gc demo
    run 0 vdi import long.raw demo/b
    [[ $1 == in-place ]] && run 0 vdi import long.raw demo/b --force
    run 0 snap create demo/b@s
    record_back old.plx demo.plx "$(registry "SELECT slot FROM vdis WHERE name = 'a'")"
}

# So many nodes are free then that b gets none of a's, while it gets a's data.
truncate -s 128M sparse128.raw
for n in $(seq 0 2 126); do head -c 4096 one.raw | dd of=sparse128.raw bs=1M seek="$n" conv=notrunc status=none; done
head -c 24M /dev/urandom >long.raw
for kind in once in-place; do
    step "two disks only read a block, written $kind: an older state with it is not accepted"
    read_twice $kind
    timeout -k 5 60 "$PARALLAX" store check demo >out 2>err
    [[ $? == 5 ]] || die "the check finds nothing"
    grep -q "one block is used twice: by virtual disk b (block [0-9]*, in a snapshot) and by virtual disk a (block [0-9]*, in a" out ||
        die "the check does not say it"
    timeout -k 5 60 "$PARALLAX" vdi accept-older demo/a --yes >out 2>err
    [[ $? == 5 ]] || die "the older state is accepted"
    says err "blocks of an older state are in use by others; nothing was changed"
    has b long.raw

    step "the same after a rebuild"
    no_registry demo.plx 16
    rebuilt 5
    if [[ $kind == once ]]; then
        says err "virtual disk a: its record is older than what was written last: a block that it names is by now one of b"
        refused a
        has b long.raw
        run 0 vdi delete --lost demo/a --yes
    else
        says err "virtual disks b and a: both have one block, and nothing tells which one has it no longer"
        refused a
        refused b
        run 0 vdi delete --lost demo/a --yes
        run 0 vdi accept-older demo/b --yes -q
    fi
    run 0 gc demo
    run 0 vdi import one.raw demo/more
    has b long.raw
    run 0 store check demo --data
done

step "what leads to a disk's blocks is damaged: it is named, and all else works"
made
python3 - <<'PYTHON'
import struct
with open("demo.plx", "r+b") as volume:
    head = volume.read(1 << 20)
    at = head.index(b"PLXVDREC")
    for copy in (at, at + 4096):
        root = struct.unpack_from("<Q", head, copy + 384)[0] & (1 << 38) - 1
        if head[copy : copy + 8] == b"PLXVDREC" and root:
            volume.seek(root * 4096)
            volume.write(b"\xa5" * 4096)
PYTHON
timeout -k 5 60 "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" --dry-run --json >out 2>err
[[ $? == 5 && $(json unread_disks) == 1 ]] || die "the dry run does not say it"
rebuilt 5
says err "virtual disk a: not all that leads to its blocks can be read; 'parallax store check demo' says what"
says err "'parallax vdi export demo/a FILE --skip-errors' saves the rest"
grep -q "virtual disk b" err && die "a disk is named that is as it should be"
has b two.raw
run 0 vdi delete demo/a --yes
rebuilt 0

echo "all is well"
