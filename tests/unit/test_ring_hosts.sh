#!/bin/bash
# A ring whose host is off: its device is brought to another host, which takes it over by the operator's word, with what was
# acknowledged. Two machines by two names, each with a state directory of its own.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
# shellcheck source=tests/unit/hosts.sh
. "$SOURCE/tests/unit/hosts.sh"
# shellcheck source=tests/unit/ringwrites.sh
. "$SOURCE/tests/unit/ringwrites.sh"

for name in alpha beta gamma; do host $name; done
alpha() { on alpha "$@"; }
beta() { on beta "$@"; }

# fresh HOST: a disk of which the mirror of one and two has five writes that the store lacks: $vdi.
disks=0
fresh() {
    local id
    vdi=demo/disk$((++disks))
    on "$1" 0 vdi create $vdi --size 1M
    on "$1" 0 snap create $vdi
    on "$1" 0 vdi info $vdi --json
    id=$(json uuid)
    ring_writes "$id" one two
}

# drained HOST: it has them.
drained() {
    on "$1" 0 vdi set $vdi --ring off
    on "$1" 0 vdi export $vdi image --force
    has_ring_writes image
}

# takes HOST FROM WORDS: the store, by what names it there.
takes() { on "$1" 0 store take-over "${@:3}" --from "$2" --i-checked-it-is-off; }

# refused STATUS TEXT WORDS...: on beta, and no member is changed.
refused() {
    cp one one.before
    cp two two.before
    beta "$1" "${@:3}"
    says err "$2"
    same one one.before
    same two two.before
}
word=(--i-checked-it-is-off)

alpha 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 1M
alpha 0 ring create demo "$DIR/one" "$DIR/two" --size 80M

step "a ring of another host is not used without the operator's word, which has to name that host"
fresh alpha
beta 0 store take-over --volume "$DIR/demo.plx" --from alpha --dry-run
says err "start that host, and leave the store to it; or bring the ring's device here, and 'parallax ring create demo PATH --from HOST --i-checked-it-is-off' takes it over afterwards (HOST as 'parallax store scan PATH' shows it; both paths of a mirror); or"
takes beta alpha --volume "$DIR/demo.plx"
says err "or bring the ring's device here, and 'parallax ring create demo PATH --from HOST --i-checked-it-is-off' takes it over (HOST as 'parallax store scan PATH' shows it; both paths of a mirror); or"
refused 4 "if host alpha is off, or was this machine, add --from alpha --i-checked-it-is-off: $DIR/two is a member of its ring of store demo, and may hold writes that the store lacks" ring create demo "$DIR/one" "$DIR/two"
refused 4 "add --from alpha --i-checked-it-is-off" ring create demo "$DIR/one" "$DIR/two" --force
refused 4 "nothing was changed: if host alpha still runs" ring create demo "$DIR/one" "$DIR/two" --from alpha
refused 2 "--i-checked-it-is-off goes with --from HOST" ring create demo "$DIR/one" "$DIR/two" "${word[@]}"
refused 1 "is a member of host alpha's ring of store demo, not of gamma's" ring create demo "$DIR/one" "$DIR/two" --from gamma "${word[@]}"
refused 4 "is one of two members of a ring of store demo; give both" ring create demo "$DIR/one" --from alpha "${word[@]}"
truncate -s 80M empty
refused 3 "empty is no member of a ring of store demo, so there is none to take over" ring create demo "$DIR/empty" --from alpha "${word[@]}"
refused 3 "new" ring create demo "$DIR/new" --size 80M --from alpha "${word[@]}"
[[ ! -e new ]] || die "a file was made"
beta 3 store scan "$DIR/one"
says err "on that host makes it known again there; if that host is off, or was this machine, 'parallax ring create demo $DIR/one OTHER-MEMBER --from alpha --i-checked-it-is-off' makes it this host's"

