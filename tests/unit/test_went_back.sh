#!/bin/bash
# A store that has lost a disk's record, or shows an older one: what the commands say, and that none of their advice
# loses what the registry still knows.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# record SLOT FILE: both copies of the record in this slot of demo.plx become those of the file; /dev/zero: none.
record() {
    python3 -c '
import sys
with open("demo.plx", "r+b") as store, open(sys.argv[2], "rb") as source:
    blocks = store.read(1 << 20)
    first = next(at for at in range(0, len(blocks), 4096) if blocks[at:at + 8] == b"PLXVDREC")
    at = first + 8192 * int(sys.argv[1])
    store.seek(at)
    source.seek(at)
    store.write(source.read(8192))' "$1" "$2"
}
# keep_number FROM VOLUME: as if the number that all volumes have were not there to tell that this one went back
# (handler/attach/numbers.c). What else tells is looked at then.
keep_number() { dd if="$1" of="$2" bs=4096 skip=2 seek=2 count=2 conv=notrunc status=none || die "no number"; }
# fails STATUS WORDS...: like run, and notes may come before the error.
fails() {
    timeout -k 5 60 "$PARALLAX" "${@:2}" >out 2>err </dev/null
    local status=$?
    ((status == $1)) || die "parallax ${*:2}: exit status $status, not $1"
}

run 0 store format demo --volume demo.plx --size 256M --extent-size 4M
run 0 vdi create demo/a --size 16M
head -c 8M /dev/urandom >image
run 0 vdi import image demo/b
run 0 snap create demo/b --label x
cp demo.plx older.plx
run 0 snap create demo/b --label y
cp demo.plx good.plx

step "a record that is gone"
record 1 /dev/zero
run 5 store check demo
says out "virtual disk b is in the registry, and slot 1 of the store does not hold it"
grep -qE "nothing is lost|store forget" out && die "the check's advice loses the disk"
cp demo.plx before.plx
fails 5 store rebuild-registry --volume demo.plx --dry-run
says err "lost: virtual disk b: slot 1 of the store does not hold it"
same demo.plx before.plx
for _ in 1 2; do
    fails 5 store rebuild-registry --volume demo.plx
    says err "lost: virtual disk b: slot 1 of the store does not hold it"
    "$PARALLAX" gc demo >out 2>err && die "it was collected"
    run 5 store check demo
    says out "lost: virtual disk b: slot 1"
done
fails 4 vdi forget demo --lost
run 0 vdi forget demo --lost --dry-run
says err "virtual disk b: slot 1 of the store does not hold it"
says err "nothing was changed"
run 0 vdi forget demo --lost --dry-run --json
[[ $(json forgotten) == false && $(json dry_run) == true ]] || die "wrong JSON"
record 1 good.plx
run 0 store rebuild-registry --volume demo.plx
run 0 gc demo
run 0 vdi export demo/b@y back
cmp -n $((8 << 20)) image back || die "the disk's contents changed"

step "a record that went back"
cp good.plx demo.plx
record 1 older.plx
run 5 store check demo
says out "virtual disk b: its record is older than what was written last"
grep -q "unlabel" out && die "the check's advice destroys evidence"
for _ in 1 2; do
    fails 5 store rebuild-registry --volume demo.plx --dry-run --json
    [[ $(json older_records) == 1 ]] || die "wrong JSON"
    fails 5 store rebuild-registry --volume demo.plx
    says err "virtual disk b: its record is older than what was written last"
    run 5 vdi export demo/b raw
    [[ $(registry "SELECT seq FROM labels WHERE name = 'y'") == 2 ]] || die "the rebuild dropped a label"
done
cp demo.plx before.plx
fails 4 vdi accept-older demo/b
run 0 vdi accept-older demo/b --dry-run
says err "nothing was changed"
same demo.plx before.plx
run 5 vdi info demo/b
run 0 vdi accept-older demo/b --yes
run 0 vdi info demo/b
[[ $(registry "SELECT count(*) FROM extents WHERE sealed") != 0 ]] || die "what it has again, and gave back once, can be given away"
fails 5 store rebuild-registry --volume demo.plx
says err "nothing is allocated in it any more"
says err "; nothing is allocated there any more; data that lay there may be damaged: 'parallax store check demo --data' names the virtual disks"
"$PARALLAX" store check demo >out 2>err
grep "takes over what the store says" out && die "the check's advice is what was done, and changes nothing"

