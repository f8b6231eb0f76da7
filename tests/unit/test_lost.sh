#!/bin/bash
# What cannot be read on a store any more, or went back: the others keep everything and all commands
# work, and what is given up is gone for good.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# damage ID: writes over each block that begins a segment of this disk's log.
damage() {
    python3 - "$DIR/demo.plx" "$1" <<'END' || die "there is no such block"
import sys, uuid
with open(sys.argv[1], "r+b") as volume:
    data = volume.read()
    blocks = [at for at in range(0, len(data), 4096)
              if data[at:at + 8] == b"PLXLOGSG" and uuid.UUID(sys.argv[2]).bytes in data[at:at + 4096]]
    for at in blocks:
        volume.seek(at)
        volume.write(b"\xa5" * 4096)
sys.exit(not blocks)
END
}

# overwrite BYTE: both copies of the record in slot 1.
overwrite() {
    python3 - "$DIR/demo.plx" "$1" <<'END'
import sys
with open(sys.argv[1], "r+b") as volume:
    volume.seek(volume.read(1 << 20).index(b"PLXVDREC") + 8192)
    volume.write(bytes([int(sys.argv[2])]) * 8192)
END
}

# put_back FILE: the record in slot 1 as it is there.
put_back() { record_back "$1" "$DIR/demo.plx" 1; }

# made: a store with disks a, b and c, each with snapshots, labels and policies; b is the second.
made() {
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 1M
    for disk in a b c; do
        run 0 vdi import one.raw "demo/$disk"
        run 0 snap create "demo/$disk@one"
        run 0 vdi import two.raw "demo/$disk" --force
        run 0 snap create "demo/$disk@two"
        run 0 vdi set "demo/$disk" --warn-at 75%
        run 0 cdp on "demo/$disk" --every 1h --keep all:1d
    done
    id=$(registry "SELECT id FROM vdis WHERE name = 'b'")
}

# kept DISK: all that there was of it.
kept() {
    for label in one two; do
        run 0 vdi export "demo/$1@$label" out.raw --force
        same "$label.raw" out.raw
    done
    run 0 vdi info "demo/$1" --json
    [[ $(json warn_at_bytes) == $((3 << 20)) && $(json protection) == "every 1h" ]] || die "$1 has lost its policies"
}

# rebuilt STATUS: what is lost is in err.
rebuilt() {
    "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" >out 2>err
    [[ $? == "$1" ]] || die "the rebuild did not end with $1"
}

# all_else_works: commands that have nothing to do with what is lost.
all_else_works() {
    kept a
    kept c
    run 0 vdi create demo/new --size 1M
    run 0 vdi clone demo/a@one demo/clone
    run 0 vdi export demo/clone out.raw --force
    same one.raw out.raw
    run 0 vdi import one.raw demo/more
    run 0 snap create demo/c@three
}

# listed TEXT: whatever lists or sums up names what is lost, shows the others, and ends with 5 (CMD_LOST-1).
listed() {
    for words in "vdi list" "vdi list demo" tree "tree demo" "store info demo" "cdp status" "cdp status demo" "du demo" "du demo/a"; do
        # shellcheck disable=SC2086 # words
        run 5 $words
        says err "store demo: lost: $1"
        says err "'parallax vdi forget demo --lost'"
        [[ $words == store* || $words == du* ]] || says out a
        # shellcheck disable=SC2086 # words
        run 5 $words --json -q
        says err '"code":"CORRUPT"'
    done
    run 5 store list
    grep -Eq '^demo .* LOST *$' out || die "store list does not say LOST"
    says err "lost: $1"
    run 5 store list --json
    [[ $(json 0 problem_code) == LOST && $(json 0 problem) == *"$1"* && $(json 0 vdis) -gt 0 ]] || die "wrong JSON"
}

head -c 4M /dev/urandom >one.raw
head -c 4M /dev/urandom >two.raw

head -c 64k one.raw >small.raw

