#!/bin/bash
# The members of a mirror, each by itself: damage to one of them is told while the other one is there; what a crash leaves on
# one of them is none; and no member that may have the only copy of a write is overwritten or called superfluous.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
# shellcheck source=tests/unit/ringwrites.sh
. "$SOURCE/tests/unit/ringwrites.sh"

silent() { ! grep -qF -- "$2" "$DIR/$1" || die "$1 says '$2'"; }

uuid() {
    run 0 vdi info "$1" --json
    json uuid
}

# fresh: a disk that no ring had anything of, $vdi, of which the mirror of one and two has five writes that the store lacks.
disks=0
fresh() {
    vdi=demo/disk$((++disks))
    run 0 vdi create $vdi --size 1M
    run 0 snap create $vdi
    id=$(uuid $vdi)
    ring_writes "$id" one two
}

# drained: it has them.
drained() {
    run 0 vdi set $vdi --ring off
    run 0 vdi export $vdi image --force
    has_ring_writes image
}

# spoil PATH WHICH...: of the newest segment of $id, batches by their index from 0, or its header: h.
spoil() {
    python3 - "$id" "$@" <<'END' || die "nothing to damage in $1"
import struct, sys, uuid
disk = uuid.UUID(sys.argv[1]).bytes
with open(sys.argv[2], "r+b") as file:
    ring, at = file.read(), 0
    heads = [at for at in range(1 << 20, len(ring), 16 << 20)
             if ring[at:at + 8] == b"PLXRSEG." and ring[at + 32:at + 48] == disk]
    head = max(heads, key=lambda at: struct.unpack_from("<Q", ring, at + 48))
    found = [at for at in range(head + 4096, min(head + (16 << 20), len(ring)), 4096) if ring[at:at + 4] == b"PLXR"]
    for which in sys.argv[3:]:
        file.seek(head + 100 if which == "h" else found[int(which)] + 100)
        file.write(b"damaged")
END
}

# checked FILE: of a ring that no command may change.
checked() {
    cp one one.before
    cp two two.before
    run "$@"
    for member in one two; do cmp -s $member $member.before || die "it has changed a member"; done
}

run 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 1M
run 0 ring create demo "$DIR/one" "$DIR/two" --size 80M

step "a mirror without damage"
fresh
checked 0 ring check demo
silent out damaged
silent out lacks
run 0 ring info demo
silent out CORRUPT
drained

step "writes that only one member can give are damage of the other one, told while both are there"
for bad in one two; do
    good=$([[ $bad == one ]] && echo two || echo one)
    fresh
    spoil $bad 0 2
    checked 5 ring check demo
    says out "$DIR/$bad: 2 of 5 writes are damaged on this member of the ring, or cannot be read there; the other one has them: 'parallax ring repair demo --with $DIR/$bad' makes it whole"
    silent out "$DIR/$good: "
    run 5 store check demo
    says out "$DIR/$bad: 2 of 5 writes"
    checked 5 ring info demo
    says out "$DIR/$bad (CORRUPT)"
    says err "the other one has them: 'parallax ring repair demo --with $DIR/$bad' makes it whole"
    run 0 ring repair demo --with "$DIR/$bad"
    run 0 ring check demo
    silent out damaged
    run 0 ring info demo --json
    [[ $(json alone) == false ]] || die "it is no mirror"
    mv "$good" away
    run 0 ring repair demo --i-checked-the-other-is-lost
    drained
    mv away "$good"
    run 0 ring repair demo --with "$DIR/$good"
done

step "so is a header; the write behind it counts as well"
fresh
spoil two h 3
checked 5 ring check demo
says out "two: 2 of 5 writes and the header of 1 segment are damaged on this member"
run 0 ring repair demo --with "$DIR/two"
run 0 ring check demo
drained

step "what a crash leaves is no damage: the newest write is on one member only, and nothing says that it was done"
for behind in one two; do
    fresh
    spoil $behind 4
    checked 0 ring check demo
    says out "$DIR/$behind lacks the newest 1 write, as a crash leaves writes of which nobody was told"
    silent out damaged
    run 0 ring info demo
    drained
done