step "a registry that does not know a disk: its slot is not another's, and it is whole with a new registry"
cp good.plx demo.plx
registry_edit demo.plx "DELETE FROM vdis WHERE name = 'b'"
run 4 vdi create demo/new --size 1M
says err "slot 1 of the store, where new was to be, holds b: the registry lost a write; 'parallax store rebuild-registry demo' rebuilds it"
run 4 vdi create demo/new --size 1M
says err "go on without it by 'parallax store rebuild-registry demo', which frees nothing of it"
run 0 store list
says out DOUBT
says err "store demo is in doubt, so nothing new is opened for writing: "
[[ -z $(registry "SELECT 1 FROM vdis WHERE name = 'new'") ]] || die "there is a row of what was never made"
run 0 store rebuild-registry --volume demo.plx
run 0 vdi export demo/b@y back --force
cmp -n $((8 << 20)) image back || die "the disk's contents changed"
run 0 gc demo
run 0 store check demo

step "a record that went back to blocks that another disk has by now"
rm -rf demo.plx state
for name in one two three; do head -c 4M /dev/urandom >$name; done
run 0 store format demo --volume demo.plx --size 64M --extent-size 1M
run 0 vdi create demo/a --size 4M
run 0 vdi import one demo/b
run 0 snap create demo/b@x
cp demo.plx older.plx
run 0 vdi import two demo/b --force
run 0 snap create demo/b@y
run 0 snap delete demo/b@x
run 0 gc demo
for n in {1..8}; do run 0 vdi import three "demo/c$n"; done
record 1 older.plx
cp demo.plx before.plx
fails 5 vdi accept-older demo/b --yes
says err "blocks of an older state are in use by others; nothing was changed"
run 5 vdi export demo/b raw
for n in {1..8}; do
    run 0 vdi export "demo/c$n" back --force
    same three back
done
run 0 vdi delete demo/b --lost --yes
run 0 gc demo
for n in {1..8}; do
    run 0 vdi export "demo/c$n" back --force
    same three back
done
run 0 store check demo --data
step "a further volume that went back: who needs room there says so, and the check which volume it is"
rm -rf demo.plx state
for name in one two; do head -c 6M /dev/urandom >$name; done
run 0 store format demo --volume demo.plx --size 64M --extent-size 1M
run 0 store add-volume demo "$DIR/more.plx" --size 128M
for n in {1..15}; do run 0 vdi import one "demo/d$n"; done
cp --sparse=always more.plx older.plx
for n in {12..14}; do run 0 vdi delete "demo/d$n" --yes; done
run 0 gc demo
cp --sparse=always more.plx newer.plx
cp --sparse=always demo.plx whole.plx
cp --sparse=always older.plx more.plx
keep_number newer.plx more.plx
for n in {1..4}; do
    "$PARALLAX" vdi import two "demo/new$n" >out 2>err </dev/null
    status=$?
    ((status)) && break
done
((status == 5)) || die "who found older extents only ended with $status"
says err "write error on the store: on $DIR/more.plx, extent "
says err "its header is older than what was written last"
says err "'parallax store check demo' says what to do"
run 5 store check demo
says out "volume 1 ($DIR/more.plx): "
says out "it went back to an older state, or lost writes; put the newer one back"
says out "info: volume 1 ($DIR/more.plx): "
says out "in extents that were damaged or went back to an older state: never freed"
grep -q "left by a crash" out && die "the check takes what is older for what a crash has left"
run 0 store info demo --json
(($(json sealed_extents) >= 3)) || die "nobody counts what is never used again"
cp whole.plx demo.plx
cp newer.plx more.plx
run 0 store check demo
run 0 store info demo --json
[[ $(json sealed_extents) == 0 ]] || die "something is sealed on a whole store"
run 0 vdi import two demo/new
run 0 vdi import two demo/gone
run 0 vdi import one demo/gone --force # in place: nothing vouches for these blocks