step "a damaged record"
made
overwrite 165
rebuilt 5
says err "lost: virtual disk b: VDI slot 1: both copies of the record are damaged (VDI record: "
listed "virtual disk b: VDI slot 1: both copies of the record are damaged"
! grep -F "(VDI record" err || die "the reason in parentheses is cut off"
all_else_works
listed "virtual disk b: VDI slot 1"
run 0 vdi create demo/b --size 1M
says err "a virtual disk that was called demo/b is lost"
run 0 vdi create demo/bb --size 1M
[[ $(<err) != *"is lost"* ]] || die "another name is told to be lost"
[[ -z $(registry "SELECT 1 FROM vdis WHERE slot = 1") ]] || die "the slot was given out"
run 4 gc demo
says err "'parallax vdi forget demo --lost' gives it up"
run 4 snap delete demo/a@one
says err "'parallax vdi forget demo --lost' gives them up"
run 5 store check demo
says out "give it up by 'parallax vdi forget demo --lost'"
run 4 vdi forget demo --lost -q
[[ $(<err) == *"; with --yes, what these disks used becomes garbage, "*" may go again" ]] || die "wrong advice"
run 0 vdi forget demo --lost --yes
says err "gave up 1"
for words in "vdi list" "tree demo" "store info demo" "cdp status" "store list" "du demo"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
done
run 0 gc demo --json
(($(json freed_bytes) >= 8 << 20)) || die "what it used did not come back"
run 0 vdi create demo/again --size 1M
[[ $(registry "SELECT name FROM vdis WHERE slot = 1") == again ]] || die "the slot is not free"
run 0 store check demo
rebuilt 0
kept a
kept c
run 0 gc demo
run 0 snap delete demo/a@two

step "all records are gone, each as if never used: no list says that there are no virtual disks"
made
python3 - demo.plx <<'END'
import sys
with open(sys.argv[1], "r+b") as volume:
    volume.seek(volume.read(1 << 20).index(b"PLXVDREC"))
    volume.write(bytes(3 * 8192))
END
rebuilt 5
for words in "vdi list" "vdi list demo" "tree" "store info demo" "cdp status demo" "store list" "du demo"; do
    # shellcheck disable=SC2086 # words
    run 5 $words
    for disk in a b c; do says err "virtual disk $disk: slot "; done
    grep -q "there are no virtual disks" err && die "$words: there are none?"
done
says err ": what they used counts as garbage here, and is kept"
run 0 vdi create demo/x --size 1M

step "a damaged record that can be read again is not given up"
made
cp demo.plx good.plx
overwrite 165
rebuilt 5
put_back good.plx
run 4 vdi forget demo --lost --yes -q
says err "rebuild-registry"
rebuilt 0
run 0 vdi export demo/b@one out.raw --force # (its soft limit was known to the registry alone)
same one.raw out.raw

step "a disk whose slot has an older one again is given up without a slot of its own"
made
cp demo.plx good.plx
run 0 vdi delete demo/b --yes
run 0 gc demo
run 0 vdi import one.raw demo/heir
[[ $(registry "SELECT name FROM vdis WHERE slot = 1 AND state = 'live'") == heir ]] || die "b's slot was not used again"
put_back good.plx
rebuilt 5
says err "lost: virtual disk heir: slot 1 of the store does not hold it"
"$PARALLAX" vdi forget demo --lost --yes >out 2>err || die "what is lost cannot be given up: $?"
says err "gave up"
[[ -z $(registry "SELECT 1 FROM lost WHERE what = 'record'") ]] || die "it is lost still"
kept a
kept c

step "a damaged log"
made
damage "$id"
rebuilt 5
says err "lost: labels of b"
all_else_works
run 0 vdi list demo
says err "store demo: labels are lost: "
says err "'parallax vdi forget demo --lost'"
run 0 vdi forget demo --lost --yes
says err "vdi delete"
run 0 snap delete demo/a@two
run 0 vdi delete demo/b --yes
run 0 gc demo --json
(($(json freed_bytes) >= 8 << 20)) || die "what it used did not come back"
rebuilt 0
kept c

