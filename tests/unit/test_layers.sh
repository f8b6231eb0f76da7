#!/bin/bash
# What is a volume of a known store is overwritten through no layer above it or below it: a loop device on a loop device
# or on its partition, the file under a file system that holds the volume, whatever their names are or were.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

made=() # what to take down again, last first
clean_up() {
    for ((i = ${#made[@]}; i-- > 0;)); do ${made[i]} 2>/dev/null; done
    rm -rf "$DIR"
}
trap clean_up EXIT

# over FILE [WORDS...]: a loop device over it, in $loop.
over() {
    loop=$(losetup --find --show "${@:2}" "$1" 2>err) || { echo "SKIPPED: no loop device: $(<err)" && exit 77; }
    made+=("losetup --detach $loop")
}

# refused TARGET STORE [FILE]: neither a store nor an image is written there, for that is, or holds, or lies in, a volume
# of that store. FILE: what would show it.
refused() {
    [[ ! ${3:-} ]] || cp --sparse=always "$3" before
    for force in --force "--force --i-checked-nobody-uses-it"; do
        for words in "format new --volume $1" "add-volume other $1"; do
            # shellcheck disable=SC2086 # words
            run 4 store $words $force
            says err "a volume of store $2 "
        done
    done
    run 4 vdi export other/image "$1" --force
    says err "a volume of store $2; it is not overwritten, with --force neither"
    timeout 60 "$PARALLAX" vdi export other/image - 1<>"$1" 2>err && die "$1: overwritten by standard output"
    says err "a volume of store $2; it is not overwritten, with --force neither"
    [[ ! ${3:-} ]] || cmp -s "$3" before || die "$1: refused, and overwritten all the same"
    run 4 store add-volume "$2" "$1" --force
    run 0 vdi export "$2/web" out.raw --force
    same out.raw image
}

head -c 1M /dev/urandom >image
run 0 store format other --volume "$DIR/other" --size 64M --extent-size 1M
run 0 vdi import image other/image

step "loop devices on loop devices, a hundred letters down"
long=$(printf 'n%.0s' {1..100})
mkdir "$long"
run 0 store format a --volume "$DIR/$long/file" --size 96M --extent-size 1M
run 0 vdi import image a/web
over "$long/file"
first=$loop
over "$first" --offset 4M
second=$loop
over "$second" --offset 4M
for device in "$first" "$second" "$loop"; do
    refused "$device" a "$long/file"
done
step "a loop device on a partition of a loop device; its neighbour is nobody's"
truncate -s 200M disk
over disk
made+=("delpart $loop 1" "delpart $loop 2")
if addpart "$loop" 1 2048 196608 2>err && addpart "$loop" 2 198656 196608 2>err && sleep 0.5 && [[ -b ${loop}p2 ]]; then
    disk=$loop
    run 0 store format part --volume "$DIR/disk" --extent-size 1M
    run 0 vdi import image part/web
    over "${disk}p1"
    refused "$loop" part disk
    over "$loop" --offset 1M
    refused "$loop" part disk
    run 0 store forget part
    run 0 store format part --volume "$loop" --extent-size 1M --force --i-checked-nobody-uses-it
    run 0 vdi import image part/web
    for target in "$DIR/disk" "$disk" "${disk}p1"; do
        refused "$target" part disk
    done
    dd if=/dev/zero of=disk bs=4k count=5 conv=notrunc status=none # what is left names the disk's former store
    cp --sparse=always disk before
    for word in --dry-run --i-checked-nobody-uses-it; do
        run 4 store restore-superblock "$DIR/disk" $word
        says err "$DIR/disk overlaps $loop, which is a volume of store part (with web)"
    done
    cmp -s disk before || die "superblocks were written over the beginning of a disk with a volume"
    over "${disk}p2"
    run 0 store format neighbour --volume "$loop" --extent-size 1M --force --i-checked-nobody-uses-it
    run 0 store forget neighbour
    run 0 store forget part
else
    part_skipped "a partition: $(<err)"
fi

step "the file of a loop device is known by what it is, when its name is gone"
ln "$long/file" name
over name
rm name
refused "$loop" a "$long/file"
mv "$long" moved && ln -s moved "$long"
refused "$first" a moved/file
# holds FILE-SYSTEM OPTION: a store's file on it, and what is below.
holds() {
    step "below a mounted $1 that holds a volume"
    truncate -s 256M "below.$1"
    over "below.$1"
    local below=$loop
    { mkdir "on.$1" && "mkfs.$1" "$2" "$loop" >/dev/null 2>err && mount "$loop" "on.$1" 2>err; } ||
        { part_skipped "below $1: $(head -n 1 err)" && return; }
    made+=("umount on.$1")
    run 0 store format "$1" --volume "$DIR/on.$1/file" --size 64M --extent-size 1M
    run 0 vdi import image "$1/web"
    over "below.$1"
    for target in "$DIR/below.$1" "$loop"; do
        refused "$target" "$1"
    done
    { umount "on.$1" && mount "$below" "on.$1"; } || die "$1 is no file system any more"
    run 0 vdi export "$1/web" -
    same out image
    truncate -s 64M "on.$1/free"
    run 0 store format free --volume "$DIR/on.$1/free" --extent-size 1M
    run 0 store forget free
    truncate -s 80M "on.$1/nested"
    over "on.$1/nested"
    run 0 store format nested --volume "$loop" --extent-size 1M
    run 0 vdi import image nested/web
    run 0 store forget "$1"
    refused "$DIR/below.$1" nested
    run 0 store forget nested
}
holds ext4 -q
holds btrfs -q
