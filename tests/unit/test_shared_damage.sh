#!/bin/bash
# Damaged blocks that several have: the check names all of them, and neighbours are one line.
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
echo "all is well"
