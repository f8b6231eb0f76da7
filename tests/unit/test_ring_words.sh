#!/bin/bash
# What commands say of rings: that a mirror has lost a member, that a ring is in use and by whom, what becomes of writes, and
# advice that works.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${RING_FORGE:?the program that fills rings}" "${PARALLAX_STAGED:?the path of the staged command}"

uuid() {
    run 0 vdi info "$1" --json
    json uuid
}
silent() { ! grep -qF -- "$2" "$DIR/$1" || die "$1 says '$2'"; }

# fresh: a disk that no ring had anything of, $vdi, and its name, $name.
fresh() {
    name=disk$((++disks))
    vdi=demo/$name
    run 0 vdi create $vdi --size 1M
    run 0 snap create $vdi
}
disks=0

# written VDI PATHS...: of a fresh one; the ring there has five writes of 4 KiB to it that the store lacks.
written() {
    local id
    id=$(uuid "$1")
    shift
    "$RING_FORGE" append "$id" 1 5 "$@" || die "the ring cannot be filled"
    "$RING_FORGE" mark "$DIR/demo.plx" "$id" "$1" || die "the disk cannot be marked"
}

# in_use VDI: a command has the disk open, and writes through the ring; until idle.
in_use() {
    "$PARALLAX" vdi bench "$1" --rw randwrite --size 1M --runtime 120 --force >bench.out 2>bench.err &
    bench=$!
    for _ in {1..200}; do
        run 0 ring info demo --json
        [[ $(json state) == "in use" ]] || { sleep 0.1 && continue; }
        run 0 vdi info "$1" --json
        [[ $(json ring_needed) == false ]] || return 0
        sleep 0.1
    done
    die "the ring is not used: $(<bench.err)"
}
idle() {
    { kill -KILL $bench; wait $bench; } 2>wait.err
}

run 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 1M
for vdi in web db; do
    run 0 vdi create demo/$vdi --size 1M
    run 0 snap create demo/$vdi
done

step "where the file system of the ring is full, no advice is about the store"
if [[ $(stat -f -c %T .) == tmpfs ]]; then # elsewhere a file of that size fills it first
    run 6 ring create demo "$DIR/huge" --size 1T
    says err "a ring lies on this host's own file system: free some there, choose another place, or give a smaller --size"
    silent err "parallax gc"
    silent err "cdp apply"
    [[ ! -e huge ]] || die "a file is left"
else
    part_skipped "a ring that its file system has no room for: no tmpfs here"
fi

step "what vdi set cannot do all of it does nothing of"
run 3 vdi set demo/web --warn-at 50% --ring on
says err "this host has no ring of store 'demo'"
run 0 vdi info demo/web --json
[[ $(json warn_at) == null && $(json ring_setting) == off ]] || die "a part of it was set"

step "a new ring: who uses it is named"
run 0 ring create demo "$DIR/one" --size 64M
silent err "has --ring"
run 0 vdi set demo/web --ring on --warn-at 50%
run 0 ring delete demo
run 0 ring create demo "$DIR/one"
says err "virtual disk demo/web has --ring on, and uses this ring from now on"
silent err "demo/db"

step "no ring of a store that there is not"
run 3 ring list nosuch
says err "this host has no ring of store 'nosuch', and knows no such store; 'parallax ring list' shows its rings, 'parallax store list' its stores"
run 3 ring info "$(cat /proc/sys/kernel/random/uuid)"
says err "and knows no such store"

step "columns that are there where they are asked for"
run 0 ring list
[[ $(head -n 1 out) != *HOST* ]] || die "a column is there that nobody asked for"
run 0 ring info demo --json
ring=$(json ring)
run 0 ring list --columns store,ring,host -q
[[ $(tr -s ' ' <out) == "demo $ring $(hostname)" ]] || die "the ring is another one"
run 0 vdi list demo
[[ $(head -n 1 out) != *RING* ]] || die "a column is there that nobody asked for"
run 0 vdi list demo --columns name,ring_setting -q
[[ $(tr -s ' ' <out | sort | paste -sd,) == "demo/db off,demo/web on" ]] || die "the setting is another one"
run 0 vdi list demo --columns uuid,ring_setting --json
[[ $(json 0 ring_setting) == off ]] || die "the setting is not in JSON"

