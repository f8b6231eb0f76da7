#!/bin/bash
# vdi list shows what each disk uses, as far as the store can be opened; and lists the disks of one that cannot.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "what disks use, as 'vdi info' has it"
run 0 store format demo --volume "$DIR/one" --volume "$DIR/two" --size 64M
head -c 3M /dev/urandom >image
run 0 vdi import image demo/db
run 0 vdi create demo/empty --size 1G
run 0 snap create demo/db
run 0 vdi list demo --columns name,used_bytes -q
[[ $(<out) == "demo/db     3 MiB"$'\n'"demo/empty    0 B" ]] || die "not what they use"
run 0 vdi info demo/db --json
used=$(json used_bytes)
run 0 vdi list demo --json
[[ $(json 0 used_bytes) == "$used" && $used == $((3 << 20)) ]] || die "not what 'vdi info' says"

step "a volume is lost: disks are listed, their use is not known"
mv two lost
run 6 vdi list demo --json
[[ $(json 0 name) == demo/db && $(json 0 used_bytes) == null ]] || die "the disks are not listed"
run 6 vdi list demo --columns name,used_bytes -q
[[ $(awk 'NR == 1 { print $1, $2 }' out) == "demo/db -" ]] || die "the use is not '-'"
run 6 store info demo
says out "$DIR/two"
says out "Virtual disks: "
says err "cannot open $DIR/two"
run 6 store info demo --json
[[ $(json name) == demo && $(json vdis) == 2 && $(json ours) == true ]] || die "JSON says less"

step "the first volume is lost: what this host knows is shown"
mv one gone
run 6 store info demo
says out "$DIR/one, $DIR/two"
says err "cannot open $DIR/one"
run 3 store info none
[[ ! -s out ]] || die "something is known of a store that is not"
echo "all is well"
