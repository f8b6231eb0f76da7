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
trap 'umount -q "$DIR/full" "$DIR/below"; rm -rf "$DIR"' EXIT
mkdir below full && mount -t tmpfs -o size=24m none below || exit 1

step "a store that is larger than the room below it"
run 0 store format demo --volume below/one --size 200M --extent-size 1M
run 0 vdi create demo/kept --size 4M
run 0 snap create demo/kept@first
yes contents | head -c 2M >kept
head -c 2M /dev/zero >>kept
run 0 vdi import kept demo/kept --force
run 0 snap create demo/kept@second
head -c 40M /dev/urandom >large
"$PARALLAX" vdi import large demo/large >out 2>err # it may note besides what it could not give back
[[ $? == 6 ]] || die "there was room for demo/large"
run 6 store add-volume demo below/two --size 32M
says err "make room in its file system or thin LUN"
[[ ! -e below/two ]] || die "a file was left behind"
run 6 snap create demo/kept
says err "make room in its file system or thin LUN"
run 0 vdi list demo
run 0 vdi export demo/kept -
cmp -s out kept || die "demo/kept is not what it was"
rm out

step "snapshots are read without writing the registry, and none goes meanwhile"
run 0 vdi export demo/kept@second -
cmp -s out kept || die "demo/kept@second is not what it was"
run 0 vdi export-diff demo/kept@first demo/kept@second -
rm out
run 0 diff demo/kept@first demo/kept@second
run 0 gc demo --dry-run
mkfifo pipe
"$PARALLAX" vdi export demo/kept@second - 2>err >pipe &
reader=$!
exec 9<pipe
head -c 4096 <&9 >was-read
mount -o remount,size=300m below || exit 1
run 0 snap create demo/kept
run 0 gc demo
run 4 snap delete demo/kept@second --wait 0
# Seldom its row fits into what the registry has of the volume already.
grep -q "is being read by a parallax command" err || says err "a process that cannot write to its volume reads snapshots"
cat <&9 >>was-read
exec 9<&-
wait "$reader" || die "the reader failed"
same was-read kept

step "with room it goes on"
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
run 0 vdi export demo/kept@second -
cmp -s out kept || die "demo/kept@second cannot be read"
rm out
mount --bind /dev/null /etc/machine-id # a host that would have to keep an id of its own there
run 0 vdi export demo/kept@second -
cmp -s out kept || die "demo/kept@second cannot be read by a host without an id"
rm out
run 6 snap create demo/kept
says err "host-id cannot be made: no room is left there; free some"
umount /etc/machine-id
umount full below
