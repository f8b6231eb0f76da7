#!/bin/bash
# A volume by another name, and a volume that is a part of another one: a disk and its partition, a loop device and its
# file. What is a volume of a known store is overwritten through none of them, and the message names both.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

truncate -s 320M below
loop=$(losetup --find --partscan --show below 2>err) || { echo "SKIPPED: no loop device: $(<err)" && exit 77; }
clean_up() {
    umount "$DIR/mounted" 2>/dev/null
    delpart "$loop" 1 2>/dev/null
    delpart "$loop" 2 2>/dev/null
    losetup --detach "$loop"
    rm -rf "$DIR"
}
trap clean_up EXIT
if ! addpart "$loop" 1 2048 262144 2>err || ! addpart "$loop" 2 264192 262144 2>err; then
    echo "SKIPPED: no partitions: $(<err)" && exit 77
fi
for _ in {1..50}; do
    [[ ! -b ${loop}p2 ]] || break
    sleep 0.1
done
[[ -b ${loop}p2 ]] || { echo "SKIPPED: the partitions have no names here" && exit 77; }
head -c 4M /dev/urandom >image
run 0 store format other --volume "$DIR/other" --size 64M --extent-size 1M

# refused DEVICE VOLUME STORE: nothing writes over the one, for the other is a volume of that store.
refused() {
    sha256sum <below >before
    for force in --force "--force --i-checked-nobody-uses-it"; do
        for words in "store format new --volume $1" "store add-volume other $1"; do
            # shellcheck disable=SC2086 # words
            run 4 $words $force
            says err "$1 overlaps $2, which is a volume of store $3 (with web)"
        done
    done
    run 4 vdi export other/image "$1" --force
    says err "$1 overlaps $2, which is a volume of store $3; it is not overwritten, with --force neither"
    sha256sum <below | cmp -s before || die "$1: refused, and overwritten all the same"
}

step "a partition is a volume: its neighbour may be one, the whole disk may not"
run 0 vdi import image other/image
run 0 store format part --volume "${loop}p1" --extent-size 1M
run 0 vdi import image part/web
refused "$loop" "${loop}p1" part
refused "$DIR/below" "${loop}p1" part
run 0 store format next --volume "${loop}p2" --extent-size 1M
run 0 store forget next
run 0 vdi export part/web -
same out image
run 0 store forget part

step "two volumes of one store"
run 1 store format new --volume "$loop" --volume "${loop}p2" --force
says err "overlap: one is a part of the other"
run 1 store format new --volume "${loop}p1" --volume "$DIR/below" --force
says err "overlap: one is a part of the other"
run 1 store format new --volume "$loop" --volume "$DIR/below" --force
says err "are the same volume"

step "the whole disk is a volume: its partitions are none"
run 0 store format whole --volume "$loop" --extent-size 1M --force --i-checked-nobody-uses-it
run 0 vdi import image whole/web
refused "${loop}p1" "$loop" whole
refused "${loop}p2" "$loop" whole
run 0 store scan "$loop" --json
[[ $(json 0 known) == whole ]] || die "the scan does not know the store"

step "by the name of its file a store is itself, and no copy of itself"
run 4 store import twin --new-identity --volume "$DIR/below"
says err "is store whole itself"
run 0 store import --volume "$DIR/below"
run 0 vdi export whole/web -
same out image
run 0 store forget whole

step "what the kernel has in use is not written over: a partition that is mounted, and its disk"
mkfs.ext4 -q "${loop}p1" 2>err || { part_skipped "a mounted partition: $(head -n 1 err)"; exit 0; }
mkdir mounted
mount "${loop}p1" mounted 2>err || { part_skipped "a mounted partition: $(head -n 1 err)"; exit 0; }
for device in "${loop}p1" "$loop"; do
    run 4 store format new --volume "$device" --force
    says err "$device is in use: mounted, or part of a RAID, LVM or multipath device"
    run 4 store add-volume other "$device" --force
done
run 4 vdi export other/image "${loop}p1" --force
says err "${loop}p1 is in use: mounted, or part of a RAID, LVM or multipath device"