step "a check changes nothing, and says that the store may have some of the writes already"
written demo/web "$DIR/one"
cp --sparse=always one one.before
cp --sparse=always demo.plx demo.before
for words in "ring check demo" "store check demo" "store check demo --data" "ring list" "ring info demo" "vdi info demo/web" "ring discard demo/web --dry-run"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
    same one one.before
    same demo.plx demo.before
    [[ $words != *check* ]] || says out "up to 5 writes are on this host's ring and not on the store yet; they are fewer than that if the store has got some of them, which the next opening of the disk tells"
done
says err "up to 5 writes, 40 KiB, that the ring has and the store lacks (those that the store has got by now are not counted any more)"

step "what brings writes to the store says so in a line"
run 0 vdi rename demo/web moved
says err "demo/web: brought 20 KiB of writes from this host's ring to the store, all that it lacked"
run 0 vdi rename demo/moved web
silent err "brought"
for words in "vdi resize VDI --size 2M" "snap create VDI" "vdi set VDI --ring off" "vdi resize VDI --size 3M -q"; do
    fresh
    written $vdi "$DIR/one"
    # shellcheck disable=SC2086 # words
    run 0 ${words/VDI/$vdi}
    if [[ $words == *-q ]]; then silent err brought; else says err "$vdi: brought 20 KiB of writes from this host's ring to the store, all that it lacked"; fi
    run 0 vdi info $vdi --json
    [[ $(json ring_needed) == false ]] || die "the ring is still needed"
done
run 0 vdi set demo/web --ring on

step "a ring that is in use: by whom, and what ends that"
in_use demo/web
for words in "" --also-set-aside; do
    # shellcheck disable=SC2086 # words
    run 4 ring discard demo/web $words
    says err "demo/web: nothing was changed: its newest writes are on this host's ring, which is there and in use by demo/web (command $bench on $(hostname)); 'parallax vdi set demo/web --ring off' brings them to the store"
    # shellcheck disable=SC2086 # words
    run 0 ring discard demo/web --dry-run $words
    says err "which is there and in use by demo/web (command $bench on"
done
run 0 ring discard demo/web --dry-run --json
[[ $(json discarded) == false && $(json records) == null ]] || die "what nobody looked at is counted"
run 0 ring discard demo/db
says err "there is nothing to discard"
for words in "" --dry-run --yes; do
    [[ $words == --dry-run ]] && status=0 || status=4
    # shellcheck disable=SC2086 # words
    run $status ring discard demo/db $words --also-set-aside
    says err "demo/db: nothing was changed: what was set aside may be on this host's ring, which is there and in use by demo/web"
done
for words in "ring delete demo" "ring delete demo --dry-run" "ring repair demo --with $DIR/two --size 64M"; do
    # shellcheck disable=SC2086 # words
    run 4 $words --wait 0
    says err "the ring of store demo is in use by demo/web (command $bench on $(hostname)); 'parallax vdi set STORE/VDI --ring off', given for each of these virtual disks, ends that"
done
run 4 ring delete "$DIR/one" --wait 0
says err "$DIR/one is in use: a handler, or another command, has the ring open; a handler lets go of it when 'parallax vdi set STORE/VDI --ring off'"
[[ ! -e two ]] || die "a file was made"
idle
run 0 ring discard demo/web --dry-run
silent err "in use"
run 0 vdi set demo/web --ring off

step "a ring of one member gets no other one later"
for words in "--with $DIR/two --size 64M" --i-checked-the-other-is-lost; do
    # shellcheck disable=SC2086 # words
    run 4 ring repair demo $words
    says err "the ring was made with one member, and another one cannot be added to it"
    says err "then 'parallax ring delete demo', then 'parallax ring create demo PATH PATH'"
    [[ ! -e two ]] || die "a file was made"
done

step "a ring that is gone and needed: the first answer has all steps"
fresh
written $vdi "$DIR/one"
mv one away
run 4 ring delete demo
says err "for it may hold the newest writes of $name, and it cannot be read: cannot open $DIR/one"
says err "give these writes up with 'parallax ring discard STORE/VDI', then 'parallax ring delete demo --force' forgets it"
run 0 ring discard $vdi --yes
run 0 ring delete demo --force
run 3 ring list demo
rm away

