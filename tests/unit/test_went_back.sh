#!/bin/bash
# A store that has lost a disk's record, or shows an older one: what the commands say, and that none of their advice
# loses what the registry still knows.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# record SLOT FILE: both copies of the record in this slot of demo.plx become those of the file; /dev/zero: none.
record() {
    python3 -c '
import sys
with open("demo.plx", "r+b") as store, open(sys.argv[2], "rb") as source:
    blocks = store.read(1 << 20)
    first = next(at for at in range(0, len(blocks), 4096) if blocks[at:at + 8] == b"PLXVDREC")
    at = first + 8192 * int(sys.argv[1])
    store.seek(at)
    source.seek(at)
    store.write(source.read(8192))' "$1" "$2"
}
# fails STATUS WORDS...: like run, and notes may come before the error.
fails() {
    timeout -k 5 60 "$PARALLAX" "${@:2}" >out 2>err </dev/null
    local status=$?
    ((status == $1)) || die "parallax ${*:2}: exit status $status, not $1"
}

run 0 store format demo --volume demo.plx --size 256M --extent-size 4M
run 0 vdi create demo/a --size 16M
head -c 8M /dev/urandom >image
run 0 vdi import image demo/b
run 0 snap create demo/b --label x
cp demo.plx older.plx
run 0 snap create demo/b --label y
cp demo.plx good.plx

step "a record that is gone"
record 1 /dev/zero
run 5 store check demo
says out "virtual disk b is in the registry, and slot 1 of the store does not hold it"
grep -qE "nothing is lost|store forget" out && die "the check's advice loses the disk"
cp demo.plx before.plx
fails 5 store rebuild-registry --volume demo.plx --dry-run
says err "lost: virtual disk b: slot 1 of the store does not hold it"
same demo.plx before.plx
for _ in 1 2; do
    fails 5 store rebuild-registry --volume demo.plx
    says err "lost: virtual disk b: slot 1 of the store does not hold it"
    "$PARALLAX" gc demo >out 2>err && die "it was collected"
    run 5 store check demo
    says out "lost: virtual disk b: slot 1"
done
fails 4 vdi forget demo --lost
run 0 vdi forget demo --lost --dry-run
says err "virtual disk b: slot 1 of the store does not hold it"
says err "nothing was changed"
run 0 vdi forget demo --lost --dry-run --json
[[ $(json forgotten) == false && $(json dry_run) == true ]] || die "wrong JSON"
record 1 good.plx
run 0 store rebuild-registry --volume demo.plx
run 0 gc demo
run 0 vdi export demo/b@y back
cmp -n $((8 << 20)) image back || die "the disk's contents changed"

step "a record that went back"
cp good.plx demo.plx
record 1 older.plx
run 5 store check demo
says out "virtual disk b: its record is older than what was written last"
grep -q "unlabel" out && die "the check's advice destroys evidence"
for _ in 1 2; do
    fails 5 store rebuild-registry --volume demo.plx --dry-run --json
    [[ $(json older_records) == 1 ]] || die "wrong JSON"
    fails 5 store rebuild-registry --volume demo.plx
    says err "virtual disk b: its record is older than what was written last"
    run 5 vdi export demo/b raw
    [[ $(registry "SELECT seq FROM labels WHERE name = 'y'") == 2 ]] || die "the rebuild dropped a label"
done
cp demo.plx before.plx
fails 4 vdi accept-older demo/b
run 0 vdi accept-older demo/b --dry-run
says err "nothing was changed"
same demo.plx before.plx
run 5 vdi info demo/b
run 0 vdi accept-older demo/b --yes
run 0 vdi info demo/b
[[ $(registry "SELECT count(*) FROM extents WHERE sealed") != 0 ]] || die "what it has again, and gave back once, can be given away"
fails 5 store rebuild-registry --volume demo.plx
says err "nothing is allocated in it any more"
"$PARALLAX" store check demo >out 2>err
grep "takes over what the store says" out && die "the check's advice is what was done, and changes nothing"

step "a registry that does not know a disk: its slot is not another's, and it is whole with a new registry"
cp good.plx demo.plx
registry_edit demo.plx "DELETE FROM vdis WHERE name = 'b'"
run 1 vdi create demo/new --size 1M
says err "slot 1 of the store, where new was to be, holds b: the registry lost a write; 'parallax store rebuild-registry' makes it anew"
run 1 vdi create demo/new --size 1M
says err "until 'parallax store rebuild-registry' has made it anew"
[[ -z $(registry "SELECT 1 FROM vdis WHERE name = 'new'") ]] || die "there is a row of what was never made"
run 0 store rebuild-registry --volume demo.plx
run 0 vdi export demo/b@y back --force
cmp -n $((8 << 20)) image back || die "the disk's contents changed"
run 0 gc demo
run 0 store check demo

step "a record that went back to blocks that another disk has by now"
rm -rf demo.plx state
for name in one two three; do head -c 4M /dev/urandom >$name; done
run 0 store format demo --volume demo.plx --size 64M --extent-size 1M
run 0 vdi create demo/a --size 4M
run 0 vdi import one demo/b
run 0 snap create demo/b@x
cp demo.plx older.plx
run 0 vdi import two demo/b --force
run 0 snap create demo/b@y
run 0 snap delete demo/b@x
run 0 gc demo
for n in {1..8}; do run 0 vdi import three "demo/c$n"; done
record 1 older.plx
cp demo.plx before.plx
fails 5 vdi accept-older demo/b --yes
says err "blocks of an older state are in use by others; nothing was changed"
run 5 vdi export demo/b raw
for n in {1..8}; do
    run 0 vdi export "demo/c$n" back --force
    same three back
done
run 0 vdi delete demo/b --lost --yes
run 0 gc demo
for n in {1..8}; do
    run 0 vdi export "demo/c$n" back --force
    same three back
done
run 0 store check demo --data
echo "all is well"