step "a first volume that went back: the check tells it by the others, and so does a rebuild"
cp --sparse=always demo.plx older.plx
run 0 vdi delete demo/gone --yes
run 0 gc demo
run 0 vdi import two demo/next
run 0 vdi import two demo/next --force
run 0 store check demo
cp --sparse=always demo.plx newer.plx
cp --sparse=always older.plx demo.plx
keep_number newer.plx demo.plx
run 0 vdi export demo/gone back --force
cmp -s back one && die "the blocks are still its own"
run 5 store check demo
says out "($DIR/more.plx) was used since the registry saw it last: $DIR/demo.plx went back to an older state"
BOTH=(--volume demo.plx --volume more.plx)
fails 5 store rebuild-registry "${BOTH[@]}" --dry-run --json
(($(json newer_extents))) || die "nobody counts what is newer"
fails 5 store rebuild-registry "${BOTH[@]}"
says err "demo.plx went back to an older state, for "
says err "put the newer one back and rebuild again"
fails 4 gc demo
fails 5 store rebuild-registry "${BOTH[@]}" --dry-run # it is not forgotten
cp --sparse=always newer.plx demo.plx
run 0 store check demo
run 0 store rebuild-registry "${BOTH[@]}"
run 0 vdi export demo/next back --force
same back two

step "the same, with a disk that was made since: what it has on the others is not collected"
cp --sparse=always demo.plx older.plx
head -c 40M /dev/urandom >since
run 0 vdi import since demo/since
cp --sparse=always demo.plx newer.plx
cp --sparse=always older.plx demo.plx
keep_number newer.plx demo.plx
run 5 store check demo
says out "($DIR/more.plx) was used since the registry saw it last: $DIR/demo.plx went back to an older state"
fails 5 store rebuild-registry "${BOTH[@]}"
fails 4 gc demo
cp --sparse=always more.plx more.kept
run 0 vdi forget demo --lost --yes
run 0 gc demo
cp --sparse=always more.kept more.plx
cp --sparse=always newer.plx demo.plx
run 0 vdi export demo/since back --force
same back since
run 0 vdi delete demo/since --yes

step "a first volume that went back, and who writes meets an extent of the other one that is newer: its row stays the proof"
TWO=(--volume two0.plx --volume two1.plx)
run 0 store format two --volume "$DIR/two0.plx" --size 64M --extent-size 1M
run 0 store add-volume two "$DIR/two1.plx" --size 64M
head -c 61M /dev/urandom >most
head -c 256K /dev/urandom >little
run 0 vdi import most two/most
run 0 vdi import little two/first
# newest_extent: the row of the last extent that is known, and no system's.
newest_extent() {
    rm -f registry.two
    "$PARALLAX" store export-registry two registry.two >/dev/null 2>&1 || die "the registry cannot be copied"
    python3 -c '
import sqlite3
print(*sqlite3.connect("registry.two").execute("SELECT no, type, owner, sealed, states FROM extents ORDER BY no DESC").fetchone())'
}
cp --sparse=always two0.plx two0.older
proof=$(newest_extent)
run 0 vdi import little two/second
cp --sparse=always two0.plx two0.newer
newest=$(newest_extent)
[[ $newest != "$proof" ]] || die "the second one did not change the extent of the first: $newest"
cp --sparse=always two0.older two0.plx
keep_number two0.newer two0.plx
SEEN="two1.plx) was used since the registry saw it last: $DIR/two0.plx went back to an older state"
fails 0 vdi import little two/third # there is room elsewhere
says err "store two is in doubt, so nothing new is opened for writing: extent "
for words in "vdi import little two/fourth" "vdi bench two/first --rw randread --runtime 1 --size 256K" "gc two"; do
    # shellcheck disable=SC2086 # words
    fails 4 $words
    says err "$SEEN"
    says err "put the newer volume 0 back first"
done
[[ $(newest_extent) == "$proof" ]] || die "the proof is gone: $(newest_extent), and it was $proof"
run 5 store check two
says out "$SEEN"
fails 5 store rebuild-registry "${TWO[@]}"
says err "put the newer one back and rebuild again"
[[ $(newest_extent) == "${newest%% *} data None 0 ${newest##* }" ]] || die "the newer extent is not taken over: $(newest_extent)"
run 0 vdi forget two --lost --yes
run 0 vdi import little two/fifth
[[ $(newest_extent) != "${newest%% *} "* || $(newest_extent) != *" ${newest##* }" ]] || die "the newer extent is not used again"
for vdi in first third fifth; do
    run 0 vdi export two/$vdi back --force
    same back little