step "a mirror that runs on one member is told by everybody who looks"
# told: the ring runs on one of two members, $1; and so say all.
told() {
    local words
    for words in "ring list" "ring list demo" "ring info demo"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
        says out "idle, on one of two members"
        says err "the ring of store demo runs on one of two members, $1; 'parallax ring repair demo --with PATH' makes it a mirror again"
    done
    run 0 ring list --json
    [[ $(json 0 alone) == true && $(json 0 state) == idle ]] || die "it is not said in JSON"
    for words in "ring check demo" "store check demo"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
        says out "info: this host's ring runs on one of two members, $1; 'parallax ring repair demo --with PATH' makes it a mirror again"
    done
    run 0 vdi info demo/web
    says out "on, but the ring runs on one of two members"
    run 0 cdp status demo/web
    says out "the ring runs on one of two members"
    run 0 vdi info demo/web --json
    [[ $(json ring_alone) == true && $(json ring) == "on, but the ring runs on one of two members" ]] || die "it is not said in JSON"
}
told_no_more() {
    run 0 ring list
    silent out "one of two"
    silent err "one of two"
    for words in "ring info demo" "ring check demo" "vdi info demo/web"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
        silent out "one of two"
    done
    run 0 vdi info demo/web --json
    [[ $(json ring_alone) == false ]] || die "it is said to be alone"
}
run 0 ring create demo "$DIR/one" "$DIR/two" --size 64M
run 0 vdi set demo/web --ring on
told_no_more
cp -r state/rings rings.both
mv two away
run 0 ring repair demo --i-checked-the-other-is-lost
told "$DIR/one"
run 0 vdi info demo/db --json # which does without
[[ $(json ring) == off && $(json ring_alone) == null ]] || die "a disk without a ring is said to have one"

step "a member that was left behind by a word: it may be one again, and advice is such that it works"
mv away two
run 3 store scan two
says err "$DIR/two holds no store: it was a member of this host's ring of store demo, which went on without it by the operator's word: nobody knows whether the ring has all that it holds, so do not delete it before the data is known to be right; 'parallax ring repair demo --with $DIR/two' makes it one again, unless it has newer writes"
silent err "ring create"
run 4 ring create demo "$DIR/two"