step "by that word it becomes this host's, with its writes"
keep=$(mktemp -d -p "$DIR")
cp -r --sparse=always one two demo.plx beta "$keep"
again() {
    cp --sparse=always "$keep"/{one,two,demo.plx} .
    rm -rf beta
    cp -r "$keep/beta" beta
    vdi=demo/disk1
}
beta 0 ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}"
says err "demo: the ring of host alpha on $DIR/one and $DIR/two is this host's now"
says err "virtual disk $vdi can be used again"
beta 0 ring info demo --json
[[ $(json host) == beta ]] || die "it is the ring of $(json host)"
drained beta

step "the other host does not use it any more, until it takes it over itself"
fresh beta
takes alpha beta demo
alpha 4 snap create $vdi
says err "$DIR/one belongs to a ring of host beta; if that host is off, or was this machine, 'parallax ring create demo $DIR/one $DIR/two --from beta --i-checked-it-is-off' takes the ring over"
alpha 4 ring repair demo --i-checked-the-other-is-lost
says err "$DIR/one belongs to a ring of host beta"
alpha 4 ring info demo
says out RING_AWAY
alpha 0 ring info "$DIR/one"
alpha 0 ring create demo "$DIR/one" "$DIR/two" --from beta "${word[@]}" --json
[[ $(json taken_over) == true && $(json taken_up) == true ]] || die "the JSON does not say it"
drained alpha
alpha 4 ring create demo "$DIR/one" "$DIR/two"
says err "is known already"

step "killed at any point: the same command, given again, ends it"
for ((at = 1; ; at++)); do
    again
    status=$(exec 2>/dev/null && PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at PLX_STAGE_HOST=beta PLX_STAGE_BOOT=$DIR/beta/boot \
        PARALLAX_STATE_DIR=$DIR/beta "$PARALLAX" ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}" >out 2>err; echo $?)
    [[ $status == 137 ]] || break
    [[ -e beta/rings/$(ls beta/rings 2>/dev/null) && $(ls beta/rings 2>/dev/null) == *.json ]] ||
        beta 0 ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}"
    drained beta
done
[[ $status == 0 ]] || die "ring create, killed at $at: exit status $status"
((at > 10)) || die "only $at submissions"

step "cut off between the two members: the ring names two hosts, and a third one takes it over by either name"
names() { python3 -c 'import sys; print(open(sys.argv[1], "rb").read()[512:576].split(b"\0")[0].decode())' "$1"; }
torn=
for ((last = at - 1, at = 1; at < last; at++)); do
    again
    (exec 2>/dev/null && PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at PLX_STAGE_HOST=beta PLX_STAGE_BOOT=$DIR/beta/boot \
        PARALLAX_STATE_DIR=$DIR/beta "$PARALLAX" ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}" >out 2>err)
    [[ $(names one) == "$(names two)" ]] || { torn=$at && break; }
