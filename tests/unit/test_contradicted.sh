#!/bin/bash
# The registry and the bitmaps of extents went back to an older state together, so they agree; the disks know better.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

for name in one two three; do head -c 4M /dev/urandom >$name.raw; done

# went_back FILE: the registry and the pages of all extents, as they are there.
went_back() {
    python3 - "$1" "$DIR/demo.plx" <<'END'
import struct, sys
old, volume = open(sys.argv[1], "rb").read(), open(sys.argv[2], "r+b")
now, extent = volume.read(), 1 << 20
spans = [struct.unpack_from("<QQ", now, 2048 + 32 * n + 8) for n in range(struct.unpack_from("<I", now, 196)[0])]
system = [no for first, count in spans for no in range(first, first + count)]
assert system
for no in range(1, len(now) // extent):
    volume.seek(no * extent)
    volume.write(old[no * extent : no * extent + (extent if no in system else 8192)])
END
}

# rebuilt: what is not believed is in err.
rebuilt() {
    "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" >out 2>err
    [[ $? == 5 ]] || die "the rebuild did not end with 5"
}

for how in "as it was left" "seen by a snapshot only" "open when its host died"; do
    step "registry and bitmaps went back together, a disk $how: a rebuild believes no bitmap that a disk contradicts"
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 128M --extent-size 1M
    run 0 vdi import one.raw demo/old
    cp --sparse=always demo.plx old.plx
    run 0 vdi import three.raw demo/young
    case $how in
        seen*)
            run 0 snap create demo/young@three
            run 0 vdi clone demo/young@three demo/late
            run 0 vdi import one.raw demo/young --force
            run 0 rewind demo/young --to three
            ;;
        open*)
            rm -f pipe
            mkfifo pipe
            "$PARALLAX" vdi import pipe demo/open --size 4M >out 2>err &
            running=$!
            { cat one.raw; kill -KILL "$running"; } >pipe
            wait "$running" 2>/dev/null && die "it was not killed"
            ;;
    esac
    went_back old.plx
    rebuilt
    says err "its bitmap calls free"
    for n in {1..8}; do run 0 vdi import two.raw "demo/fill$n"; done
    run 0 gc demo
    for n in {9..12}; do run 0 vdi import two.raw "demo/fill$n"; done
    run 0 vdi export demo/young out.raw --force
    same three.raw out.raw
    run 0 vdi export demo/old out.raw --force
    same one.raw out.raw
    run 5 store check demo # the bitmaps are as they were
    rebuilt
done

step "what was not believed before is not called older by the next rebuild"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 128M --extent-size 1M
run 0 vdi import one.raw demo/one
registry_edit demo.plx "UPDATE extents SET sealed = 1, states = 9223372036854775807 WHERE no = (SELECT min(no) FROM extents WHERE type = 'data')"
rebuilt
says err "the registry knows that its header is not to be believed; nothing is allocated in it any more"
grep -q "header is older" err && die "it is called older: $(<err)"
run 0 vdi export demo/one out.raw --force
same one.raw out.raw
