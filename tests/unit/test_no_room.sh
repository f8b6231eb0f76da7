#!/bin/bash
# Full file systems: the one that a volume lies in, and the one of the state directory. What was acknowledged stays,
# reading works, advice says where room is to be made, and with room all goes on.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

[[ $(id -u) == 0 ]] || { echo "SKIPPED: root is needed to mount" && exit 77; }
# In a name space of its own: its mounts go with it.
if [[ -z ${FULL_INSIDE:-} ]]; then
    unshare -m true 2>/dev/null || { echo "SKIPPED: no name spaces can be made here" && exit 77; }
    FULL_INSIDE=1 exec unshare -m "$SOURCE/tests/unit/test_no_room.sh"
fi
mkdir below full && mount -t tmpfs -o size=24m none below || exit 1

step "a store that is larger than the room below it"
run 0 store format demo --volume below/one --size 200M --extent-size 1M
run 0 vdi create demo/kept --size 4M
yes contents | head -c 2M >kept
run 0 vdi import kept demo/kept --force
head -c 40M /dev/urandom >large
run 6 vdi import large demo/large
run 6 snap create demo/kept
says err "make room in its file system or thin LUN"
run 0 vdi list demo
run 0 vdi export demo/kept -
cmp -s out <(cat kept; head -c 2M /dev/zero) || die "demo/kept is not what it was"
rm out

step "with room it goes on"
mount -o remount,size=300m below || exit 1
run 0 gc demo
run 0 vdi import large demo/large
run 0 vdi export demo/large -
cmp -s out large || die "demo/large is not what was imported"
rm out
run 0 snap create demo/kept
run 0 store check demo --data
says out "Errors:                  0"

step "a state directory without room: reading needs none"
mount -t tmpfs -o size=1m none full && cp -r state/. full/ && cat /dev/zero >full/ballast 2>/dev/null
export PARALLAX_STATE_DIR=$DIR/full
for command in "store list" "store info demo" "vdi list demo" "snap list demo/kept" "vdi info demo/kept" "store check demo"; do
    # shellcheck disable=SC2086 # words
    run 0 $command
done
run 0 vdi export demo/kept@1 -
cmp -s out <(cat kept; head -c 2M /dev/zero) || die "demo/kept@1 cannot be read"
rm out
umount full below
