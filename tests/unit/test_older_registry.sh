#!/bin/bash
# The registry alone went back, though it lies in the store: a device that lost writes to that place. What it has forgotten,
# extents, disks, a clone, or a collection that has come further, costs nobody anything.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"

for name in one two three; do head -c 4M /dev/urandom >$name; done

# registry_back FILE: the registry is what it was there.
registry_back() {
    python3 - "$1" "$DIR/demo.plx" <<'END'
import struct, sys
old, volume = open(sys.argv[1], "rb").read(), open(sys.argv[2], "r+b")
extent = 1 << 20
spans = [struct.unpack_from("<QQ", old, 2048 + 32 * n + 8) for n in range(struct.unpack_from("<I", old, 196)[0])]
assert spans
for first, count in spans:
    volume.seek(first * extent)
    volume.write(old[first * extent : (first + count) * extent])
END
}

# exported NAME FILE: that is what it holds.
exported() {
    run 0 vdi export "demo/$1" back --force
    same back "$2"
}

# rebuild: what went back is told, or nothing did.
rebuild() {
    "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" >out 2>err
    [[ $? == [05] ]] || die "no new registry"
}

# doubted: somebody noted that the registry is older.
doubted() {
    run 0 store info demo --json
    [[ $(json doubt) != null ]] || die "nobody noted what was seen"
}

step "it does not know which extents are used: nobody else's data goes there"
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi create demo/a --size 4M
run 0 vdi create demo/b --size 4M
cp demo.plx before.plx
run 0 vdi import one demo/a --force
registry_back before.plx
cp demo.plx found.plx
run 4 vdi import two demo/b --force
says err "'parallax store rebuild-registry demo' takes over what the store says"
doubted
cp found.plx demo.plx # as it was before somebody noted it
run 4 vdi import two demo/new
says err "demo/new cannot be opened: extent "
doubted
[[ -z $(registry "SELECT 1 FROM vdis WHERE name = 'new' AND state = 'live'") ]] || die "what could not be imported stays"
run 4 vdi import two demo/new
[[ -z $(registry "SELECT 1 FROM vdis WHERE name = 'new' AND state = 'live'") ]] || die "what was refused stays"
run 4 store grow demo
says err "the store is in doubt, and does not grow"
says err "; 'parallax store rebuild-registry demo' takes over what the store says"
run 4 vdi create demo/new --size 4M --json
python3 -c 'import json; assert json.load(open("err"))["error"]["code"] == "DOUBT"' || die "the error is no doubt"
rebuild
run 3 vdi info demo/new
exported a one
run 0 vdi import two demo/b --force
exported a one
exported b two

step "it does not know a disk: its slot is given to no other, and nothing undoes it"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
cp demo.plx before.plx
run 0 vdi import one demo/web
registry_back before.plx
for _ in 1 2; do
    run 4 vdi create demo/new --size 4M
    says err "'parallax store rebuild-registry demo'"
done
doubted
for words in "vdi export demo/web back" "vdi info demo/web" "vdi export demo/web@1 back" "snap create demo/web" "snap list demo/web"; do
    # shellcheck disable=SC2086 # words
    run 3 $words
    says err "the registry has no virtual disk demo/web, and the store is in doubt: "
    says err "'parallax store rebuild-registry demo'"
done
rebuild
exported web one

step "it has given out fewer epochs than the disk has had: the first who opens that sees it"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi create demo/a --size 4M
cp demo.plx before.plx
for _ in 1 2 3; do run 0 vdi import one demo/a --force; done
registry_back before.plx
run 4 snap create demo/a
says err "virtual disk a: its record on the store is newer than the registry knows"
doubted
rebuild
exported a one

step "it knows a disk that is deleted, in whose slot is another by now: that one is neither read nor written nor deleted as the first"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi import one demo/a
run 0 snap create demo/a@x
cp demo.plx before.plx
run 0 vdi delete demo/a --yes
run 0 gc demo
run 0 vdi import two demo/b
run 0 snap create demo/b@y
[[ $(registry "SELECT slot FROM vdis WHERE name = 'b'") == 0 ]] || die "it is in another slot"
registry_back before.plx
for words in "vdi bench demo/a --rw randwrite --force --runtime 1" "vdi export demo/a back --force" "vdi export demo/a@x back --force" \
    "vdi clone demo/a@x demo/kid" "snap create demo/a" "vdi delete demo/a --yes"; do
    # shellcheck disable=SC2086 # words
    "$PARALLAX" $words >out 2>err && die "parallax $words takes one disk for another"
done
rebuild
exported b two
exported b@y two

step "it does not know of a clone: the snapshot that this began with does not go"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi import one demo/a
run 0 snap create demo/a@x
run 0 vdi import two demo/a --force
run 0 snap create demo/a@y
cp demo.plx before.plx
run 0 vdi clone demo/a@x demo/clone
registry_back before.plx
run 0 vdi list demo --json
[[ $(<out) != *demo/clone* ]] || die "the registry is not older"
run 4 snap delete demo/a@x
says err "cannot be opened: extent"
says err "the registry lost a write; 'parallax store rebuild-registry demo' takes over what the store says"
run 5 store check demo
says err "found; each finding says what to do"
run 0 store info demo --json
[[ $(json doubt) != null ]] || die "nobody noted what was seen"
run 4 vdi import three demo/new
run 4 gc demo
rebuild
for n in {1..4}; do run 0 vdi import three "demo/new$n"; done
exported clone one
exported a@x one
exported a two

