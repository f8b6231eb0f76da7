#!/bin/bash
# A device that has lost the superblocks of store grow or store add-volume, both copies, beside a registry that
# knows what the store has: that is told, nothing is lost, and each of the two ways out works.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# Both superblocks of a volume, and volumes, as they were.
keep() { head -c 8192 one >superblocks; }
lose() { dd if=superblocks of=one conv=notrunc bs=8192 status=none || die "no superblocks to put back"; }

intact() {
    for disk in a b; do
        run 0 vdi export demo/$disk -
        same out $disk
    done
}

# told TEXT: that the superblock is older; what is read is read, and nothing is written.
told() {
    run 5 store check demo
    says out "one: its superblock is older than the registry: the device lost a write"
    says out "'parallax store grow demo' writes it again"
    intact
    for command in "vdi create demo/c --size 1M" "snap create demo/a" "gc demo" "vdi delete demo/a --yes"; do
        # shellcheck disable=SC2086 # words
        run 5 $command
        says err "its superblock is older than the registry of store demo"
        says err "'parallax store grow demo' has written it again"
    done
    run 0 store info demo
}

# And afterwards the store is whole, and not only for whoever knows the registry.
whole() {
    run 0 store check demo
    run 0 gc demo
    run 0 vdi create demo/c --size 1M
    run 0 vdi delete demo/c --yes
    run 0 gc demo
    intact
    run 0 store scan "$@" --json
    run 0 store grow demo
    says err "has all there is already: 96 MiB"
    if grep -q older err; then die "the superblock is still older"; fi
}

mended() {
    run 0 store grow demo --dry-run
    says err "it would be written again"
    run 0 store grow demo --json
    [[ $(json restored) == true && $(json added_bytes) == 0 ]] || die "the superblock was not written again"
}

rebuilt() {
    run 0 store rebuild-registry --dry-run "$@"
    says err "2 virtual disks"
    run 0 store rebuild-registry "$@"
    says err "2 virtual disks"
}

step "a store that grew, with data in what came"
run 0 store format demo --volume one --size 64M --extent-size 1M
head -c 50M /dev/urandom >a
head -c 20M /dev/urandom >b
run 0 vdi import a demo/a
keep
truncate -s 96M one
run 0 store grow demo
run 0 vdi import b demo/b
cp one grown

step "its superblocks go back: grow writes them again"
lose
told
mended
whole one

step "one copy of a superblock is damaged: grow writes it again, and so does restoring"
cp grown one
for words in "grow demo" "restore-superblock one --i-checked-nobody-uses-it"; do
    head -c 4096 /dev/urandom | dd of=one conv=notrunc status=none
    run 5 store check demo
    says out "copy 0 of the superblock is damaged; 'parallax store grow demo' writes it again"
    says err "1 error found; each finding says what to do"
    # shellcheck disable=SC2086 # words
    run 0 store $words
    run 0 store check demo
done

step "one copy of the home page is damaged or empty, which only a check says: what it advises writes it again"
for slot in 0 1; do
    for from in /dev/urandom /dev/zero; do
        cp grown one
        dd if=$from of=one conv=notrunc status=none bs=4k seek=$((2 + slot)) count=1
        cp one harmed
        run 5 store check demo
        says out "error: volume 0, $DIR/one: copy $slot of the home page, block $((2 + slot)), is damaged or cannot be read; the other one is whole; 'parallax store grow demo' writes it again"
        says err "1 error found; each finding says what to do"
        run 5 store check demo --data --json
        [[ $(json findings 0 kind) == home && $(json findings 0 volume) == "$DIR/one" &&
            $(json findings 0 volume_block) == $((2 + slot)) && $(json errors) == 1 ]] ||
            die "the JSON does not say which copy"
        dd if=harmed bs=4k skip=2 count=2 status=none | cmp -s - <(dd if=one bs=4k skip=2 count=2 status=none) ||
            die "a check has written the home page"
        intact
        run 0 store grow demo
        run 0 store check demo
    done
done

step "they go back: the registry is rebuilt first"
cp grown one
lose
rebuilt --volume one
told
mended
whole one