done
run 0 store check two
run 0 store forget two

step "the registry alone lost writes: no volume is called older for that"
run 0 vdi import two demo/last
registry_edit demo.plx "UPDATE extents SET states = states - 1 WHERE no = (SELECT max(no) FROM extents WHERE owner IS NULL AND states > 1)"
registry_edit demo.plx "UPDATE vdis SET written_state = written_state - 1 WHERE name = 'last'"
run 0 store rebuild-registry "${BOTH[@]}"

step "a first volume from before a further one was added: the others prove it, whoever is asked"
rm -f early0.plx early1.plx
run 0 store format early --volume "$DIR/early0.plx" --size 64M --extent-size 1M
head -c 40M /dev/urandom >most
run 0 vdi import most early/a
cp --sparse=always early0.plx early0.old
run 0 store add-volume early "$DIR/early1.plx" --size 64M
run 0 vdi import most early/b
cp early0.old early0.plx
for words in "info early" "check early" "rebuild-registry early" \
    "rebuild-registry --volume $DIR/early0.plx --volume $DIR/early1.plx"; do
    # shellcheck disable=SC2086 # words
    run 5 store $words
    says err "went back to an older state"
    says err "put the newer one back"
done

step "a further volume from before it grew: its newer state is asked for before anything that gives up what lies there"
rm -f grown?.plx
run 0 store format grown --volume "$DIR/grown0.plx" --size 64M --extent-size 1M
run 0 store add-volume grown "$DIR/grown1.plx" --size 64M
run 0 vdi import most grown/a
cp grown0.plx grown0.old
cp --sparse=always grown1.plx grown1.old
truncate -s 128M grown1.plx
run 0 store grow grown
run 0 vdi import most grown/b
run 0 vdi import most grown/c
cp --sparse=always grown1.plx grown1.new
cp --sparse=always grown1.old grown1.plx
keep_number grown1.new grown1.plx
fails 1 vdi create grown/d --size 1M
says err "grown1.plx: the registry says that extents 64 to 191 lie there"
says err "put the whole volume back first; only if there is none, 'parallax store rebuild-registry grown'"
truncate -s 128M grown1.plx
fails 5 vdi create grown/d --size 1M
says err "or the volume went back to an older state; if there is a newer one, put it back first"
run 5 store check grown
says out "if there is a newer one, put it back first; 'parallax store grow grown' writes it again"
cp --sparse=always grown1.plx grown1.before
for dry in "" --dry-run; do
    # shellcheck disable=SC2086 # no word, or one
    fails 5 store grow grown $dry
    says err "grown1.plx went back to an older state, for extent "
    says err "put the newer one back"
done
same grown1.before grown1.plx
cp --sparse=always grown1.new grown1.plx
run 0 store check grown --data
run 0 vdi export grown/c back --force
same back most

step "a first volume from before a further one grew: what is there is not collected, nor given out"
cp grown0.plx grown0.new
cp grown0.old grown0.plx
keep_number grown0.new grown0.plx
for words in "store grow grown" "gc grown" "vdi import most grown/d"; do
    # shellcheck disable=SC2086 # words
    fails 4 $words
    says err "put the newer volume 0 back first"
done
run 5 store check grown
cp grown0.new grown0.plx
for disk in a b c; do
    run 0 vdi export grown/$disk back --force
    same back most
done
run 0 store check grown --data
step "a further volume that went back, and nobody has met what is older there: whoever opens the store is told"
rm -f old?.plx
head -c 3M /dev/urandom >little
head -c 3M /dev/urandom >later
BOTH=(--volume "$DIR/old0.plx" --volume "$DIR/old1.plx")
run 0 store format old --volume "$DIR/old0.plx" --size 64M --extent-size 1M
run 0 vdi import most old/most # the rest lies on the other one
run 0 store add-volume old "$DIR/old1.plx" --size 64M
run 0 vdi import most old/further
run 0 vdi import little old/a
cp --sparse=always old1.plx old1.old
run 0 vdi import later old/a --force # in place
cp --sparse=always old1.plx old1.new
cp --sparse=always old1.old old1.plx
cp --sparse=always old0.plx old0.before
for words in "store info old" "vdi info old/a" "vdi export old/a back --force" "vdi create old/b --size 1M" "gc old" "store grow old" \
    "snap create old/a" "store check old" "store rebuild-registry old --dry-run"; do
    # shellcheck disable=SC2086 # words
    fails 5 $words
    cat out >>err
    says err "old1.plx went back to an older state"
    says err "put the newer one back"
    says err "too late"
    says err "--i-checked-there-is-no-newer-one"