step "a damaged log that can be read again: what its labels held is not known to go, until they are read"
made
cp demo.plx good.plx
damage "$id"
rebuilt 5
python3 - good.plx demo.plx <<'END'
import sys
with open(sys.argv[1], "rb") as good, open(sys.argv[2], "r+b") as volume:
    at = 0
    while data := good.read(4096):
        volume.seek(at)
        if volume.read(4096) == b"\xa5" * 4096:
            volume.seek(at)
            volume.write(data)
        at += 4096
END
for words in "snap delete demo/b@1" "snap delete demo/b@..2 --force"; do
    # shellcheck disable=SC2086 # words
    run 4 $words
    says err "not all records or labels of the store could be read: no snapshot goes"
done
rebuilt 0
kept b
run 0 snap delete demo/b@one

step "a disk that went back: its lost snapshots give their labels up, and their numbers deceive nobody"
made
run 0 vdi export-diff demo/b@one full
run 0 vdi import-diff full demo/copy
run 0 cdp off demo/b # it would give out numbers of its own
cp demo.plx before.plx
for label in x y z; do
    run 0 vdi import small.raw demo/b --force
    run 0 snap create "demo/b@$label"
done
lost=$(registry "SELECT seq FROM labels WHERE name = 'x'")
run 0 vdi export-diff demo/b@one..x inc
run 0 vdi import-diff inc demo/copy
put_back before.plx
run 5 vdi info demo/b
says err "by 'parallax vdi accept-older demo/b'"
run 5 store check demo
says out "by 'parallax vdi accept-older demo/b'"
rebuilt 5
says err "or 'parallax vdi accept-older demo/b' accepts that"
says err "or 'parallax vdi accept-older demo/VDI' accepts it"
run 4 vdi accept-older demo/b -q
"$PARALLAX" vdi accept-older demo/b >out 2>err
says err "the label z goes"
run 0 snap list demo/a
[[ -n $(registry "SELECT 1 FROM labels WHERE name = 'x'") ]] || die "only told, and done"
run 0 vdi accept-older demo/b --yes --json
[[ $(json labels_gone) == '["x", "y", "z"]' ]] || die "the labels that go are not told"
[[ -z $(registry "SELECT 1 FROM labels WHERE name IN ('x', 'y', 'z')") ]] || die "labels stay"
run 0 vdi import small.raw demo/b --force
run 0 snap create demo/b@new
[[ $(registry "SELECT seq FROM labels WHERE name = 'new'") == "$lost" ]] || die "the number is another one: no need of this test"
run 0 vdi import small.raw demo/b --force
run 0 snap create demo/b@newer
run 0 vdi export-diff demo/b@new..newer inc2
run 3 vdi import-diff inc2 demo/copy
says err "another snapshot $lost"

step "a disk that went back, beside one that is lost: it is not accepted, and nothing sounds as if it were"
made
cp demo.plx before.plx
for disk in a b; do
    run 0 vdi import small.raw demo/$disk --force
    run 0 snap create demo/$disk@x
done
overwrite 0 # b
python3 - before.plx demo.plx <<'END'
import sys
with open(sys.argv[1], "rb") as good, open(sys.argv[2], "r+b") as volume: # a, in slot 0
    data = good.read(1 << 20)
    at = data.index(b"PLXVDREC")
    volume.seek(at)
    volume.write(data[at:at + 8192])
END
rebuilt 5
run 4 vdi accept-older demo/a --yes
says err "demo/a was not accepted, for what is lost may have its blocks: virtual disk b: slot 1 of the store does not hold it; restore the store; only if that is gone for good, 'parallax vdi forget demo --lost' gives it up"
run 5 vdi info demo/a
[[ -n $(registry "SELECT 1 FROM labels WHERE name = 'x'") ]] || die "its label is gone"
run 0 vdi forget demo --lost --yes
run 0 vdi accept-older demo/a --yes
says err "the label x goes"
says err "demo/a counts as it is now"
run 0 vdi info demo/a