step "damage to both, at different places: the writes are brought to the store from both, and none is overwritten"
fresh
spoil one 1
spoil two 2
checked 5 ring check demo
says out "one: 1 of 5 writes"
says out "two: 1 of 5 writes"
says out "'parallax vdi set demo/VDI --ring off' for each virtual disk brings the writes to the store, from both"
checked 5 ring repair demo --with "$DIR/two"
says err "lacks others itself"
drained
run 0 ring check demo

step "a member that was left by somebody's word may have the only copy of a write: it is not called superfluous, nor overwritten"
for bad in one two; do
    good=$([[ $bad == one ]] && echo two || echo one)
    fresh
    spoil $bad 4
    mv "$good" away
    cp $bad unrepaired
    run 4 ring repair demo --with "$DIR/away" --i-checked-the-other-is-lost
    says err "away has newer writes of disk$disks than the ring and the store, up to write 5"
    cmp -s $bad unrepaired || die "the ring has left it all the same"
    run 0 ring repair demo --i-checked-the-other-is-lost
    mv away "$good"
    for drained in no yes later; do
        [[ $drained != yes ]] || run 0 vdi set $vdi --ring off
        # With other writes under the same numbers.
        [[ $drained != later ]] || "$RING_FORGE" append "$id" 9 7 $bad || die "the ring cannot be used"
        run 3 store scan "$good"
        says err "which went on without it by the operator's word: nobody knows whether the ring has all that it holds, so do not delete it before the data is known to be right; 'parallax ring repair demo --with $DIR/$good' makes it one again, unless it has newer writes"
        cp "$good" good.before
        run 4 ring repair demo --with "$DIR/$good"
        says err "$good has newer writes of disk$disks than the ring and the store, up to write 5: they are lost if the ring is copied to it. If they are not needed, add --force; to use it instead of $DIR/$bad: move that one away"
        cmp -s "$good" good.before || die "it was changed"
    done
    run 0 ring repair demo --with "$DIR/$good" --force
    run 0 ring check demo
done

step "a damaged survivor: the word is taken, and it is said that the other one may be the good one, which can be used again"
fresh
spoil two 1
mv one away
run 0 ring repair demo --i-checked-the-other-is-lost
says err "$vdi: this member by itself cannot be used for it, and the other one may have what is damaged here, so keep that one, if it is found"
run 5 vdi set $vdi --ring off
mv away one
mv two away
run 0 ring create demo "$DIR/one" --i-checked-the-other-is-lost
drained
run 0 ring repair demo --with "$DIR/two" --size 80M
rm away

step "one that has nothing newer is copied to without that"
fresh
mv one away
run 0 ring repair demo --i-checked-the-other-is-lost
mv away one
run 3 store scan one
says err "nobody knows whether the ring has all that it holds"
run 0 ring repair demo --with "$DIR/one"
drained

