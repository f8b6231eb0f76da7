#!/bin/bash
# A virtual disk that uses this host's ring: what was acknowledged is found again after its process was killed, by
# whatever command opens the disk; without the ring, or with an older copy of it, the disk is not used.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${RING_FORGE:?the program that fills rings}" "${RING_BURST:?the program that dies while it writes through a ring}"
: "${PARALLAX_STAGED:?the path of the staged command}"
begun_ns=$(date +%s%N)
bursts=0
HELD=600 # so many writes of a burst are acknowledged while nothing gets to the store

# lacking FILE [LOG]: how many of the blocks that a burst wrote, by its log, do not hold in FILE what was acknowledged last.
# Whatever they hold: none holds a part of a write only, and none an older one than blocks that were written later do.
lacking() {
    python3 - "$1" "${2:-written}" <<'END' || die "$1 is not what the disk was at any time"
import os, struct, sys
image = os.open(sys.argv[1], os.O_RDONLY)
submitted, acknowledged, found = {}, {}, {}
for line in open(sys.argv[2]):
    what, block, number = line.split()
    if what != "h":
        submitted.setdefault(int(block), []).append(int(number))
    if what == "a":
        acknowledged[int(block)] = int(number)
for block, numbers in submitted.items():
    content = os.pread(image, 4096, block * 4096)
    number = struct.unpack_from("<Q", content)[0]
    if number in numbers and content != content[:8] * 512:
        sys.exit(f"block {block} holds a part of write {number}")
    found[block] = number if number in numbers else 0
for block, numbers in submitted.items():
    missed = [number for number in numbers if found[block] < number <= max(found.values()) - 16] # in flight at once
    if missed:
        sys.exit(f"block {block} lacks write {missed[0]}, and later ones are there")
print(sum(found[block] < number for block, number in acknowledged.items()))
END
}

# all_found FILE [LOG]: it holds everything that the burst was told to be written.
all_found() {
    local lacks
    lacks=$(lacking "$@") || exit 1
    [[ $lacks == 0 ]] || die "$1 lacks $lacks blocks that were acknowledged"
}

# burst: somebody writes through the ring and is killed. The store as it is then, in undrained, lacks $lacked of the blocks
# that were acknowledged.
burst() {
    local status
    ((bursts++))
    status=$(exec 2>/dev/null && "$RING_BURST" demo web written ${bursts}000000 8192 1000 $HELD >burst.out 2>burst.err; echo $?)
    [[ $status == 137 ]] || die "the burst ended with $status: $(<burst.err)"
    run 0 vdi export demo/web undrained --without-ring --force -q
    lacked=$(lacking undrained) || exit 1
    # Of writes to one block only the last one counts.
    ((lacked >= HELD / 2)) || die "the store lacks $lacked blocks of $HELD that were written while it was held"
}

# contents FILE: what the disk holds, all of it.
contents() {
    run 0 snap create demo/web
    run 0 vdi export demo/web "$1" --force
}

# keep FILES: as they are now, for `back`, which brings them back: each stays the file that it is, for a store in another
# file may be open there, which takes 10 s to rule out.
keep() {
    files=("$@")
    for file in "${files[@]}"; do cp --sparse=always "$file" "${file##*/}.before" || die "$file is not there"; done
}
back() {
    for file in "${files[@]}"; do cp --sparse=always "${file##*/}.before" "$file"; done
}

# submissions WORDS...: how often the command hands something to a device or file, behind `back`: $total.
submissions() {
    back
    PARALLAX=$PARALLAX_STAGED PLX_STAGE_COUNT=$DIR/passed run 0 "$@"
    total=$(<passed)
    ((total > 20)) || die "parallax $*: $total submissions"
}