done
cp --sparse=always old0.plx old0.before
for words in old "${BOTH[*]}"; do
    # shellcheck disable=SC2086 # words
    fails 4 store rebuild-registry $words
    says err "old1.plx went back to an older state, and nothing was changed: put the newer one back"
    says err "when you have seen that there is none, add --i-checked-there-is-no-newer-one"
    same old0.before old0.plx
done
cmp old1.old old1.plx || die "what was refused has changed the volume"
cp --sparse=always old1.new old1.plx
run 0 vdi export old/a back --force
same back later
run 0 store check old --data
cp --sparse=always old1.old old1.plx
fails 5 store rebuild-registry "${BOTH[@]}" --dry-run --json
[[ $(json older_volume) == true ]] || die "wrong JSON"
fails 5 store rebuild-registry "${BOTH[@]}" --i-checked-there-is-no-newer-one
says err "old1.plx went back to an older state: what was written there since is lost"
says err "lost: virtual disk a: 768 of its 768 blocks have no checksum"
says err "it is too late to put the newer one back"
run 0 vdi export old/a mixed --force
cmp -s mixed later && die "nothing of the disk lies on the volume that went back"
cp --sparse=always old1.plx old1.taken
cp --sparse=always old1.new old1.plx # too late
fails 5 vdi export old/a back --force
says err "old1.plx went back to an older state"
cp --sparse=always old1.taken old1.plx
run 0 vdi export old/a back --force
same back mixed

step "a first volume that went back, and nothing else shows it"
cp --sparse=always old0.plx old0.old
run 0 vdi import later old/a --force
cp --sparse=always old0.plx old0.new
cp --sparse=always old0.old old0.plx
for words in "store info old" "vdi export old/a back --force" "vdi create old/b --size 1M" "store check old"; do
    # shellcheck disable=SC2086 # words
    fails 5 $words
    cat out >>err
    says err "old0.plx went back to an older state, for $DIR/old1.plx is newer"
    says err "put the newer one back"
done
cp --sparse=always old0.plx old0.old
fails 5 store rebuild-registry old --dry-run
says err "its first volume went back to an older state, and others did not: put the newer one back first"
says err "add --i-checked-there-is-no-newer-one"
same old0.old old0.plx
fails 4 store rebuild-registry old
says err "old0.plx went back to an older state, and nothing was changed"
same old0.old old0.plx
cp --sparse=always old0.new old0.plx
run 0 vdi export old/a back --force
same back later

step "a first volume from before a further one was added that holds nothing: the others prove it all the same"
rm -f early?.plx
run 0 store forget early
run 0 store format early2 --volume "$DIR/early0.plx" --size 64M --extent-size 1M
run 0 vdi import little early2/a
cp --sparse=always early0.plx early0.old
run 0 store add-volume early2 "$DIR/early1.plx" --size 64M
cp --sparse=always early0.plx early0.new
cp --sparse=always early0.old early0.plx
for words in "store info early2" "store grow early2" "vdi create early2/b --size 1M" \
    "store rebuild-registry --volume $DIR/early0.plx --volume $DIR/early1.plx"; do
    # shellcheck disable=SC2086 # words
    fails 5 $words
    says err "early0.plx"
    says err "went back to an older state"
    says err "put the newer one back"
done
cp --sparse=always early0.new early0.plx
run 0 vdi export early2/a back --force
same back little

step "numbers: a damaged one, and one that an older program did not write, prove nothing and are written again"
for slot in 2 3; do
    dd if=/dev/urandom of=early1.plx bs=4096 seek=$slot count=1 conv=notrunc status=none
    run 0 store info early2
    run 0 vdi create early2/d$slot --size 1M
done
dd if=/dev/zero of=early1.plx bs=4096 seek=2 count=2 conv=notrunc status=none
run 5 store info early2 # it has had one
echo "all is well"
