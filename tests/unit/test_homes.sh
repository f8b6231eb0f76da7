#!/bin/bash
# One host at a time has a store: two machines by two names, each with a state directory of its own.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
PARALLAX=${PARALLAX_STAGED:?the path of the staged command}

for host in alpha beta; do
    mkdir $host
    cat /proc/sys/kernel/random/uuid >$host/host-id
    cat /proc/sys/kernel/random/uuid >$host/boot
done
# on HOST STATUS WORDS...
on() { PLX_STAGE_HOST=$1 PLX_STAGE_BOOT=$DIR/$1/boot PARALLAX_STATE_DIR=$DIR/$1 run "${@:2}"; }
alpha() { on alpha "$@"; }
beta() { on beta "$@"; }
head -c 1M /dev/urandom >image

step "a store of another host is not formatted, imported, rebuilt or looked into for writing"
alpha 0 store format demo --volume "$DIR/demo.plx" --size 256M
alpha 0 vdi import image demo/web
cp --sparse=always demo.plx before.plx
for words in "format new --volume $DIR/demo.plx --force" "import --volume $DIR/demo.plx" \
    "rebuild-registry --volume $DIR/demo.plx"; do
    # shellcheck disable=SC2086 # words
    beta 4 store $words
    says err "belongs to host alpha"
    same demo.plx before.plx
done
step "the host that has it says so, and the other finds it"
beta 0 store scan "$DIR/demo.plx" --json
[[ $(json 0 host) == alpha && $(json 0 ours) == false ]] || die "scan does not say whose it is"

step "given up there, taken here; what was there goes on"
alpha 0 store release demo
alpha 4 vdi create demo/late --size 1M
says err "no host has the store"
beta 0 store import --volume "$DIR/demo.plx"
beta 0 vdi export demo/web back
same back image
alpha 4 vdi create demo/late --size 1M
says err "belongs to host beta"

step "the operator's word: a host by its right name, that is off"
alpha 1 store take-over demo --from gamma --i-checked-it-is-off
says err "to host beta, not to gamma"
alpha 0 store take-over demo --from beta --i-checked-it-is-off
alpha 0 vdi export demo/web back --force
same back image
beta 4 vdi create demo/late --size 1M

step "what a host had open when it was lost: told as gone, and recovered by the first that writes"
mkfifo pipe
exec {held}<>pipe
PLX_STAGE_HOST=alpha PLX_STAGE_BOOT=$DIR/alpha/boot PARALLAX_STATE_DIR=$DIR/alpha "$PARALLAX" vdi import pipe demo/late --size 1M >/dev/null 2>&1 &
lost=$!
for _ in {1..100}; do
    alpha 0 vdi list demo --json
    [[ $(<out) != *'"open_by"'* ]] || break
    sleep 0.1
done
says out "\"admin $lost on alpha\""
{ kill -KILL "$lost" && wait "$lost"; } 2>err
exec {held}>&-
alpha 0 vdi list demo --json
says out "\"admin $lost on alpha, gone\""
rm beta/stores/*
beta 4 store import --volume "$DIR/demo.plx"
says err "'parallax store take-over --volume $DIR/demo.plx --from alpha --i-checked-it-is-off'"
beta 0 store take-over --volume "$DIR/demo.plx" --from alpha --i-checked-it-is-off
beta 0 vdi list demo --json
says out "\"admin $lost on alpha, gone\""
beta 0 vdi create demo/later --size 1M
beta 0 vdi list demo --json
[[ $(<out) != *'"open_by"'* ]] || die "a disk is open though nobody lives who had it"