step "the same where its path is still known, as after a loss while a handler had the ring open"
rm -r state/rings
mv rings.both state/rings
told "$DIR/one"
run 3 store scan two
says err "this host knows it"
mv two away # an error of the list, and none of the check: nothing is missing
run 3 ring list
says out "idle, on one of two members"
fresh
written $vdi "$DIR/one"
run 0 ring check demo
says out "up to 5 writes"
says out "runs on one of two members, $DIR/one"
run 0 snap create $vdi
mv away two
cp --sparse=always one one.before
cp --sparse=always two two.before
cp -r state/rings rings.both
run 0 ring repair demo --i-checked-the-other-is-lost # it is known to be
says err "goes on with $DIR/one alone"
for swapped in "" swapped; do # whichever comes first
    rm -r state/rings
    cp -r rings.both state/rings
    cp --sparse=always one.before one
    cp --sparse=always two.before two
    if [[ $swapped ]]; then sed -i "s,$DIR/one,$DIR/x,; s,$DIR/two,$DIR/one,; s,$DIR/x,$DIR/two," state/rings/*.json; fi
    told "$DIR/one"
    run 0 ring info demo --json
    [[ $(json members 0 path) == "$DIR/$([[ $swapped ]] && echo two || echo one)" ]] || die "the members are not swapped"
    run 4 ring repair demo --with "$DIR/one"
    says err "is the member that is left"
    run 0 ring repair demo --with "$DIR/two"
    says err "the ring lies on"
    told_no_more
done

step "left behind by a ring that has two members again"
mv two away
run 0 ring repair demo --i-checked-the-other-is-lost
run 0 ring repair demo --with "$DIR/three" --size 64M
told_no_more
run 3 store scan away
says err "$DIR/away holds no store: it was a member of this host's ring of store demo, which went on without it by the operator's word: nobody knows whether the ring has all that it holds, so do not delete it before the data is known to be right"
silent err "ring repair"
rm away

step "a copy, and a ring beside another one: that is said, and how to use it instead"
cp --sparse=always one copy
run 3 store scan copy
says err "this host has that ring on $DIR/one and $DIR/three, so this is a copy, or was used apart; to use it instead, move that one away, then 'parallax ring create demo $DIR/copy OTHER-MEMBER'"
mkdir apart
mv one three apart
mv copy one.copy
run 0 ring create demo "$DIR/one.copy" "$DIR/apart/three"
rm one.copy
run 0 ring create demo "$DIR/apart/one" "$DIR/apart/three"
rm state/rings/*
run 0 ring create demo "$DIR/other" --size 64M
run 3 store scan apart/one
says err "this host has another ring of that store, on $DIR/other: 'parallax ring delete demo', then 'parallax ring create demo $DIR/apart/one OTHER-MEMBER' makes this one known again"
run 0 ring delete demo
run 0 ring create demo "$DIR/apart/one" "$DIR/apart/three"
run 0 store check demo --data
run 0 ring delete demo
rm -r apart

step "a discard names first what would lose nothing"
run 0 ring create demo "$DIR/one" "$DIR/two" --size 64M
fresh
run 0 snap create $vdi
run 0 cdp on $vdi --keep all:1h
written $vdi "$DIR/one" "$DIR/two"
usable="This host's ring can be used: 'parallax vdi set $vdi --ring off' brings them to the store, and nothing is lost."
run 4 ring discard $vdi
says err "$usable"
run 0 ring discard $vdi --dry-run
says err "$usable"
mv two away
missing="a ring of which a member is missing, so that nobody knows how many they are. Bring that member back (cannot open $DIR/two: No such file or directory); if it lies elsewhere now: 'parallax ring create demo NEW OTHER'; if it is lost for good, 'parallax ring repair demo --i-checked-the-other-is-lost' goes on with the other one."
run 4 ring discard $vdi
says err "$missing"
silent err "0 writes"
run 0 ring discard $vdi --dry-run
says err "$missing"
run 0 ring discard $vdi --dry-run --json
[[ $(json records) == null ]] || die "what a missing member may have is counted"
mv away two

step "what changes nothing drains no ring"
cp --sparse=always one one.before
cp --sparse=always demo.plx demo.before
for words in "snap delete $vdi@1 --dry-run" "defrag $vdi --dry-run" "du $vdi@1" "cdp apply $vdi --dry-run"; do
    # shellcheck disable=SC2086 # words
    run 4 $words
    says err "$vdi: a ring may have its newest writes, and a command that changes nothing does not bring them to the store; 'parallax snap create $vdi' brings them to the store"
    same one one.before
done
PARALLAX=$PARALLAX_STAGED PLX_STAGE_SHIFT=7200 run 4 cdp resume $vdi --dry-run
says err "$vdi: a ring may have its newest writes"
same one one.before
run 0 snap create $vdi
run 0 snap delete $vdi@1 --dry-run

step "two copies of one member are no ring"
rm state/rings/*
cp --sparse=always one copy
run 1 ring create demo "$DIR/one" "$DIR/copy"
says err "$DIR/one and $DIR/copy are copies of one member of a ring of store demo; give one of them, and the other member"
run 0 ring create demo "$DIR/one" "$DIR/two"
run 1 ring create demo "$DIR/one" "$DIR/copy"

step "a ring is made where one is known already: what has become of that one"
run 4 ring create demo "$DIR/two" "$DIR/one"
says err "this host's ring of store demo on $DIR/one and $DIR/two is known already; 'parallax ring info demo' shows it"
run 4 ring create demo "$DIR/copy"
says err "$DIR/copy is a copy of this host's ring of store demo on $DIR/one and $DIR/two, or was used apart; to use it instead, move that one away and repeat this"
rm copy
run 4 ring create demo "$DIR/new" --size 64M
says err "this host has a ring of store demo already, on $DIR/one and $DIR/two; 'parallax ring delete demo' ends that one"
mv one one.moved
mv two two.moved
run 4 ring create demo "$DIR/one.moved"
says err "$DIR/one.moved is one of two members of a ring of store demo; give both to take the ring up again; if the other one is lost for good, give this one only, and add --i-checked-the-other-is-lost"
run 4 ring create demo "$DIR/new" --size 64M
says err "this host has a ring of store demo already, which is not where it was: cannot open $DIR/one: No such file or directory; if it was moved, give its new path; if it is lost for good: 'parallax ring discard demo/VDI' for each virtual disk that needs it, then 'parallax ring delete demo --force'"
[[ ! -e new ]] || die "a file was made"
mv one.moved one
run 0 ring repair demo --i-checked-the-other-is-lost
run 4 ring create demo "$DIR/two.moved"
says err "$DIR/two.moved was a member of this host's ring of store demo, which went on without it on $DIR/one; 'parallax ring repair demo --with $DIR/two.moved' makes it one again"
run 0 ring repair demo --with "$DIR/two.moved"
mv two.moved two
run 0 ring create demo "$DIR/one" "$DIR/two"

step "a ring whose store is away: what goes with it is said before and after"
fresh
written $vdi "$DIR/one" "$DIR/two"
id=$(uuid $vdi)
mv demo.plx away
run 4 ring delete demo
says err "so nobody knows whether a virtual disk needs the ring, which holds writes to 1 virtual disk; if none does, add --i-checked-nobody-needs-it"
run 0 ring delete demo --i-checked-nobody-needs-it --dry-run
says err "would erase the ring on $DIR/one and $DIR/two with up to 16 MiB of writes to $id; nothing was changed"
run 0 ring delete demo --i-checked-nobody-needs-it
says err "erased the ring on $DIR/one and $DIR/two with up to 16 MiB of writes to $id; files that it lay in were not removed"
mv away demo.plx
run 0 ring discard $vdi --yes

step "a store is forgotten whose ring has writes: that is said"
run 0 ring create demo "$DIR/one" "$DIR/two"
run 0 store forget demo
silent err "ring"
run 0 store import --volume "$DIR/demo.plx"
fresh
written $vdi "$DIR/one" "$DIR/two"
run 0 store forget demo
says err "; this host's ring of it on $DIR/one and $DIR/two stays, and may have writes that it lacks"
run 4 ring delete demo --dry-run
says err "makes one known here, so nobody knows whether a virtual disk needs the ring, which holds writes to 1 virtual disk; if none does, add --i-checked-nobody-needs-it"
run 0 store import --volume "$DIR/demo.plx"
run 0 vdi set $vdi --ring off
run 0 ring delete demo

step "a new ring: its room, and what has a disk use it"
run 0 ring create demo "$DIR/one" "$DIR/two"
says err "demo: this host has a ring on $DIR/one and $DIR/two now (48 MiB for writes); 'parallax vdi set STORE/VDI --ring on' has a virtual disk use it"

step "where a ring may have newer snapshots than the store, that is said"
fresh
run 0 vdi set $vdi --ring on
for words in "snap list $vdi" "cdp timeline $vdi"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
    silent err "newer snapshots"
done
written $vdi "$DIR/one" "$DIR/two"
newer="$vdi: newer snapshots may lie on a ring; 'parallax snap create $vdi' brings them to the store"
run 0 snap list $vdi
says err "$newer"
run 0 cdp timeline $vdi
says err "$newer"
run 0 vdi clone $vdi@-0s demo/clone
says err "$newer"

step "a member is missing: each command names what ends that, with the words that it takes"
goes_on="'parallax ring repair demo --i-checked-the-other-is-lost' goes on with the other one"
mv two two.moved
run 4 snap create $vdi
says err "one of its members is missing, bring it back (cannot open $DIR/two: No such file or directory); if it lies elsewhere now: 'parallax ring create demo NEW OTHER'; if it is lost for good, $goes_on"
for words in "ring list" "ring info demo"; do
    # shellcheck disable=SC2086 # words
    run 3 $words
    says err "cannot open $DIR/two: No such file or directory; bring it back; if it lies elsewhere now: 'parallax ring create demo NEW OTHER'; if it is lost for good: $goes_on"
done
run 5 ring check demo
says out "error: this host's ring: cannot open $DIR/two: No such file or directory; bring it back; if it lies elsewhere now: 'parallax ring create demo NEW OTHER'; if it is lost for good: $goes_on"
run 0 ring create demo "$DIR/two.moved" "$DIR/one" # as they say
mv two.moved two
run 0 ring create demo "$DIR/one" "$DIR/two"
mv two two.moved
run 4 ring delete demo
says err "a member of it is missing: cannot open $DIR/two: No such file or directory; bring it back, or, if it is lost for good, $goes_on"
mv two.moved two
cp -r state/rings rings.kept
python3 -c '
import json, sys
entry = json.load(open(sys.argv[1]))
entry["members"].pop()
json.dump(entry, open(sys.argv[1], "w"))' state/rings/*.json
run 4 snap create $vdi # nothing is in the way of the one that is entered
says err "one of its members is missing, bring it back ($DIR/one"
says err "$goes_on"
rm -r state/rings
mv rings.kept state/rings
mv one one.moved
mv two two.moved

step "a ring that is gone: no command that needs it is recommended; whoever looks at a disk says so"
way="this host's ring cannot be used (cannot open $DIR/one: No such file or directory); 'parallax ring check demo' says more"
run 4 vdi export $vdi image
says err "the image would lack them; $way; --without-ring exports the state from before them"
run 0 vdi export $vdi image --without-ring
says err "$way"
run 0 snap list $vdi
says err "newer snapshots may lie on a ring; $way"
for words in "vdi info $vdi" "cdp status $vdi"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
    says out "on, and its newest writes may be on this host's ring, which cannot be used: cannot open $DIR/one: No such file or directory"
done
run 0 vdi set demo/db --ring off
run 0 vdi set demo/db --ring on
says err "demo/db: this host's ring cannot be used (cannot open $DIR/one: No such file or directory), so it does not acknowledge writes until it can; 'parallax ring check demo' says more"
silent err "are acknowledged"
run 0 vdi info demo/db
says out "on, but this host's ring cannot be used: cannot open $DIR/one: No such file or directory"
gone="cannot open $DIR/one: No such file or directory; no member is left to go on with: bring them back; if they lie elsewhere now: 'parallax ring create demo PATH PATH'; if both are lost for good: 'parallax ring discard demo/VDI' for each virtual disk that needs the ring, then 'parallax ring delete demo --force'"
run 3 ring list
says out unusable
says err "$gone"
for words in "ring info demo" "ring repair demo --i-checked-the-other-is-lost" "ring repair demo --with $DIR/new --size 64M"; do
    # shellcheck disable=SC2086 # words
    run 3 $words
    says err "$gone"
    [[ ! -e new ]] || die "a file was made"
done
run 5 ring check demo
says out "error: this host's ring: $gone"
for use in on auto; do
    run 0 vdi set demo/db --ring $use
    run 0 vdi bench demo/db --rw randwrite --size 1M --runtime 1 --force
    says err "continuing without its ring: cannot open $DIR/one: No such file or directory; if it lies elsewhere now: 'parallax ring create demo PATH PATH'; if it is lost for good: 'parallax ring delete demo --force', and make a new one"
done
run 0 vdi set demo/db --ring off
run 0 ring discard $vdi --dry-run --json
[[ $(json needed) == true && $(json reason) == unreadable && $(json records) == null ]] || die "it is not said why nothing is known"
run 0 ring discard demo/db --dry-run --json
[[ $(json needed) == false && $(json reason) == not-needed ]] || die "it is not said that there is nothing"

step "a ring that is known again: the disks that need it are named"
run 0 ring create demo "$DIR/one.moved" "$DIR/two.moved"
says err "virtual disk $vdi can be used again: its newest writes are on this ring"
mv one.moved one
mv two.moved two
run 0 ring create demo "$DIR/one" "$DIR/two"
run 0 ring discard $vdi --dry-run --json
[[ $(json needed) == true && $(json reason) == null && $(json records) == 5 ]] || die "what is on the ring is not told"

step "one that is lost: what comes after the discard"
mv one one.moved
mv two two.moved
run 0 ring discard $vdi --yes
says err "$vdi now has the state on the store. Discarded: its newest writes, on a ring that cannot be read here, so that nobody knows how many they are. 'parallax ring delete demo --force' forgets that ring, if it is lost for good."
run 0 ring delete demo --force

step "writes that were set aside keep a disk from its ring: that is said where one looks, and the command that erases them works"
run 0 ring create demo "$DIR/one.moved" "$DIR/two.moved"
run 0 vdi info $vdi
says out "on, but not used: 5 writes on the ring were set aside"
run 0 vdi bench $vdi --rw randwrite --size 1M --runtime 1 --force
says err "'parallax ring discard STORE/$name --also-set-aside' erases them"
run 0 ring discard $vdi --yes --also-set-aside
mv two.moved two
run 0 ring repair demo --i-checked-the-other-is-lost
run 1 ring repair demo --with "$DIR/small" --size 40M
says err "$DIR/small: too small: a member of this ring needs 51380224 bytes"
run 0 ring delete demo --force
echo "all is well"