# killed AT WORDS...: behind `back`, the command is killed with that submission: status is 0 if it was through before.
killed() {
    local at=$1
    shift
    back
    status=$(exec 2>/dev/null && PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" "$@" >out 2>err; echo $?)
    [[ $status == 0 || $status == 137 ]] || die "parallax $*, killed at $at of $total: exit status $status"
}

# turning TEST AFTER WORDS...: the command is killed at submissions in halves, until it is known from which one on TEST is true
# of what the kill leaves: $turn. AFTER is done behind each kill. There are kills on both sides of it.
turning() {
    local holds=$1 after=$2 low=0 high=$total at met=0
    shift 2
    while ((high - low > 1)); do
        at=$(((low + high) / 2))
        killed $at "$@"
        if "$holds"; then
            high=$at
            [[ $status == 0 ]] || ((met++))
        else
            low=$at
        fi
        "$after"
    done
    ((met && low)) || die "parallax $*: no kill has met it on both sides of '$holds' ($low, $high of $total)"
    turn=$high
}

# needs_ring, needs_no_ring: by its record.
needs_ring() {
    run 0 vdi info demo/web --json
    [[ $(json ring_needed) == true ]]
}
needs_no_ring() { ! needs_ring; }

run 0 store format demo --volume "$DIR/demo.plx" --size 2G # each burst fills new blocks, which snapshots keep
run 0 vdi create demo/web --size 64M

step "only a host with a ring can use one"
run 3 vdi set demo/web --ring on
says err "'parallax ring create demo PATH' makes one"
run 2 vdi set demo/web --ring maybe
run 0 vdi set demo/web --ring off
run 0 ring create demo "$DIR/one" --size 80M
run 0 vdi set demo/web --ring on --json
[[ $(json ring_setting) == on && $(json ring_needed) == false ]] || die "the setting is not kept"

step "who ends in order leaves everything on the store, and the ring empty"
run 0 vdi bench demo/web --rw write --size 32M --runtime 1
run 0 ring info demo --json
[[ $(json free_bytes) == $(json size_bytes) && $(json disks) == "[]" ]] || die "the ring is not empty"
run 0 vdi info demo/web --json
[[ $(json ring_needed) == false ]] || die "the disk still needs the ring"
run 0 snap create demo/web@before
run 0 vdi export demo/web@before before --force

step "after a kill the disk needs the ring, and everybody says so"
burst
run 0 vdi info demo/web
says out "on, and a ring may have its newest writes"
for words in "" -q --json; do
    # shellcheck disable=SC2086 # words
    run 0 vdi export demo/web behind --without-ring --force $words
    says err "its newest writes may lie on a write-back ring only"
done
same behind undrained
for file in behind -; do # a backup is not to lack them unnoticed
    run 4 vdi export demo/web "$file" --force
    says err "its newest writes may lie on a write-back ring only, and the image would lack them"
    says err "'parallax snap create demo/web' brings them to the store; --without-ring exports"
    [[ ! -s out ]] || die "something was exported"
    same behind undrained
done
run 0 vdi export demo/web@before earlier --without-ring
same earlier before
[[ ! -s err || $(<err) == "exported "* ]] || die "a snapshot that the store has is warned of"
rm earlier
run 0 cdp status demo/web --json
[[ $(json ring) == "on, and a ring may have its newest writes" && $(json ring_setting) == on && $(json ring_needed) == true ]] ||
    die "'cdp status' does not show the ring"
run 0 diff demo/web@before demo/web
says err "its newest writes may lie on a write-back ring only"

step "what is older than the writes on the ring is read and cloned without them"
run 0 vdi clone demo/web@before demo/copy
run 0 vdi export demo/copy copy --force
same before copy
run 0 diff demo/web@before demo/copy --json
[[ $(<out) == "[]" ]] || die "the clone differs from its snapshot"
needs_ring || die "a clone has drained the ring"
run 0 vdi delete demo/copy --yes
run 0 store check demo --data
keep demo.plx one

step "what is on the ring is checked"
run 0 ring check demo
run 0 ring check demo --json
[[ $(json records) -gt 0 && $(json findings 0 vdi) == web ]] || die "the check does not see the writes"
run 0 store check demo
says out "are on this host's ring and not on the store yet"

step "the store is not given up while a ring has what it lacks"
run 4 store release demo
says err "'parallax vdi set demo/web --ring off' brings them to the store"

step "the next command that writes brings everything to the store"
contents first
all_found first
run 0 snap create demo/web
run 0 vdi clone "$(<out)" demo/copy
run 0 vdi export demo/copy copy --force
same first copy
run 0 vdi delete demo/copy --yes
run 0 vdi info demo/web --json
[[ $(json ring_needed) == false ]] || die "the disk still needs the ring"
run 0 ring info demo --json
[[ $(json disks) == "[]" ]] || die "something is left on the ring"

step "the same from a copy of store and ring; 'vdi set --ring off' does it, too"
back
run 0 vdi set demo/web --ring off
says err "the store acknowledges its writes, and has all of them"
contents second
same first second

step "killed while it is brought to the store: it begins anew"
some_drained() {
    lacks=$(lacking left) || exit 1
    ((lacks < lacked))
}
drained_more() {
    run 0 vdi export demo/web left --without-ring --force -q
    some_drained
}
begins_anew() {
    contents third
    same first third
}
submissions vdi set demo/web --ring off
turning drained_more begins_anew vdi set demo/web --ring off
begun=$turn
turning needs_no_ring begins_anew vdi set demo/web --ring off
ended=$turn
((begun < ended)) || die "the mark was gone before anything was drained"
parts=() # when it was killed there a part was drained
for i in {0..5}; do
    at=$((begun + i * (ended - begun) / 6))
    killed $at vdi set demo/web --ring off
    needs_ring || continue
    if drained_more && ((lacks > 0)); then parts+=("$at"); fi
    begins_anew
done
((${#parts[@]})) || die "no kill has met it while it had drained a part"

step "an interrupt ends that, what is drained stays on the store, and the next command goes on"
# interrupted AT WORDS...
interrupted() {
    local at=$1
    shift
    back
    PARALLAX=$PARALLAX_STAGED PLX_STAGE_SIGNAL=2 PLX_STAGE_AT=$at run 130 "$@"
    says err "interrupted; what was drained of the writes of demo/web from this host's ring is on the store"
    needs_ring || die "all was drained"
}
interrupted "${parts[${#parts[@]} / 2]}" vdi set demo/web --ring off
drained_more || die "nothing was drained"
begins_anew
interrupted 1 snap create demo/web # before the draining begins
begins_anew
back
typed "" vdi set demo/web --ring off || die "it does not end on a terminal"
says out "draining the ring:"

step "a registry that is made anew knows the setting, and the disk needs the ring as before"
back
run 0 store rebuild-registry demo
run 0 vdi info demo/web --json
[[ $(json ring_setting) == on && $(json ring_needed) == true ]] || die "the rebuild has lost what the ring has to do with the disk"
contents third
same first third

step "taken over by another host, the disk is refused there; whoever has the ring finds everything"
back
mkdir other
tee other/host-id </proc/sys/kernel/random/uuid >other/boot
# beta STATUS WORDS...: on another host.
beta() {
    PARALLAX=$PARALLAX_STAGED PLX_STAGE_HOST=beta PLX_STAGE_BOOT=$DIR/other/boot PARALLAX_STATE_DIR=$DIR/other run "$@"
}
takes=(store take-over --volume "$DIR/demo.plx" --from "$(hostname)")
beta 0 "${takes[@]}" --dry-run
says err "of host $(hostname), or of one that had the store before, and it would not be used without that ring: start that host, and leave the store to it; or bring the ring's device here"
says err "or 'parallax ring discard demo/web' gives these writes up afterwards"
beta 0 "${takes[@]}" --dry-run --json
[[ $(json ring_needed) == '["web"]' ]] || die "the JSON does not name the disk"
beta 0 "${takes[@]}" --i-checked-it-is-off
says err "demo/web: its newest writes may lie on write-back ring"
says err "start that host and give the store back ('parallax store release demo' here, 'parallax store import' there); or bring the ring's device here"
says err "or 'parallax ring discard demo/web' gives these writes up"
beta 0 store take-over demo --from "$(hostname)" --dry-run
says err "demo/web: its newest writes may lie on write-back ring"
beta 4 snap create demo/web
says err "its newest writes"
beta 0 vdi info demo/web --json
[[ $(json ring_needed) == true ]] || die "the other host has let go of the mark"
run 0 store take-over demo --from beta --i-checked-it-is-off
! grep -q "write-back ring" err || die "a ring is said to be needed that is here"
contents third
same first third

step "that host gives the store back to the one with the ring, which finds everything"
back
rm -r other/stores
beta 0 "${takes[@]}" --i-checked-it-is-off
beta 0 store release demo --dry-run
beta 0 store release demo
run 0 store import --volume "$DIR/demo.plx"
contents third
same first third

step "without the ring the disk is recovered, and not used; other disks are"
back
mv one away
run 0 vdi create demo/db --size 1M
run 4 snap create demo/web
says err "its newest writes lie in this host's ring on $DIR/one"
run 4 vdi bench demo/web --rw randwrite --force --runtime 1
run 0 snap create demo/db
run 5 store check demo
says out "if it lies elsewhere now: 'parallax ring create demo PATH'; if it is lost for good: 'parallax ring discard demo/VDI'"
run 5 ring check demo --json
[[ $(json records) == null && $(json bytes) == null ]] || die "what is on a ring that is away was counted"
mv away one
run 0 store check demo --data
contents fourth
same first fourth

step "what a lost ring has can be given up: the disk is what the store has of it"
# discards_no_more: the same command line again leaves what was set aside, however it is given.
why_aside="they were given up, or a newer state of the store needs them (then put that one back)"
discards_no_more() {
    local words aside
    run 0 ring info demo --json
    aside=$(json disks 0 aside)
    ((aside > 0)) || die "nothing is set aside"
    run 0 ring check demo
    says out "$aside writes on this host's ring were set aside: $why_aside; 'parallax ring discard demo/web --also-set-aside' erases them"
    for words in --yes "" --dry-run --yes; do
        # shellcheck disable=SC2086 # words
        run 0 ring discard demo/web $words
        says err "$aside writes of it that were set aside on this host's ring: $why_aside"
        says err "'parallax ring discard demo/web --also-set-aside' erases them"
        run 0 ring info demo --json
        [[ $(json disks 0 aside) == "$aside" ]] || die "what was set aside has gone"
    done
    run 0 ring discard demo/web --yes --json
    [[ $(json discarded) == false && $(json kept) == "$aside" ]] || die "it is not said what stays"
}
for lost in 1 0; do # the ring is away, or there
    back
    ((lost)) && mv one away
    cp --sparse=always demo.plx as.it.was
    run 4 ring discard demo/web
    says err "nothing was changed. --yes discards "
    run 0 ring discard demo/web --dry-run
    if ((lost)); then says err "nobody knows how many they are. If that ring still exists, bring it back"; else says err "the ring has and the store lacks"; fi
    same demo.plx as.it.was
    run 0 ring discard demo/web --yes
    contents given.up
    same given.up behind
    if ((lost)); then
        mv away one
        run 0 ring info demo --json
        [[ $(json disks 0 records) == 0 && $(json disks 0 aside) -gt 0 ]] || die "a disk that gave them up claims them"
        from=$(json disks 0 aside_from_ns) to=$(json disks 0 aside_to_ns)
        ((begun_ns < from && from <= to && to < $(date +%s%N))) || die "they are said to be from $from to $to"
        contents given.up
        same given.up behind
        discards_no_more
        run 0 ring discard demo/web --also-set-aside --dry-run
        says err "would erase"
        run 4 ring discard demo/web --also-set-aside
        says err "--yes erases"
        run 0 ring discard demo/web --yes --also-set-aside
    fi
    run 0 ring info demo --json
    [[ $(json disks) == "[]" ]] || die "something is left on the ring"
    run 0 ring discard demo/web --yes
    says err "there is nothing to discard"
done

step "killed while it is given up: it is repeated"
on_ring() {
    run 0 ring info demo --json
    [[ $(json disks) != "[]" ]]
}
given_up() {
    run 0 ring discard demo/web --yes
    run 0 ring discard demo/web --yes --also-set-aside
    contents given.up
    same given.up behind
    on_ring && die "something is left on the ring"
    return 0
}
submissions ring discard demo/web --yes
turning needs_no_ring given_up ring discard demo/web --yes
between=0 # ATTACH-21
for i in {0..5}; do
    at=$((turn + i * (total - turn) / 6))
    killed $at ring discard demo/web --yes
    if needs_no_ring && on_ring; then ((between++)); fi
    given_up
done
((between)) || die "no kill has met it between record and ring"

step "an older copy of the ring is refused, each time; the newer one is not changed by that"
burst
cp --sparse=always one newer
cp one.before one
for _ in 1 2 3; do
    run 4 snap create demo/web
    says err "an older copy of the ring"
    says err "put the newer ring, or the newer store, back"
done
run 5 ring check demo
says out "its writes on the ring cannot be used: $DIR/one: this is an older copy of the ring"
mv newer one
contents third
all_found third

step "beside a process that has the ring open: who reads says that it may have more, what is older needs none of it"
run 0 snap create demo/web@older
"$PARALLAX" vdi bench demo/web --rw randwrite --size 8M --bs 4k --runtime 120 --force >bench.out 2>&1 &
bench=$!
until [[ $(ls -l /proc/$bench/fd) == *"$DIR/one"* ]] && needs_ring; do # it has the ring, and the disk's mark says so
    kill -0 $bench || die "the process has ended: $(<bench.out)"
    sleep 0.1
done
for way in "" --without-ring; do
    # shellcheck disable=SC2086 # words
    run 4 vdi export demo/web live --force --wait 0 $way
    says err "demo/web is open in a parallax command" # and of no one moment
done
# What is written meanwhile may be refused.
timeout -k 5 300 "$PARALLAX" diff demo/web@older demo/web --json >out 2>err </dev/null
says err "its newest writes may lie on a write-back ring only"
run 0 vdi export demo/web@older older --force
all_found older
run 0 vdi clone demo/web@older demo/copy
run 0 diff demo/web@older demo/copy --json
[[ $(<out) == "[]" ]] || die "the clone differs from its snapshot"
run 0 vdi delete demo/copy --yes
run 2 vdi clone demo/web demo/copy # of now: a snapshot comes first, and only that process could take it
says err "take one first: 'parallax snap create demo/web@LABEL'"
run 4 snap create demo/web --wait 0
says err "in use by a parallax command (pid $bench)"
kill -STOP $bench # the store gets nothing meanwhile
run 0 vdi clone demo/web@-0s demo/copy
says err "demo/web: newer snapshots may lie on a ring"
kill -CONT $bench
run 0 diff demo/web@older demo/copy --json
[[ $(<out) == "[]" ]] || die "the clone has more than the newest snapshot on the store"
run 0 vdi delete demo/copy --yes
for words in "store check demo" "ring check demo"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
    says out "virtual disk web: its newest writes may lie on this host's ring, which a handler or a command has open"
done
run 4 store release demo --wait 0
beta 4 store take-over --volume "$DIR/demo.plx" --from "$(hostname)" --i-checked-it-is-off
says err "in use by host"
[[ -e /proc/$bench ]] || die "the process has ended: $(<bench.out)"

step "a copy of the ring that was made then is refused, for the store has more of it"
cp --sparse=always one copied
sleep 1
kill -KILL $bench
wait $bench 2>/dev/null
cp --sparse=always one newer
cp copied one
for _ in 1 2 3; do
    run 5 snap create demo/web
    says err "which the store has from this ring, is not there"
done
run 5 store check demo
says out "no better copy of the ring is left"
mv newer one
run 0 snap create demo/web
run 0 store check demo

step "a store that is put back to an older state does not cost the newer one what the ring has"
run 0 vdi set demo/web --ring off
run 0 vdi set demo/web --ring on
cp --sparse=always demo.plx store.old
burst
cp --sparse=always demo.plx store.new
cp --sparse=always store.old demo.plx
for _ in 1 2 3 4; do
    run 0 vdi bench demo/web --rw randwrite --size 1M --runtime 1 --force
    says err "continuing without its ring"
done
run 0 ring info demo --json
[[ $(json disks 0 aside) -gt 0 ]] || die "the writes are not set aside"
cp --sparse=always store.new demo.plx
run 0 vdi info demo/web --json
[[ $(json ring_needed) == true ]] || die "the newer store does not need the ring"
run 0 ring check demo
contents third
all_found third
rm store.old store.new third

step "a store that is put back gets nothing of the future that was given up, whose numbers it gives out again"
run 0 vdi bench demo/web --rw randwrite --size 32M --runtime 1 --force
run 0 vdi export demo/web before --force
cp --sparse=always demo.plx store.old
for depth in 1 2; do # so slowly that the ring is not filled: what it has first stays
    run 0 vdi bench demo/web --rw randwrite --size 32M --runtime 1 --iodepth $depth --force # and ends in order
    run 0 ring info demo --json
    [[ $(json disks) == "[]" ]] || die "the ring is not empty"
    run 0 vdi export demo/web given.up --force
    ! cmp -s before given.up || die "nothing was written"
    cp --sparse=always store.old demo.plx
    "$PARALLAX" vdi bench demo/web --rw randread --size 32M --runtime 60 --force >bench.out 2>bench.err &
    pid=$!
    for _ in {1..300}; do # until the ring is on
        run 0 vdi info demo/web --json
        [[ $(json ring_needed) == true ]] && break
        sleep 0.1
    done
    kill -KILL "$pid"
    wait "$pid" 2>wait.err
    run 0 vdi info demo/web --json
    [[ $(json ring_needed) == true ]] || die "the ring was never on"
    run 0 vdi set demo/web --ring off
    run 0 vdi export demo/web back --force
    same before back
    run 0 vdi set demo/web --ring on
done

step "nor is it refused for what that future has left"
run 0 vdi bench demo/web --rw randwrite --size 32M --runtime 1 --iodepth 2 --force
cp --sparse=always store.old demo.plx
burst
run 0 ring check demo
run 0 vdi set demo/web --ring off
run 0 vdi export demo/web third --force
all_found third
run 0 vdi set demo/web --ring on
run 0 store check demo --data

step "what is discarded of a store that was put back is its own; what the newer one needs stays, until it is discarded, too"
burst
cp --sparse=always demo.plx store.old # which needs what the ring has now
run 0 vdi set demo/web --ring off
run 0 vdi set demo/web --ring on
burst
cp --sparse=always demo.plx store.new
cp --sparse=always one one.new
contents newest
all_found newest
cp --sparse=always store.old demo.plx
cp --sparse=always one.new one
run 4 snap create demo/web
run 4 ring discard demo/web
says err "other writes on this host's ring, which this state of the store does not know, stay there; --also-set-aside discards them."
run 0 ring discard demo/web --dry-run --json
kept=$(json kept)
((kept > 0)) || die "nothing is said to stay"
run 0 ring discard demo/web --yes
run 0 snap create demo/web
run 0 ring info demo --json
[[ $(json disks 0 needed) == false && $(json disks 0 aside) -ge $kept ]] || die "it did not stay"
discards_no_more
cp --sparse=always store.new demo.plx
contents third
same newest third
cp --sparse=always store.old demo.plx
cp --sparse=always one.new one
run 0 ring discard demo/web --yes --also-set-aside # at once
says err "other writes on this host's ring, which this state of the store does not know, go as well"
run 0 ring info demo --json
[[ $(json disks) == "[]" ]] || die "something is left on the ring"
rm store.old store.new one.new third newest before back

step "a store without room for what the ring has: said at once, and as it is"
run 0 store format small --volume "$DIR/small.plx" --size 160M --extent-size 1M
run 0 vdi create small/web --size 64M
run 0 vdi create small/other --size 64M
run 0 ring create small "$DIR/tiny" --size 80M
run 0 vdi set small/web --ring on
status=$(exec 2>/dev/null && "$RING_BURST" small web taken 1 8192 1000 $HELD >burst.out 2>burst.err; echo $?)
[[ $status == 137 ]] || die "the burst ended with $status: $(<burst.err)"
# fill BYTES: so many are left at most.
fill() {
    for _ in {1..60}; do
        run 0 vdi bench small/other --rw write --bs 256k --size 16M --runtime 1 --force
        run 0 snap create small/other
        run 0 store info small --json
        (($(json available_bytes) > $1)) || return 0
    done
    die "the store does not get full"
}
fill 20000000 # another disk has taken what was promised to the dead process
run 6 vdi bench small/other --rw write --bs 256k --size 64M --runtime 120 --force
for words in "snap create small/web" "vdi set small/web --ring off"; do
    begun=$SECONDS
    # shellcheck disable=SC2086 # words
    run 6 $words
    ((SECONDS - begun < 40)) || die "$words: took $((SECONDS - begun)) s"
    says err "its writes on this host's ring could not be drained to the store first"
    says err "make the store larger"
done
run 0 snap delete small/other@.. # which makes the room
run 0 vdi set small/web --ring off
run 0 vdi export small/web filled --force
all_found filled taken

run 0 snap create small/web
run 0 store check small --data
run 0 ring delete small
rm small.plx tiny

step "a disk with the setting goes on without a ring that is away, and says so"
mv one away
run 0 vdi bench demo/web --rw randwrite --size 32M --runtime 1 --force
says err "continuing without its ring"
mv away one

step "damage to a write that the store lacks: found by a check, and the disk refused, each time; all else goes on"
run 0 vdi create demo/fresh --size 1M
run 0 snap create demo/fresh
run 0 vdi info demo/fresh --json
fresh=$(json uuid)
"$RING_FORGE" append "$fresh" 1 5 "$DIR/one" || die "the ring cannot be filled"
"$RING_FORGE" mark "$DIR/demo.plx" "$fresh" "$DIR/one" || die "the disk cannot be marked"
cp --sparse=always one one.sound
python3 - one <<'END'
import sys
with open(sys.argv[1], "r+b") as ring:
    ring.seek(ring.read().index(b"a write that was acknowledged"))
    ring.write(b"A")
END
run 5 ring check demo
says out "its writes on the ring cannot be used: $DIR/one: writes that were acknowledged are missing"
run 5 store check demo
for _ in 1 2 3; do
    run 5 snap create demo/fresh
    says err "writes that were acknowledged are missing"
done
run 0 snap create demo/web
run 0 store info demo --json
[[ $(json doubt) == null ]] || die "a damaged ring puts the registry in doubt"
mv one.sound one
run 0 snap create demo/fresh
run 0 vdi export demo/fresh fresh --force
[[ $(head -c 29 fresh) == "a write that was acknowledged" ]] || die "a write is missing"

step "a handler that is killed while it drains, or whose disk has stopped, has not brought everything to the store"
cat >stand-in <<'PYTHON'
import json, os, socket, sys
path, how = sys.argv[1:]
os.makedirs(os.path.dirname(path), exist_ok=True)
if os.path.exists(path):
    os.unlink(path)
listener = socket.socket(socket.AF_UNIX)
listener.bind(path)
listener.listen()
answer = {"vdi": "web", "on": how in ("drains", "waits"), "use": "off", "automatic": False, "turning": how == "turning", "records": 1, "bytes": 4096,
          "waited_ns": 0, "memory": 0, "drained_bytes": 0, "full": False, "label": "before", "seq": 1, "time_ns": 1}
asked = open("asked", "w", buffering=1)
left = 30
while True:
    connection = listener.accept()[0]
    for line in connection.makefile():
        request = json.loads(line)
        print(*(request[key] for key in ("command", "use") if key in request), file=asked)
        answer["use"] = request.get("use", "off")
        if request["command"] == "ring" and how in ("drains", "waits"):
            answer["on"], answer["turning"] = answer["use"] == "on", answer["use"] == "off"
        if how == "drains" and answer["turning"]:
            left -= 1
            answer["bytes"], answer["turning"] = left << 20, left > 0
        connection.sendall(json.dumps({"ok": True, "result": answer}).encode() + b"\n")
PYTHON
# held HOW: a process has the disk open and writes through the ring, and another one answers for it.
held() {
    "$PARALLAX" vdi bench demo/web --rw randwrite --size 32M --runtime 60 --force >bench.out 2>bench.err &
    bench=$!
    owner=
    for _ in {1..200}; do
        [[ -z $owner ]] || break
        sleep 0.1
        owner=$(registry "SELECT i.id FROM vdis v JOIN instances i ON i.id = v.owner WHERE v.name = 'web' AND i.pid = $bench")
    done
    [[ -n $owner ]] || die "nobody has the disk open"
    timeout 100 python3 stand-in "state/run/control/$owner.sock" "$1" &
    server=$!
    for _ in {1..200}; do
        [[ -S state/run/control/$owner.sock ]] && break
        sleep 0.1
    done
    sleep 0.5 # it listens, and the disk needs the ring
}
held_no_more() {
    { kill -KILL $bench; wait $bench; kill $server; wait $server; } 2>wait.err # some may be dead already
}
for how in turning stopped; do
    run 0 vdi set demo/web --ring on
    held $how
    if [[ $how == stopped ]]; then
        run 1 vdi set demo/web --ring off
        says err "has stopped, and the ring may hold writes that the store lacks"
    else
        (sleep 1 && kill -KILL $bench) &
        run 0 vdi set demo/web --ring off
        run 0 vdi info demo/web --json
        [[ $(json ring_needed) == false ]] || die "it was not waited for"
    fi
    held_no_more
done
run 0 vdi set demo/web --ring on

step "a rewind is refused while an initiator is logged in, a dry run likewise, and nothing is asked of the ring"
run 0 snap create demo/web@there
held drains
for dry in "" --dry-run; do
    # shellcheck disable=SC2086 # a word or none
    PARALLAX=$PARALLAX_STAGED PLX_STAGE_INITIATORS=iqn.2026-11.test:one run 4 rewind demo/web --to there $dry
    says err "demo/web: iqn.2026-11.test:one is logged in and would not notice; unmount and log out there first, or give --live"
done
! grep -q ring asked || die "the handler was asked: $(uniq asked | paste -sd,)"
held_no_more

step "a rewind of a disk that a handler has open drains the ring first, with progress, and turns it on again"
run 0 snap create demo/web@here
held drains
typed "" rewind demo/web --to here --live || die "it was not rewound"
says out "draining the ring:"
[[ $(uniq asked | paste -sd,) == "ring-status,ring off,ring-status,rewind,ring on" ]] || die "the handler was asked: $(uniq asked | paste -sd,)"
held_no_more
held waits # for ever
PARALLAX=$PARALLAX_STAGED run 130 rewind demo/web --to here --live &
waiting=$!
for _ in {1..200}; do
    [[ $(grep -c ring-status asked) -gt 3 ]] && break
    sleep 0.1
done
kill -INT "$(pgrep -P "$(pgrep -P "$waiting")" | head -n 1)"
wait "$waiting" || die "the interrupted rewind failed"
says err "interrupted while the ring was drained: demo/web was not rewound"
[[ $(uniq asked | tail -n 1) == "ring on" ]] || die "the ring stays off: $(uniq asked | paste -sd,)"
! grep -q rewind asked || die "the interrupted rewind went on"
held_no_more

step "so does lun delete, and turns it on again where the LUN stays"
held drains
typed "" lun delete demo/web --force && die "what was never exported is not exported any more"
says out "draining the ring:"
[[ $(uniq asked | paste -sd,) == "ring-status,ring off,ring-status,ring on" ]] || die "the handler was asked: $(uniq asked | paste -sd,)"
held_no_more
held waits
PARALLAX=$PARALLAX_STAGED run 130 lun delete demo/web --force &
waiting=$!
for _ in {1..200}; do
    [[ $(grep -c ring-status asked) -gt 3 ]] && break
    sleep 0.1
done
kill -INT "$(pgrep -P "$(pgrep -P "$waiting")" | head -n 1)"
wait "$waiting" || die "the interrupted deletion failed"
says err "interrupted while the ring was drained: demo/web is exported as before"
[[ $(uniq asked | tail -n 1) == "ring on" ]] || die "the ring stays off: $(uniq asked | paste -sd,)"
held_no_more

step "the device has lost the record of the disk's last opening: what the ring has is not set aside for that"
run 0 store format lost --volume "$DIR/lost.plx" --size 64M --extent-size 1M
run 0 vdi create lost/web --size 32M
run 0 ring create lost "$DIR/lost.ring" --size 64M
run 0 vdi set lost/web --ring on
cp --sparse=always lost.plx lost.before
status=$(exec 2>/dev/null && "$RING_BURST" lost web taken 1 8192 1000 $HELD >burst.out 2>burst.err; echo $?)
[[ $status == 137 ]] || die "the burst ended with $status: $(<burst.err)"
python3 - lost.before lost.plx <<'END'
import sys
before = open(sys.argv[1], "rb").read()
at = before.index(b"PLXVDREC") // 8192 * 8192
with open(sys.argv[2], "r+b") as volume:
    volume.seek(at)
    volume.write(before[at:at + 8192])
END
for _ in 1 2; do
    run 5 snap create lost/web
    says err "virtual disk web: its record on the store is older than what was written last: the device lost a write"
done
run 5 store check lost
run 0 vdi accept-older lost/web --yes
run 0 snap create lost/web
run 0 store check lost
run 0 ring info lost --json
[[ $(json disks) == "[]" ]] || die "the ring has what was given up"

step "a deleted disk leaves nothing on the ring"
burst
run 0 vdi delete demo/web --yes
run 0 ring info demo --json
[[ $(json free_bytes) == $(json size_bytes) ]] || die "the ring has something left of a deleted disk"
run 0 ring delete demo
run 0 store check demo --data

step "a ring that is full of what nobody claims is not taken for a full store"
run 0 vdi create demo/late --size 16M
run 0 ring create demo "$DIR/one" --force --json
for ((left = $(json size_bytes); left > 0; left -= 16 << 20)); do # a segment each
    "$RING_FORGE" append "$(</proc/sys/kernel/random/uuid)" 1 1 "$DIR/one" || die "the ring cannot be filled"
done
run 0 vdi set demo/late --ring on
run 0 vdi bench demo/late --rw randwrite --size 1M --runtime 1
says err "continuing without its ring: this host's ring has no room; 'parallax ring info demo' shows which virtual disks fill it"
run 0 ring delete demo --force
run 0 vdi delete demo/late --yes

step "two members: one is missing, and goes for lost only by the operator's word"
run 0 vdi create demo/web --size 64M
run 0 ring create demo "$DIR/one" "$DIR/two" --size 80M --force
run 0 vdi set demo/web --ring on
run 4 ring repair demo --i-checked-the-other-is-lost
says err "the ring has all its members"
burst
keep demo.plx one two
cp written written.both
contents both
all_found both
for gone in one two; do
    back
    left=$([[ $gone == one ]] && echo two || echo one)
    mv $gone away
    run 4 snap create demo/web
    says err "one of its members is missing, bring it back"
    run 4 ring repair demo --with "$DIR/three" --size 80M
    says err "add --i-checked-the-other-is-lost"
    run 0 ring repair demo --i-checked-the-other-is-lost
    says err "goes on with $DIR/$left alone"
    contents alone
    all_found alone written.both
    burst
    contents later
    all_found later

    step "$gone comes back: it is not used; then it is copied to"
    mv away $gone
    run 0 ring info demo --json
    [[ $(json alone) == true ]] || die "it counts again"
    run 0 ring repair demo --with "$DIR/$gone" --force # it may have writes that nobody was told of
    run 0 ring info demo --json
    [[ $(json alone) == false ]] || die "it is no member again"
    burst
    mv "$left" away
    run 0 ring repair demo --i-checked-the-other-is-lost
    contents later
    all_found later
    rm away
done

step "another device takes its place; killed while it is copied, the command begins anew"
run 4 ring repair demo --with "$DIR/two"
says err "is the member that is left"
printf 'of somebody' >three && truncate -s 80M three
run 4 ring repair demo --with "$DIR/three"
says err "holds data already"
keep demo.plx two three state/rings/*
copied() { ! cmp -s three three.before; }
is_copied_anew() {
    run 0 ring info demo --json
    [[ $(json alone) == false ]] || run 0 ring repair demo --with "$DIR/three" --force
    run 0 ring info demo --json
    [[ $(json alone) == false && $(<out) == *"$DIR/three"* ]] || die "it is no member"
}
submissions ring repair demo --with "$DIR/three" --force
turning copied is_copied_anew ring repair demo --with "$DIR/three" --force
partly=0
for i in {0..5}; do
    killed $((turn + i * (total - turn) / 6)) ring repair demo --with "$DIR/three" --force
    run 0 ring info demo --json
    if [[ $(json alone) == true ]] && copied; then ((partly++)); fi
    is_copied_anew
done
((partly)) || die "no kill has met it while it was copied"
burst
mv two away
run 0 ring repair demo --i-checked-the-other-is-lost
contents later
all_found later
run 0 store check demo --data

step "a member that lacks the newest writes does not go on alone, so the other one is not overwritten"
mv away two
run 0 ring repair demo --with "$DIR/two" --force
burst
cp three older
burst
mv two newest
mv older three
run 4 ring repair demo --i-checked-the-other-is-lost
says err "three lacks the newest writes of web: bring the other member back"
run 4 ring repair demo --with "$DIR/four" --size 96M
says err "three lacks the newest writes of web: bring the other member back"
[[ ! -e four ]] || die "a file was made for a copy that nobody may make"
mv newest two
mv three older
run 0 ring repair demo --i-checked-the-other-is-lost
contents later
all_found later
run 0 store check demo --data
echo "all is well"
