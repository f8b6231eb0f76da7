#!/bin/bash
# parallax store grow and store add-volume, end to end, on stores in files.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "words"
run 2 store grow
run 2 store add-volume demo
run 2 store add-volume demo ./x --size 0
run 3 store grow demo

step "a store with a disk"
run 0 store format demo --volume one --size 16M --extent-size 1M
run 0 vdi create demo/v --size 64M
head -c 8M /dev/urandom >before
run 0 vdi import before demo/v --force
run 0 store grow demo --json
[[ $(json added_bytes) == 0 && $(json size_bytes) == $((16 << 20)) ]] || die "it grew by nothing"

step "a larger volume, in whole extents"
truncate -s $(((20 << 20) + 4096)) one
run 0 store grow demo --dry-run --json
[[ $(json added_extents) == 4 && $(json dry_run) == true ]] || die "wrong dry run"
run 0 store info demo --json
[[ $(json extents) == 16 ]] || die "a dry run changed something"
run 0 store grow demo
says err "demo grew by 4 MiB to 20 MiB"
run 0 store info demo --json
[[ $(json extents) == 20 ]] || die "it did not grow"

step "while another process writes superblocks"
python3 -c '
import fcntl, struct, sys, time
fd = open("one", "r+b")
flock = struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, (1 << 62) + 9, 1, 0)
fcntl.fcntl(fd, 37, flock) # F_OFD_SETLK
print("locked", flush=True)
time.sleep(60)' >locked &
locker=$!
until grep -qs locked locked; do sleep 0.1; done
run 4 store grow demo --wait 0
says err "is writing the store's superblocks"
kill $locker
wait $locker 2>/dev/null
run 0 store grow demo

step "volumes that are refused"
run 3 store add-volume demo two
head -c 8M /dev/urandom >data
cp data kept
"$PARALLAX" store add-volume demo data >out 2>err && die "data was overwritten"
says err "--force"
same data kept
"$PARALLAX" store add-volume demo tiny --size 2M >out 2>err && die "too small a volume was accepted"
says err "too small: 2097152 bytes; a volume needs at least 4 extents of 1048576 bytes, which are 4194304 bytes"
[[ $(<err) != *--extent-size* ]] || die "the extents of a store stay as they are"
[[ ! -e tiny ]] || die "a refused volume's file is left"
"$PARALLAX" store add-volume demo two --size 8M --dry-run >out 2>err && die "a dry run made a file"
[[ ! -e two ]] || die "a dry run made a file"
run 0 store info demo --json
[[ $(json extents) == 20 && $(json volumes | grep -o / | wc -l) -gt 0 ]] || die "a refusal changed something"

step "a further volume, then an inner one becomes larger"
run 0 store add-volume demo two --size 8M --json
[[ $(json added_extents) == 8 && $(json told) == 0 ]] || die "wrong volume"
run 0 store add-volume demo two --json
[[ $(json added_extents) == 0 ]] || die "a volume was added twice"
for volume in one two; do
    cp $volume copy
    cp copy kept
    run 4 store add-volume demo copy --force
    says err "copy is a copy of volume "
    says err "of store demo ($DIR/$volume), or another name of it"
    same copy kept
done
rm copy kept
truncate -s 24M one
run 0 store grow demo
run 0 store info demo --json
[[ $(json extents) == 32 ]] || die "an inner volume did not grow"
run 0 store rebuild-registry --volume one --volume two # nothing lies in what came yet
run 0 store check demo
run 0 store add-volume demo data --force
run 0 store info demo --json
[[ $(json extents) == 40 ]] || die "--force did not add"

step "a volume of a known store that is missing: which store's it is, and what to do"
for volume in one two; do
    mv $volume gone
    for words in "vdi create demo/late --size 1M" "store check demo" "gc demo"; do
        # shellcheck disable=SC2086 # words
        run 6 $words
        says err "store demo: cannot open $DIR/$volume: No such file"
        says err "'parallax store import --volume PATH --volume PATH --volume PATH' tells where it lies now"
    done
    mv gone $volume
done
mv one gone
run 0 store import --volume gone --volume two --volume data
run 0 vdi list demo
mv gone one
run 0 store import --volume one --volume two --volume data