step "they go back, and a process that died has extents there"
cp grown one
(head -c 1M b; sleep 30) | "$PARALLAX" vdi import - demo/dead --size 4M >out 2>err &
importer=$!
for ((i = 0; i < 300; i++)); do
    run 0 vdi list demo --json
    grep -q '"dead"' out && grep -q admin out && break
    sleep 0.1
done
kill -9 "$importer"
wait "$importer" 2>/dev/null
lose
told
mended
run 0 vdi delete demo/dead --yes
run 0 gc demo
whole one

step "they go back, and the registry is lost as well"
cp grown one
lose
dd if=/dev/zero of=one bs=1M seek=1 count=3 conv=notrunc status=none
"$PARALLAX" store info demo >out 2>err && die "a store without a registry was opened"
"$PARALLAX" store rebuild-registry --volume one >out 2>err # of what can be seen without the rest
run 0 store grow demo
says err "demo grew by 32 MiB"
rebuilt --volume one
whole one

step "a store with a further volume, which volume 0 forgets"
run 0 store forget demo
rm one
run 0 store format demo --volume one --size 64M --extent-size 1M
run 0 vdi import a demo/a
keep
run 0 store add-volume demo two --size 32M
run 0 vdi import b demo/b
cp one grown && cp two grown2
lose
told
mended
whole one two

step "likewise, and the registry is rebuilt first, of all volumes"
cp grown one && cp grown2 two
lose
run 1 store rebuild-registry --volume one
says err "two is volume 1 of store demo, as its registry knows; name all volumes"
rebuilt --volume one --volume two
told
mended
whole one two

step "rows that say too much are no reason to write anything"
for rows in "UPDATE volumes SET extents = extents + 64 WHERE idx = 1" \
    "INSERT INTO volumes SELECT store, 2, 0, '00000000-0000-4000-8000-000000000000', '/nowhere', 96, 5, 0 FROM volumes WHERE idx = 0"; do
    cp grown one && cp grown2 two
    registry_edit one "$rows"
    "$PARALLAX" store grow demo >out 2>err && die "the store grew by a row"
    head -c 8192 one | cmp -s - <(head -c 8192 grown) || die "a row was written to the superblock"
    rebuilt --volume one --volume two
    whole one two
done

step "nor are rows of extents that the store has not"
cp grown one && cp grown2 two
for number in 7000 -1 4611686018427387904; do
    registry_edit one "PRAGMA ignore_check_constraints = ON; DELETE FROM extents WHERE no > 96 OR no < 0;
        INSERT INTO extents (store, no, type) SELECT id, $number, 'data' FROM store"
    run 5 store info demo
    says err "beyond the end of the store, which has 96; 'parallax store rebuild-registry demo' rebuilds its registry"
    run 5 store check demo
    says out "beyond the end of the store, which has 96; 'parallax store rebuild-registry demo'"
    run 0 vdi create demo/d --size 1M
    run 0 vdi delete demo/d --yes
    run 0 gc demo
    intact
done
rebuilt --volume one --volume two
whole one two

step "a store with a feature that those who write must know is read"
python3 - one two <<'END' || die "the superblocks cannot be changed"
import sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
for path in sys.argv[1:]:
    with open(path, "r+b") as volume:
        for at in (0, 4096):
            volume.seek(at)
            block = bytearray(volume.read(4096))
            block[24] = 4
            block[8:12] = bytes(4)
            block[8:12] = crc32c(block).to_bytes(4, "little")
            volume.seek(at)
            volume.write(block)
END
cp one newer
cp two newer2
intact
for command in "vdi create demo/c --size 1M" "snap create demo/a" "gc demo" "vdi delete demo/a --yes" "store grow demo" \
    "store release demo" "store take-over demo --any --i-checked-it-is-off" "store rebuild-registry --volume one --volume two" \
    "store set demo --warn-at 80%" "vdi import a demo/a --force" "vdi set demo/a --warn-at 80%"; do
    # shellcheck disable=SC2086 # words
    run 1 $command
    says err "this Parallax may only read the store"
done
for command in "vdi list demo" "store info demo" "store check demo" "store list" "snap list demo/a" "vdi info demo/a"; do
    # shellcheck disable=SC2086 # words
    run 0 $command
done
intact
same one newer
same two newer2