done
[[ $torn ]] || die "no kill leaves a ring that names two hosts"
cp --sparse=always one one.torn
cp --sparse=always two two.torn
takes gamma beta --volume "$DIR/demo.plx"
cp --sparse=always demo.plx demo.torn
for name in alpha beta; do
    cp --sparse=always one.torn one
    cp --sparse=always two.torn two
    cp --sparse=always demo.torn demo.plx
    on gamma 0 ring create demo "$DIR/one" "$DIR/two" --from $name "${word[@]}"
    drained gamma
    rm gamma/rings/*
done
on gamma 0 store release demo
on gamma 0 store forget demo

step "one of two members was brought, and the other one is lost"
again
mv one away
beta 0 ring create demo "$DIR/two" --from alpha "${word[@]}" --i-checked-the-other-is-lost
says err "the ring goes on with this member alone"
drained beta

# as_kept: the store is beta's, and the ring alpha's; gamma knows nothing.
as_kept() {
    again
    rm -r gamma
    host gamma
}

step "the store has gone on to a third host: whose the ring is, its member says"
as_kept
takes gamma beta --volume "$DIR/demo.plx"
says err "takes it over (HOST as 'parallax store scan PATH' shows it; both paths of a mirror)"
on gamma 3 store scan one --json
[[ $(json 0 host) == alpha && $(json 0 host_uuid) == "$(<alpha/host-id)" ]] || die "whose the ring is is not told"
on gamma 1 ring create demo "$DIR/one" "$DIR/two" --from beta "${word[@]}"
on gamma 0 ring create demo "$DIR/one" "$DIR/two" --from "$(<alpha/host-id)" "${word[@]}"
drained gamma

step "a ring that this host had: both paths and the host that has it now are in the command"
as_kept
cp -r alpha alpha.kept
alpha 0 ring list
beta 0 ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}"
drained beta
fresh beta
takes alpha beta demo
says err "$vdi: its newest writes may lie on the ring that this host had, which is host beta's now, and it is not used without that ring; if that host is off, 'parallax ring create demo $DIR/one $DIR/two --from beta --i-checked-it-is-off' takes it over"
alpha 0 ring create demo "$DIR/one" "$DIR/two" --from beta "${word[@]}"
drained alpha
rm -r alpha
mv alpha.kept alpha

step "a new ring beside one of another host that a disk needs"
as_kept
beta 0 ring create demo "$DIR/new" --size 64M
says err "'parallax ring delete demo', then 'parallax ring create demo PATH' with its own path makes it known again (both paths of a mirror; with --from HOST --i-checked-it-is-off, if it is another host's)"
beta 0 ring delete demo
rm new

step "an empty ring of which each member names another host"
as_kept
beta 0 ring discard $vdi --yes
beta 0 ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}" # what was set aside goes
beta 0 ring discard $vdi --yes --also-set-aside
beta 0 ring delete demo
beta 0 ring create demo "$DIR/one" "$DIR/two"
cp --sparse=always one one.beta
takes gamma beta --volume "$DIR/demo.plx"
on gamma 0 ring create demo "$DIR/one" "$DIR/two" --from beta "${word[@]}"
cp --sparse=always one.beta one
rm gamma/rings/* one.beta
on gamma 4 ring create demo "$DIR/two" "$DIR/one"
says err "'parallax ring create demo PATH' with all its members makes it known again, and takes --from HOST --i-checked-it-is-off, too, if one of them names another host; --force overwrites it"
on gamma 0 ring create demo "$DIR/two" "$DIR/one" --from beta "${word[@]}"

step "long names and paths: a command that is advised is whole"
long=$(printf 'h%.0s' {1..60})
store=$(printf 's%.0s' {1..60})
folder=$DIR/$(printf 'd%.0s' {1..90})
mkdir "$folder"
host "$long"
on "$long" 0 store format "$store" --volume "$folder/store.plx" --size 256M --extent-size 1M
on "$long" 0 vdi create "$store/web" --size 1M
on "$long" 0 snap create "$store/web"
on "$long" 0 ring create "$store" "$folder/one" "$folder/two" --size 64M
on "$long" 0 vdi info "$store/web" --json
id=$(json uuid)
"$RING_FORGE" append "$id" 1 5 "$folder/one" "$folder/two" || die "the ring cannot be filled"
beta 3 store scan "$folder/one"
whole err
says err "once that store is known here, 'parallax ring create STORE PATH OTHER-MEMBER --from $long --i-checked-it-is-off' makes it this host's"
beta 4 store import --volume "$folder/store.plx"
whole err
says err "--from $long --i-checked-it-is-off'"
takes beta "$long" --volume "$folder/store.plx"
beta 3 store scan "$folder/one"
whole err
says err "'parallax ring create $store PATH OTHER-MEMBER --from $long --i-checked-it-is-off' makes it this host's"
on "$long" 3 store scan "$folder/one"
whole err
mv "$long/rings" "$long/away"
on "$long" 3 store scan "$folder/one"
whole err
says err "'parallax ring create $store PATH OTHER-MEMBER' makes it known again"
beta 0 store forget "$store"
rm -r "$folder" "$long"

step "where nobody can tell whether this host has the ring, a scan says why"
mv beta/rings beta/away
echo no folder >beta/rings
beta 1 store scan "$DIR/one"
says err "beta/rings"
[[ $(<err) != *"no Parallax superblock"* ]] || die "it is said to hold nothing"
rm beta/rings
mv beta/away beta/rings
as_kept

step "this machine has another id than before: the store and its ring are taken over alike"
again
alpha 0 ring list
takes alpha beta demo
host alpha
takes alpha alpha demo
alpha 4 snap create demo/disk1
says err "'parallax ring create demo $DIR/one $DIR/two --from alpha --i-checked-it-is-off' takes the ring over"
alpha 0 ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}"
vdi=demo/disk1
drained alpha

# away: the ring of one and two, which alpha has entered, names beta; the disk $vdi has five writes there; alpha has the store.
away() {
    fresh alpha
    cp --sparse=always one one.alpha
    takes beta alpha demo
    beta 0 ring create demo "$DIR/one" "$DIR/two" --from alpha "${word[@]}"
    rm beta/rings/*
    takes alpha beta demo
}
silent() { ! grep -qF -- "$2" "$DIR/$1" || die "$1 says '$2'"; }
# unchanged MEMBER...: they are as `kept` found them.
kept() { for member in "$@"; do cp --sparse=always "$member" "$member.kept"; done; }
unchanged() { for member in "$@"; do same "$member" "$member.kept"; done; }
other="belongs to a ring of host beta; if that host is off, or was this machine, 'parallax ring create demo"
over="$DIR/one $other $DIR/one $DIR/two --from beta --i-checked-it-is-off' takes the ring over"

step "a ring that names another host by now is called healthy by nobody who looks"
away
alpha 0 vdi create demo/plain --size 1M
kept one two
for words in "ring list" "ring list demo" "ring info demo"; do
    # shellcheck disable=SC2086 # words
    alpha 4 $words
    says out "$DIR/one (RING_AWAY), $DIR/two (RING_AWAY)"
    says out unusable
    says err "$over"
done
alpha 4 ring list --json
[[ $(json 0 problem_code) == RING_AWAY && $(json 0 host) == beta && $(json 0 ours) == false ]] || die "it is not said in JSON"
for words in "ring check demo" "store check demo"; do
    # shellcheck disable=SC2086 # words
    alpha 5 $words
    says out "error: this host's ring: $over"
    silent out "writes are on this host's ring"
done
alpha 0 vdi info $vdi
says out "its newest writes may be on this host's ring, which cannot be used: $over"
alpha 0 snap list $vdi
says err "this host's ring cannot be used (it belongs to another host by now); 'parallax ring check demo' says more"
alpha 0 vdi set demo/plain --ring on
says err "demo/plain: this host's ring cannot be used ($over), so it does not acknowledge writes until it can"
silent err "are acknowledged"
alpha 0 vdi bench demo/plain --rw randwrite --size 1M --runtime 1 --force
says err "continuing without its ring: $over"
alpha 0 vdi set demo/plain --ring off
for words in "snap create $vdi" "ring repair demo --i-checked-the-other-is-lost"; do
    # shellcheck disable=SC2086 # words
    alpha 4 $words
    says err "$over"
done
alpha 0 ring info "$DIR/one" --json # of whomever it is
[[ $(json disks 0 records) == 5 && $(json host) == beta && $(json ours) == false ]] || die "it cannot be read by its path"

step "it is forgotten by its store, and erased by its path only"
alpha 4 ring delete demo
says err "a virtual disk may need the ring: $over; --force forgets the ring here, and erases nothing"
alpha 4 ring delete "$DIR/one" --force
says err "the ring belongs to host beta, and is needed, for it may hold the newest writes of ${vdi#demo/}; if that host is off"
silent err "--ring off"
unchanged one two

step "a mirror that names both hosts is taken over with both members, and no member of it is lost"
cp --sparse=always one one.beta
cp --sparse=always one.alpha one
kept one two
both="$DIR/two $other $DIR/one $DIR/two --from beta --i-checked-it-is-off' takes the ring over"
for words in "ring list" "snap create $vdi" "ring repair demo --i-checked-the-other-is-lost"; do
    # shellcheck disable=SC2086 # words
    alpha 4 $words
    says err "$both"
done
alpha 5 ring check demo
says out "error: this host's ring: $both"
alpha 4 ring discard $vdi
says err "Nothing is lost if it is taken over: $both."
unchanged one two
cp --sparse=always one.beta one

step "of one member that is lost, and one that names another host, the latter is spoken of"
mv one gone
kept two
alone="$DIR/two $other $DIR/two --from beta --i-checked-it-is-off --i-checked-the-other-is-lost' takes the ring over; if the other member is not lost for good, give its path instead of the last word"
for words in "snap create $vdi" "ring repair demo --i-checked-the-other-is-lost" "ring list"; do
    # shellcheck disable=SC2086 # words
    alpha 4 $words
    says err "$alone"
    silent err "ring discard"
done
alpha 4 ring discard $vdi
says err "Nothing is lost if it is taken over: $alone."
alpha 5 ring check demo
says out "error: this host's ring: $alone"
unchanged two
alpha 0 ring delete demo --force
says err "forgot the ring on $DIR/one and $DIR/two here; it belongs to host beta by now, so nothing is erased"
unchanged two
alpha 0 ring create demo "$DIR/two" --from beta "${word[@]}" --i-checked-the-other-is-lost
drained alpha
alpha 0 ring repair demo --with "$DIR/one" --size 80M
rm gone

step "nothing is called discarded, or erased, that is not"
away
kept one two
over="$DIR/two $other $DIR/two $DIR/one --from beta --i-checked-it-is-off' takes the ring over"
alpha 4 ring discard $vdi
says err "--yes discards its newest writes, on a ring of another host, so that nobody knows how many they are. Nothing is lost if it is taken over: $over."
silent err "can be used"
alpha 0 ring discard $vdi --dry-run --json
[[ $(json reason) == other-host && $(json records) == null ]] || die "it is not said why nothing is counted"
alpha 4 ring discard $vdi --also-set-aside --yes
says err "nothing was changed, for what was set aside cannot be erased here: $over"
alpha 0 vdi info $vdi --json
[[ $(json ring_needed) == true ]] || die "something was discarded all the same"
alpha 0 ring discard $vdi --yes
says err "Discarded: its newest writes, on a ring of another host"
for words in --dry-run --yes ""; do
    # shellcheck disable=SC2086 # words
    alpha 4 ring discard $vdi --also-set-aside $words
    says err "nothing was changed, for what was set aside cannot be erased here: $over"
    silent err "erased 5"
done
alpha 4 ring delete "$DIR/one"
says err "is a member of a ring of host beta; if that host does not use it any more, add --force"
alpha 0 ring check demo
says out "info: this host's ring: no virtual disk needs it, and 'parallax ring delete demo' forgets it: $over"
alpha 0 ring delete demo
says err "forgot the ring on $DIR/two and $DIR/one here; it belongs to host beta by now, so nothing is erased"
unchanged one two
alpha 0 ring create demo "$DIR/one" "$DIR/two" --from beta "${word[@]}"
alpha 0 ring discard $vdi --also-set-aside --yes
says err "erased 5 writes of it that were set aside"
alpha 0 ring info demo --json
[[ $(json disks) == "[]" ]] || die "something was left"

step "an empty ring of another host may be overwritten, as any other"
alpha 0 store release demo
on gamma 0 store import --volume "$DIR/demo.plx"
on gamma 4 ring create demo "$DIR/one" "$DIR/two"
on gamma 0 ring create demo "$DIR/one" "$DIR/two" --force
says err "demo: this host has a ring on $DIR/one and $DIR/two now"
on gamma 0 ring delete demo
on gamma 0 ring create demo "$DIR/one" "$DIR/two" --json --force
[[ $(json taken_up) == false && $(json taken_over) == false ]] || die "it was taken up"