step "all of it is used, and known after the registry is lost"
head -c 30M /dev/urandom >after
run 0 vdi import after demo/v --force
run 0 store check demo --data --json
[[ $(json errors) == 0 ]] || die "damage"
rm -rf state
"$PARALLAX" store rebuild-registry --volume one --volume two >out 2>err && die "a volume was missing"
run 0 store rebuild-registry --volume data --volume one --volume two
run 0 store check demo --json
[[ $(json errors) == 0 ]] || die "damage after the registry was rebuilt"
run 0 vdi export demo/v copy
cmp -n $((30 << 20)) after copy || die "the disk's contents changed"

step "a store in doubt: everybody says so, and nothing is added to it"
registry_edit one "UPDATE store SET doubt = 'something newer was seen'"
for command in "store grow demo" "store add-volume demo in-doubt --size 8M"; do
    # shellcheck disable=SC2086 # words
    run 4 $command
    says err "something newer was seen"
done
[[ ! -e in-doubt ]] || die "a volume was made for a store in doubt"
for command in "vdi list" "vdi list demo" "cdp status demo" "cdp status demo/v"; do
    # shellcheck disable=SC2086 # words
    run 0 $command
    says err "demo is in doubt, so nothing new is opened for writing: something newer was seen"
    # shellcheck disable=SC2086 # words
    run 0 $command --json
    [[ ! -s err ]] || die "$command --json: something on standard error"
done
run 0 vdi list demo --json
[[ $(json 0 store_doubt) == "something newer was seen" ]] || die "the list in JSON does not say it"
run 5 store check demo
says out "error: the store is in doubt"
run 0 store rebuild-registry --volume data --volume one --volume two
run 0 store check demo

step "a truncated volume"
truncate -s 23M one
"$PARALLAX" store check demo >out 2>err && die "a truncated volume was accepted"
says err "truncated"
size=$(grep -o 'truncate -s [0-9]*' err)
[[ $size ]] || die "it does not say how it can be read again"
run 5 store import --volume data --volume one --volume two
says err "truncated: 24117248 bytes, the superblock says "
run 5 store list
says err "('$size', if it is a file)"
run 5 store info demo
says out "$DIR/one"
says out "Virtual disks:"
$size one
run 0 store list

step "a volume in use that volume 0 does not count, for volume 0 went back, is not taken for a leftover"
head -c 8M /dev/urandom >raw
run 0 store format back --volume "$DIR/b0" --size 32M --extent-size 1M
cp b0 b0.old
run 0 store add-volume back "$DIR/b1" --size 64M
cp b1 b1.unused
for disk in 1 2 3 4 5 6; do run 0 vdi import raw back/d$disk; done
cp b0 b0.new
cp b1 b1.kept
cat b0.old >b0
older="b1 is in use as volume 1 of store back, but $DIR/b0 does not count it, so that one went back to an older state; put the newer one back"
for words in "store list" "store info back" "store check back" "vdi list back" \
    "store import --volume $DIR/b0 --volume $DIR/b1" \
    "snap list back/d1" "vdi create back/d7 --size 1M" "gc back" "store grow back" "store add-volume back $DIR/b1"; do
    # shellcheck disable=SC2086 # words
    run 5 $words
    says err "$older"
done
for words in "store import" "store rebuild-registry"; do
    # shellcheck disable=SC2086 # words
    run 5 $words --volume "$DIR/b0"
    says err "b1 is volume 1 of store back, as this host knows; name all volumes; if $DIR/b0 is older than that, put the newer one back"
done
run 5 store rebuild-registry --volume "$DIR/b0" --volume "$DIR/b1"
says err "that one went back to an older state"
run 0 store forget back # whoever wants the older state, as the message says
run 5 store import --volume "$DIR/b0" --volume "$DIR/b1"
says err "$older"
says err "to go on with the older state, 'parallax store import --volume $DIR/b0'"
run 3 store info back
run 0 store import --volume "$DIR/b0"
run 0 store scan "$DIR/b0" "$DIR/b1" --json
[[ $(json 0 known) == back && $(json 1 uncounted) == back && $(json 1 copy_of) == null ]] || die "what is newer is taken for a copy"
run 0 store scan "$DIR/b0" "$DIR/b1"
says out "back, not counted"
says err "b1: volume 1 of store back, which is known here with fewer volumes: its first volume went back to an older state"
run 0 vdi list back
for words in "" "--dry-run"; do
    # shellcheck disable=SC2086 # words
    run 4 store add-volume back "$DIR/b1" $words
    says err "b1: is in use as volume 1 of store back, but $DIR/b0 does not count it, so that one went back to an older state"
