#!/bin/bash
# parallax du, end to end, on a store in a file: what it says is what deleting and collecting frees.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# du VDI KEY: a number of a disk's.
du_of() {
    run 0 du "demo/$1" --json
    json vdis 0 "$2"
}

# total KEY: of the store.
total() {
    run 0 du demo --json
    json "$1"
}

# adds_up: what is used and garbage is all that is allocated, but for the store's own blocks.
adds_up() {
    local used garbage leaked
    run 0 du demo --json
    used=$(json referenced_bytes) garbage=$(json garbage_bytes)
    [[ $(json approximate) == false ]] || die "nothing is open"
    run 0 store check demo --json
    leaked=$(json leaked_blocks)
    ((garbage == leaked * 4096)) || die "$garbage bytes of garbage, but $leaked blocks leaked"
    run 0 store info demo --json
    (($(json unused_extents) + $(json data_extents) + $(json metadata_extents) + $(json system_extents) == $(json extents))) ||
        die "some extents are of no kind"
    ((used + garbage == $(json used_bytes) - $(json system_bytes) - 2 * 4096 * ($(json data_extents) + $(json metadata_extents)))) ||
        die "$used + $garbage bytes, but $(json used_bytes) in use"
}

# freed: what a collection frees.
freed() {
    run 0 gc demo --json
    json freed_bytes
}

# deleting VDI: frees what was announced, and nobody else's figures were too high.
deleting() {
    local exclusive got
    exclusive=$(du_of "$1" exclusive_bytes)
    run 0 vdi delete "demo/$1" --yes
    adds_up
    [[ $(total garbage_bytes) == "$exclusive" ]] || die "$1: not all that it had alone is garbage"
    got=$(freed)
    [[ $got == "$exclusive" ]] || die "$1 had $exclusive bytes alone, but $got came back"
    [[ $(total garbage_bytes) == 0 ]] || die "garbage is left"
    adds_up
}

head -c 8M /dev/urandom >base.raw
head -c 8M /dev/urandom >other.raw
run 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 1M

step "words"
run 2 du
run 3 du nothing
run 3 du demo/nothing
run 3 du demo/nothing@one..two
run 2 du demo@one
run 0 du --help
says out "snapshots"
run 0 __complete
says out "du"

step "an empty store"
run 0 du demo --json
[[ $(json vdis) == "[]" && $(json families) == "[]" && $(json referenced_bytes) == 0 ]] || die "it is not empty"
run 0 du demo

step "a disk alone"
run 0 vdi import base.raw demo/alone
adds_up
[[ $(du_of alone shared_bytes) == 0 ]] || die "with whom does it share?"
(($(du_of alone referenced_bytes) >= 8 << 20)) || die "it holds 8 MiB"
run 0 du demo --json
[[ $(json families) == "[]" ]] || die "a family of one"

step "a family, with one deleted between its members"
run 0 vdi import base.raw demo/base
run 0 snap create demo/base@golden
run 0 vdi clone demo/base@golden demo/inner
run 0 vdi import other.raw demo/inner --force
run 0 snap create demo/inner@v1
run 0 vdi clone demo/inner@v1 demo/outer
run 0 vdi import base.raw demo/inner --force
run 0 vdi bench demo/outer --rw randwrite --force --bs 64k --runtime 1 --size 2M
run 0 snap create demo/outer
adds_up
run 0 du demo --json
[[ $(json families 0 vdis) == '["demo/base", "demo/inner", "demo/outer"]' ]] || die "not the family"
[[ $(json families 0 shared_bytes) == 0 ]] || die "it shares with others"
family=$(json families 0 exclusive_bytes)
run 0 du demo
says out "demo/outer"
says out "Garbage"
deleting inner
run 0 du demo/base --json
[[ $(json families 0 vdis) == '["demo/base", "demo/outer"]' ]] || die "not the family any more"
less=$(json families 0 exclusive_bytes)
((less < family && less > 16 << 20)) || die "the family has $less of $family bytes left"

step "a whole family at once"
for vdi in base outer; do run 0 vdi delete demo/$vdi --yes; done
[[ $(freed) == "$less" ]] || die "not what the family had"
adds_up

step "disks come in the order of their names"
run 0 vdi create demo/zero --size 1M
run 0 vdi create demo/aaa --size 1M
run 0 du demo --json
python3 -c '
import json
names = [vdi["name"] for vdi in json.load(open("out"))["vdis"]]
assert len(names) > 2 and names == sorted(names), names' || die "another order"
for disk in zero aaa; do run 0 vdi delete demo/$disk --yes; done
run 0 gc demo

step "snapshots"
run 0 snap create demo/alone
run 0 vdi import other.raw demo/alone --force
run 0 snap create demo/alone
run 0 vdi import base.raw demo/alone --force
run 0 snap create demo/alone
before=$(du_of alone referenced_bytes)
run 0 snap label demo/alone@2 two
run 0 du demo/alone@1..2 --json
[[ $(json exact) == false ]] || die "metadata is an estimate in a dry run"
data=$(json data_bytes) weighed=$(json freed_bytes)
((data > 0 && data < weighed)) || die "which part of $weighed is data: $data?"
run 0 snap unlabel demo/alone@two
run 0 du demo/alone@1..2 --json
[[ $(json freed_bytes) == "$weighed" ]] || die "a label weighs something"
[[ $(json snapshots) == 2 && $(json dry_run) == true ]] || die "which snapshots?"
((weighed >= 16 << 20)) || die "two images are $weighed bytes"
[[ $(du_of alone referenced_bytes) -ge $before ]] || die "something was deleted"
before=$(du_of alone referenced_bytes)
run 0 snap delete demo/alone@1..2 --json
[[ $(json data_bytes) == "$data" && $(json exact) == true ]] || die "$(json data_bytes) bytes of data came back, not $data"
[[ $(json freed_bytes) == "$weighed" ]] || die "$(json freed_bytes) bytes came back, not $weighed"
after=$(du_of alone referenced_bytes)
((before - after == weighed)) || die "$((before - after)) bytes less, not $weighed"
adds_up
deleting alone
[[ $(total referenced_bytes) == 0 ]] || die "something is left"
