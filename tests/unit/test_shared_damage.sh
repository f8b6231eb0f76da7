#!/bin/bash
# Damaged blocks, nodes and extents that several have: the check names all of them, and neighbours are one line.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# damage IMAGE BLOCK...: where the store has these blocks of the image.
damage() {
    python3 -c '
import sys
with open("demo.plx", "r+b") as store, open(sys.argv[1], "rb") as image:
    bytes = store.read()
    contents = image.read()
    for block in map(int, sys.argv[2:]):
        at = bytes.index(contents[block * 4096:(block + 1) * 4096])
        store.seek(at + 100)
        store.write(b"damaged")' "$@"
}
check() {
    timeout -k 5 60 "$PARALLAX" store check demo --data "$@" >out 2>err </dev/null
    [[ $? == 5 ]] || die "the check finds nothing"
}
head -c 1M /dev/urandom >image
head -c 1M /dev/urandom >later
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi import image demo/web
run 0 snap create demo/web@one
for clone in first second; do run 0 vdi clone demo/web@one demo/$clone; done
run 0 vdi import later demo/second --force # shares nothing any more

step "neighbours are one line, and whoever has them is named"
damage image 4 5 6 7 9
check
for disk in web first; do
    says out "error: virtual disk $disk: blocks 4 to 7 do not match their checksums (store blocks "
    says out "error: virtual disk $disk: block 9 does not match its checksum (store block "
done
! grep -q "virtual disk second: .*match" out || die "a disk is named that has none of them"
check --json
[[ $(json errors) == 4 && $(json findings 0 vdi_block) == 4 && $(json findings 0 blocks) == 4 ]] || die "the JSON does not have the ranges"

step "what is damaged in a snapshot only"
run 0 vdi delete demo/first --yes
run 0 vdi import later demo/web --force
check
grep -q "error: virtual disk web: blocks 4 to 7 do not match .*only snapshots have" out || die "the snapshot's damage is not told"
for disk in web second; do
    run 0 vdi export demo/$disk back --force
    same back later
done
run 5 vdi export demo/web@one back --force

step "an extent that calls itself unused, and a node: whoever has blocks there is named, once"
store() { # a store of three disks that share the image; first kept it all, second nothing
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
    run 0 vdi import image demo/web
    run 0 snap create demo/web@one
    for clone in first second; do run 0 vdi clone demo/web@one demo/$clone; done
    run 0 vdi import later demo/second --force
    run 0 vdi import later demo/web --force
}
store
python3 -c '
with open("demo.plx", "r+b") as store, open("image", "rb") as image:
    at = store.read().index(image.read(4096)) >> 20 << 20
    store.seek(at)
    store.write(bytes(8192))'
check
says out "error: virtual disk web: blocks 0 to 253 lie in no data extent; only snapshots have them (store blocks "
says out "error: virtual disk first: blocks 0 to 253 lie in no data extent (store blocks "
! grep -q "virtual disk second: .*extent" out || die "a disk is named that has nothing there"
[[ $(grep -c "in no data extent" out) == 2 ]] || die "neighbours are several lines"
check --json
[[ $(json findings 0 kind) == address && $(json findings 0 blocks) == 254 ]] || die "the JSON does not have the ranges"
store
python3 -c '
import struct
with open("demo.plx", "r+b") as store, open("image", "rb") as image:
    bytes, contents = store.read(), image.read()
    places = [bytes.index(contents[at:at + 4096]) // 4096 for at in range(0, len(contents), 4096)]
    names = lambda at: [word & (1 << 38) - 1 for word in struct.unpack_from("<256Q", bytes, at)]
    leaves = [at for at in range(0, len(bytes), 4096) if names(at) == places[:256]]
    assert leaves, "no leaf"
    for at in leaves:
        store.seek(at + 4000)
        store.write(b"damaged")' || die "no leaf was found"
check
for disk in web first; do says out "error: virtual disk $disk: node of level 1, which leads to blocks 0 to 255, does not match its checksum"; done
! grep -q "virtual disk second: node" out || die "a disk is named that does not need the node"
echo "all is well"