done
cmp -s b1 b1.kept || die "the volume was changed"
cp b1.unused stale # of this very store, and left by no interrupted call
for words in "" "--dry-run"; do
    # shellcheck disable=SC2086 # words
    run 4 store add-volume back stale $words
    says err "stale says that it is volume 1 of store back itself, which has 1 volume and not this one"
    says err "put its newer volumes back; --force overwrites"
done
same stale b1.unused
run 0 store add-volume back other --size 8M
for old in b1.unused b1.kept; do
    cp $old stale
    run 4 store add-volume back stale
    says err "stale says that it is volume 1 of store back itself, which has 2 volumes and not this one"
    same stale $old
done
run 0 store add-volume back stale --force
run 0 store forget back
cat b0.new >b0
run 0 store import --volume "$DIR/b0" --volume "$DIR/b1"
for disk in 1 2 3 4 5 6; do
    run 0 vdi export back/d$disk got --force
    cmp -s got raw || die "d$disk is another one"
done
run 0 store check back

step "a volume that counts more of them than volume 0: the store is read, and not written"
cp b0 b0.two
run 0 store add-volume back "$DIR/b2" --size 32M
run 0 store grow back # writes the counts that are missing
run 0 store forget back
cp b0 b0.three
cat b0.two >b0
# But for the number that all volumes have, which tells it to readers, too (test_numbers.sh).
dd if=b0.three of=b0 bs=4096 skip=2 seek=2 count=2 conv=notrunc status=none
run 0 store import --read-only --volume "$DIR/b0" --volume "$DIR/b1"
run 0 vdi export back/d1 got --force
same got raw
run 5 store list
says err "b1 counts 3 volumes, and $DIR/b0 2: that one is older than the store; 'parallax store check back' says what to do"
run 5 store info back
says out "Virtual disks:"
says err "b1 counts more volumes of store back than $DIR/b0, which went back to an older state"
run 5 store check back
says out "b1 counts more volumes of store back than $DIR/b0, which went back to an older state; put the newer one back"
for words in "vdi create back/d7 --size 1M" "store grow back" "gc back"; do
    # shellcheck disable=SC2086 # words
    run 5 $words
    says err "which went back to an older state; put the newer one back"
done
run 0 store forget back
cat b0.three >b0
run 0 store import --volume "$DIR/b0" --volume "$DIR/b1" --volume "$DIR/b2"
run 0 store check back

step "places for virtual disks: a larger volume brings none, and the error says what does"
run 0 store format places --volume places1 --size 16M --extent-size 1M
run 0 store info places --json
slots=$(json vdi_slots)
for ((n = 1; n <= slots; n++)); do run 0 vdi create "places/d$n" --size 4k; done
taken="all $slots places that the store has for virtual disks are taken; 'parallax gc places' frees those of deleted ones, \
and 'parallax store add-volume places' brings more, which 'store grow' does not"
# full: no further disk can be made, and why.
full() {
    run 6 vdi create places/more --size 4k
    [[ $(<err) == "parallax: $taken" ]] || die "wrong advice"
}
full
truncate -s 64M places1
run 0 store grow places
full
run 0 vdi delete places/d1 --yes
full
run 0 gc places
run 0 vdi create places/more --size 4k
run 0 store add-volume places places2 --size 16M
run 0 vdi create places/again --size 4k
run 0 store info places --json
(($(json vdi_slots) > slots)) || die "no place came with the volume"

step "a volume that the store has already, by whatever name"
ln places1 second
for words in "second 0 $DIR/places1" "./places2 1 $DIR/places2"; do
    read -r path number place <<<"$words"
    run 0 store add-volume places "$path" --force
    [[ $(<err) == "$path is volume $number of store places already ($place); nothing was added" ]] || die "it is not told"
    run 0 store add-volume places "$path" --json
    [[ $(json added_bytes) == 0 ]] || die "something was added"
done

echo "all good"