step "what is damaged is left without anybody's word, for the other one has all of it"
rm one two state/rings/*.json
run 0 ring create demo "$DIR/one" "$DIR/two" --size 80M
fresh
spoil one 2
cp one left
run 0 ring repair demo --with "$DIR/one"
run 3 store scan left
says err "went on without it and has all that it holds, so it may be deleted"
drained
run 0 ring check demo

step "the state directory is lost, and a member with it: the one that is left is taken up"
for lost in one two; do
    left=$([[ $lost == one ]] && echo two || echo one)
    fresh
    rm state/rings/*.json
    mv $lost away
    run 4 ring create demo "$DIR/$left"
    says err "$left is one of two members of a ring of store demo; give both to take the ring up again; if the other one is lost for good, give this one only, and add --i-checked-the-other-is-lost"
    run 4 ring create demo "$DIR/$left" "$DIR/new" --size 80M
    says err "if that is lost for good, give this one only, and add --i-checked-the-other-is-lost"
    [[ ! -e new ]] || die "a file was made"
    run 3 ring repair demo --with "$DIR/new" --size 80M
    says err "'parallax ring create demo MEMBER --i-checked-the-other-is-lost' goes on with it"
    run 3 store scan "$left"
    says err "if the other member is lost for good, give this one with --i-checked-the-other-is-lost"
    run 2 ring create demo "$DIR/$left" "$DIR/new" --size 80M --i-checked-the-other-is-lost
    run 3 ring create demo "$DIR/new" --size 80M --i-checked-the-other-is-lost
    [[ ! -e new && -z $(find state/rings -name '*.json') ]] || die "something was made"
    run 0 ring create demo "$DIR/$left" --i-checked-the-other-is-lost
    says err "this host's ring on $DIR/$left is known again"
    says err "the ring goes on with this member alone; 'parallax ring repair demo --with PATH' gives it another one"
    run 0 ring info demo --json
    [[ $(json alone) == true ]] || die "it is not alone"

    # As it is now, it needs nobody's word.
    rm state/rings/*.json
    run 0 ring create demo "$DIR/$left"
    drained
    mv away $lost
    run 0 ring repair demo --with "$DIR/$lost"
done

step "a member that lacks a disk's newest writes is not taken up by itself"
fresh
cp two older
drained
"$RING_FORGE" append "$id" 60 5 one two || die "the ring cannot be used"
"$RING_FORGE" mark demo.plx "$id" one || die "the disk cannot be marked"
rm state/rings/*.json
mv one newest
cp older older.before
run 4 ring create demo "$DIR/older" --i-checked-the-other-is-lost
says err "older lacks the newest writes of disk$disks: bring the other member back, or give these writes up first with 'parallax ring discard demo/disk$disks'"
cmp -s older older.before || die "it was changed"
run 0 ring create demo "$DIR/two" --i-checked-the-other-is-lost
mv newest one
run 0 ring repair demo --with "$DIR/one"

step "one that was left by a word is used instead, as the refusal to overwrite it says"
fresh
spoil one 4
mv two away
run 0 ring repair demo --i-checked-the-other-is-lost
mv away two
run 4 ring repair demo --with "$DIR/two"
says err "to use it instead of $DIR/one: move that one away, then 'parallax ring create demo $DIR/two --i-checked-the-other-is-lost'"
mv one away
run 0 ring create demo "$DIR/two" --i-checked-the-other-is-lost
drained

step "a member that the ring went on without is no pair with the other one"
# anew: a mirror of one and two that has nothing.
anew() {
    for ((n = 1; n <= disks; n++)); do "$PARALLAX" ring discard demo/disk$n --also-set-aside --yes >out 2>err; done
    run 0 ring delete demo --force
    rm -f one two elsewhere
    run 0 ring create demo "$DIR/one" "$DIR/two" --size 80M
}
anew
fresh
mv two left
run 0 ring repair demo --with "$DIR/new" --size 80M --i-checked-the-other-is-lost
mv new elsewhere
run 4 ring create demo "$DIR/one" "$DIR/left"
says err "the ring of store demo went on without $DIR/left; give $DIR/one only, or with the member that took the other's place"
run 0 ring create demo "$DIR/one" "$DIR/elsewhere"
drained

step "two members, each used without the other: the better one takes the place of the one that is known"
anew
fresh
mv two away
run 0 ring repair demo --i-checked-the-other-is-lost
mv one left
mv away two
mv state/rings rings
mkdir state/rings
run 0 ring create demo "$DIR/two" --i-checked-the-other-is-lost
"$RING_FORGE" append "$id" 3 5 two || die "the ring cannot be used"
"$RING_FORGE" mark demo.plx "$id" two || die "the disk cannot be marked"
rm -r state/rings
mv rings state/rings
mv left one
run 4 snap create $vdi
run 4 ring create demo "$DIR/one" "$DIR/two"
says err "each was used without the other, so nobody can tell which one has all writes"
says err "give one of them only, with --i-checked-the-other-is-lost"
run 4 ring create demo "$DIR/two"
says err "to use it instead, move that one away and repeat this, or give it by itself with --i-checked-the-other-is-lost"
run 0 ring create demo "$DIR/two" --i-checked-the-other-is-lost
run 4 ring create demo "$DIR/one" --i-checked-the-other-is-lost
says err "$DIR/one lacks the newest writes of ${vdi#*/}"
drained

step "what is copied to when that is cut off, and what is no other member"
anew
fresh
rm state/rings/*.json
cp --sparse=always one kept
run 1 ring create demo "$DIR/one" "$DIR/kept"
says err "are copies of one member of a ring of store demo"
truncate -s 80M blank
run 4 ring create demo "$DIR/one" "$DIR/blank"
says err "$DIR/one is one of two members of a ring of store demo, and the other path is not its other one: $DIR/blank: there is no ring; if"
run 0 ring create demo "$DIR/one" "$DIR/two"
drained
echo "all is well"
