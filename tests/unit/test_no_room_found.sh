#!/bin/bash
# A full file system below a volume costs nothing: whatever a command could not do there, the check finds no damage,
# and a command that says it has done something has. Little room is left, and a little more each time, so that it ends
# at each of the places where a command wants some.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

[[ $(id -u) == 0 ]] || { echo "SKIPPED: root is needed to mount" && exit 77; }
# In a name space of its own: its mounts go with it.
if [[ -z ${FULL_INSIDE:-} ]]; then
    unshare -m true 2>/dev/null || { echo "SKIPPED: no name spaces can be made here" && exit 77; }
    FULL_INSIDE=1 exec unshare -m "$SOURCE/tests/unit/test_no_room_found.sh"
fi
mkdir below && mount -t tmpfs none below || exit 1
trap 'umount "$DIR/below"; rm -rf "$DIR"' EXIT
yes some-text | head -c 40M >large
head -c 1M /dev/urandom >small

# attempt WORDS...: it is done, or there is no room for it (6) and nothing else is the matter; its status is in status.
attempt() {
    timeout -k 5 300 "$PARALLAX" "$@" >out 2>err </dev/null
    status=$?
    [[ $status == 0 || $status == 6 ]] || die "parallax $* with $room KiB of room: exit status $status"
}

# whole: no error is found, though something may be left to do.
whole() {
    "$PARALLAX" store check demo >out 2>err || die "after '$1' with $room KiB of room the check finds damage"
}

# deleted NAME: it is gone if the command says so, and else is there.
deleted() {
    attempt vdi delete "demo/$1" --yes
    local said=$status
    run 0 vdi list demo
    grep -q "demo/$1 " out && [[ $said == 0 ]] && die "demo/$1 is said to be deleted, and is not ($room KiB of room)"
    grep -q "demo/$1 " out || [[ $said == 0 ]] || die "demo/$1 is deleted, and that failed ($room KiB of room)"
    whole "vdi delete demo/$1"
}

# with_room KIB EXTENTS...: a store with two disks, a full file system, and room again.
with_room() {
    room=$1
    mount -o remount,size=300m below || exit 1
    rm -rf state below/one
    run 0 store format demo --volume below/one --size 300M "${@:2}"
    run 0 vdi create demo/kept --size 4M
    run 0 vdi import small demo/kept --force
    run 0 vdi create demo/large --size 40M
    run 0 snap create demo/kept@clean
    mount -o remount,size=$(($(du -k below/one | cut -f 1) + room))k below || exit 1
    run 6 vdi import large demo/large
    whole "vdi import"
    deleted large
    attempt snap create demo/kept
    whole "snap create"
    attempt vdi create demo/more --size 1M
    whole "vdi create"
    attempt gc demo
    whole "gc"
    mount -o remount,size=300m below || exit 1
    run 0 gc demo
    run 0 vdi export demo/kept@clean -
    cmp -s -n 1048576 out small || die "demo/kept@clean is not what it was ($room KiB of room)"
    rm out
    run 0 store check demo --data
    says out "Errors:                  0"
}

for room in 12 44 396 824; do
    step "$room KiB of room"
    with_room "$room"
    with_room "$room" --extent-size 1M
done