step "it takes a disk for a dead one's that has been recovered, and closed, since: nobody recovers it again by that"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi import one demo/a
run 0 vdi create demo/b --size 4M
cp demo.plx whole.plx
# He has claimed what a snapshot takes: an extent that is claimed later would tell of it, too.
for ((at = 10, extents = 0; extents == 0; at += 10)); do
    cp whole.plx demo.plx
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" vdi import three demo/a --force; } >out 2>err && die "nobody died with the disk open"
    extents=$(registry "SELECT count(*) FROM extents, vdis WHERE name = 'a' AND extents.owner = vdis.owner")
done
cp demo.plx before.plx
run 0 snap create demo/a@kept
run 0 snap create demo/a@two
run 0 vdi export demo/a@kept kept
registry_back before.plx
for _ in 1 2 3; do # each attempt raises the epoch that the registry knows
    run 4 snap create demo/a --wait 0 # it was not recovered by what the registry had forgotten
    says err "'parallax store rebuild-registry demo'"
    grep -q "'parallax store info" err && die "it is not said what was seen"
done
doubted
exported a kept # which needs no lock
rebuild
exported a@kept kept
exported a@two kept
run 0 vdi import three demo/b --force
exported a kept

step "it is amid a collection that has ended since: what was garbage is a disk's by now, and is not freed"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi import one demo/kept
for n in {1..4}; do run 0 vdi import two "demo/gone$n"; done
for n in {1..4}; do run 0 vdi delete "demo/gone$n" --yes; done
cp demo.plx whole.plx
for ((at = 600, found = 0; found == 0; at += 15)); do
    cp whole.plx demo.plx
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" gc demo; } >out 2>err && die "no collection was broken off amid its garbage"
    found=$(registry "SELECT count(*) FROM garbage, collections WHERE phase = 'sweep'")
done
cp demo.plx before.plx
run 0 gc demo
for n in {1..4}; do run 0 vdi import three "demo/new$n"; done
registry_back before.plx
run 4 gc demo # an extent is newer than the registry knows
says err "the registry lost a write"
doubted
rebuild
for n in {5..8}; do run 0 vdi import one "demo/new$n"; done
exported kept one
for n in {1..4}; do exported "new$n" three; done

step "a single page of it is older: whoever reads it says so, and the check does (REGION-12)"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi import one demo/a
for n in {1..20}; do run 0 snap create "demo/a@s$n"; done
cp demo.plx before.plx
for n in {1..12}; do run 0 vdi create "demo/d$n" --size 8M; done
for n in {21..40}; do run 0 snap create "demo/a@s$n"; done
cp demo.plx whole.plx
# pages: where the database halves of both have something, and not the same.
pages() {
    python3 - "$1" "$2" <<'END'
import struct, sys
old, new = (open(name, "rb").read() for name in sys.argv[1:])
for n in range(struct.unpack_from("<I", new, 196)[0]):
    first, count = struct.unpack_from("<QQ", new, 2048 + 32 * n + 8)
    for at in range(first << 20, ((first << 20) + (count << 19)), 4096):
        if any(old[at : at + 4096]) and old[at : at + 4096] != new[at : at + 4096]:
            print(at // 4096)
END
}
told=0 harmless=0
for page in $(pages before.plx whole.plx); do
    cp whole.plx demo.plx
    dd if=before.plx of=demo.plx bs=4096 skip="$page" seek="$page" count=1 conv=notrunc status=none
    cp demo.plx older.plx
    "$PARALLAX" vdi create demo/new --size 8M >created 2>refused
    status=$?
    cp older.plx demo.plx
    "$PARALLAX" snap create demo/a >created 2>refused_too
    opened=$?
    ((opened == 0)) || { ((opened == 5)) && grep -q "; 'parallax store rebuild-registry .*rebuilds it" refused_too; } ||
        die "opening a disk ends with $opened: $(cat refused_too)"
    cp older.plx demo.plx
    if "$PARALLAX" store check demo >out 2>err; then # of the table of stamps the slot that does not count
        ((status == 0)) || die "the check finds nothing, and vdi create says: $(cat refused)"
        harmless=$((harmless + 1))
        continue
    fi
    grep -q "registry" out err || die "the check does not say what went back"
    "$PARALLAX" store rebuild-registry demo >out 2>said || (($? == 5)) || die "a rebuild fails: $(cat said)"
    exported a one
    run 0 store check demo
    if ((status == 0)); then continue; fi # it needed other pages only
    grep -q "the device lost a write" refused || die "vdi create ends with $status"
    told=$((told + 1))
done
((told >= 5 && harmless <= 1)) || die "of the pages that went back $told were missed, and $harmless by nobody"
echo "all is well"