step "a disk that went back to a state that cannot be read: it is accepted only if what can be read is meant"
made
run 0 cdp off demo/b
head -c 4M /dev/urandom >own.raw
run 0 vdi import own.raw demo/b --force
run 0 snap create demo/b@own
cp demo.plx before.plx
run 0 vdi import small.raw demo/b --force
run 0 snap create demo/b@x
put_back before.plx
python3 - demo.plx own.raw <<'END' || die "it has no node of the second half of its blocks"
import sys
with open(sys.argv[1], "r+b") as volume, open(sys.argv[2], "rb") as own:
    image, data = own.read(), volume.read()
    where = {data[at:at + 4096]: at for at in range(0, len(data), 4096)}
    entries = [where[image[n * 4096:(n + 1) * 4096]] // 4096 for n in range(512, 1024)]
    mask = (1 << 37) - 1
    nodes = [at for at in range(0, len(data), 4096)
             if all(int.from_bytes(data[at + 8 * i:at + 8 * i + 8], "little") & mask == e for i, e in enumerate(entries))]
    for at in nodes:
        volume.seek(at + 9)
        volume.write(bytes([data[at + 9] ^ 0x40]))
sys.exit(not nodes)
END
run 5 vdi accept-older demo/b --yes
says err "the older state is damaged; nothing was changed: restore the store; only if there is no better state, --also-damaged accepts what can be read of it"
says err "virtual disk b"
run 5 vdi info demo/b
[[ -n $(registry "SELECT 1 FROM labels WHERE name = 'x'") ]] || die "its label is gone"
run 0 vdi accept-older demo/b --yes --also-damaged
run 0 vdi info demo/b
run 5 vdi export demo/b@own back.raw
run 5 vdi export demo/b@own back.raw --skip-errors
cmp -n $((2 << 20)) own.raw back.raw || die "what can be read is another"
kept a
kept c

for byte in 0 165; do
    step "a live disk whose record is all bytes of $byte"
    made
    run 0 vdi clone demo/b@one demo/clone
    overwrite $byte
    for words in "gc demo" "vdi info demo/b" "vdi export demo/b out.raw --force" "vdi export demo/b@one out.raw --force" \
        "snap create demo/b" "vdi delete demo/b --yes" "vdi accept-older demo/b" "vdi rename demo/b other" \
        "rewind demo/b --to one"; do
        # shellcheck disable=SC2086 # words
        run 5 $words
        says err "restore the store, or give the disk up by 'parallax vdi delete demo/b --lost'"
    done
    run 5 store check demo
    says out "restore the store, or give the disk up by 'parallax vdi delete demo/b --lost'"
    run 4 vdi delete --lost demo/a --yes
    says err "without --lost"
    run 0 vdi delete --lost demo/b --yes
    run 3 vdi info demo/b
    run 0 gc demo --json
    (($(json freed_bytes) >= 4 << 20)) || die "what it used did not come back"
    run 0 store check demo
    kept a
    kept c
    run 0 vdi export demo/clone out.raw --force
    same one.raw out.raw
    run 0 vdi create demo/b --size 1M
    rebuilt 0
    kept a
done

# descended: disk d descends by b, the second one, from @one of disk a, which retention would let go.
descended() {
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
    run 0 vdi import one.raw demo/a
    run 0 snap create demo/a
    run 0 vdi clone demo/a@1 demo/b
    run 0 snap create demo/b@then
    run 0 vdi clone demo/b@then demo/d
    run 0 vdi import two.raw demo/a --force
    run 0 snap create demo/a
    run 0 vdi import three.raw demo/a --force
    run 0 snap create demo/a
    run 0 cdp on demo/a --every 1d --keep all:1s
}
# went_and_collected: what may go goes, and its blocks are another's then.
went_and_collected() {
    run 0 gc demo
    for n in 1 2 3 4; do
        run 0 vdi import two.raw demo/new$n
    done
    run 0 vdi export demo/d out.raw --force
    same one.raw out.raw
}
# found_info TEXT: the check says so, and finds no error.
found_info() {
    run 0 store check demo --data
    says out "info: $1"
}
head -c 4M /dev/urandom >three.raw
for what in deleted given-up; do
    step "a disk between an origin and a clone, $what, of which the store has nothing any more: the clone keeps what it needs"
    descended
    if [[ $what == deleted ]]; then
        run 0 vdi delete demo/b --yes
        overwrite 0
        rebuilt 0
    else
        overwrite 165
        rebuilt 5
        run 0 vdi forget demo --lost --yes
    fi
    sleep 2
    run 0 cdp apply demo/a
    run 0 snap list demo/a --all -q
    [[ $(<out) == *demo/a@1* && $(<out) != *demo/a@2* ]] || die "these snapshots are there: $(<out)"
    went_and_collected
    found_info "virtual disk d is a clone of b, which was deleted and whose record in slot 1 of the store is gone"
done

# origin_unknown: nobody knows any more that d descends from a; the rebuild said so.
origin_unknown() {
    says err "lost: virtual disk d is a clone of one that is not known any more"
    found_info "virtual disk d is a clone of one that is not known any more"
    sleep 2
    run 4 cdp apply demo/a
    says err "no snapshot of another virtual disk goes while the clone is there"
    run 4 snap delete demo/a@2
    run 0 cdp status demo/a
    says out "no snapshot goes: nobody knows the origin of clone d"
    run 0 snap list demo/a --all -q
    [[ $(<out) == *demo/a@1* && $(<out) == *demo/a@2* ]] || die "these snapshots are there: $(<out)"
    went_and_collected
    run 0 snap create demo/d # its own history goes as it should
    run 0 snap create demo/d
    run 0 snap delete demo/d@1
    run 0 vdi create demo/fresh --size 1M # what goes whole frees nothing that a clone has
    run 0 vdi delete demo/fresh --yes
}
for byte in 0 165; do
    step "the same, and the registry cannot be read, either, all bytes of the record being $byte: no snapshot goes that the clone may need"
    descended
    run 0 vdi delete demo/b --yes
    overwrite $byte
    no_registry "$DIR/demo.plx"
    rebuilt 5
    run 0 vdi forget demo --lost --yes
    rebuilt 5
    origin_unknown
    "$PARALLAX" store rebuild-registry demo --json >out 2>err
    [[ $(json unknown_origins) == 1 ]] || die "the JSON does not say it"
    if [[ $byte == 165 ]]; then
        run 0 vdi delete demo/a --yes
        run 0 gc demo
        for n in 1 2 3 4; do run 0 vdi import two.raw demo/new$n --force; run 0 vdi import three.raw demo/more$n; done
        run 0 vdi export demo/d out.raw --force
        same one.raw out.raw
        run 0 store check demo --data
        continue
    fi
    run 0 vdi delete demo/d --yes
    run 0 gc demo
    run 0 cdp apply demo/a
    run 0 cdp status demo/a
    grep -q "no snapshot goes" out && die "the status says so of a clone that is gone"
    run 0 snap list demo/a --all -q
    [[ $(<out) != *demo/a@2* ]] || die "these snapshots are there: $(<out)"
    rebuilt 0
done

step "the same, and an older registry has that disk where another one is by now: it is lost, and then its line is not known"
descended
run 0 vdi create demo/heir --size 1M
run 0 vdi delete demo/b --yes
slot=$(registry "SELECT slot FROM vdis WHERE name = 'heir'")
registry_edit demo.plx "DELETE FROM vdis WHERE name = 'heir'; UPDATE vdis SET slot = $slot WHERE name = 'b'"
overwrite 0
rebuilt 5
says err "lost: virtual disk b: clones descend from it, and its slot is another disk's"
run 4 gc demo
run 4 snap delete demo/a@2
run 0 vdi forget demo --lost --yes
rebuilt 5
origin_unknown
run 0 vdi info demo/heir
