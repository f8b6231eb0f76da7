#!/bin/bash
# What commands write besides stores: files that are whole or not there, and what is not overwritten.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

run 0 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 4M
head -c 16M /dev/urandom >image
run 0 vdi import image demo/web
run 0 snap create demo/web@one

# killed AT WORDS...: the command is killed at that one of the calls by which it reads and writes; false: it has fewer.
killed() {
    local at=$1 status
    shift
    status=$({
        PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
        echo $?
    } 2>/dev/null)
    ((status == 0 || status == 137)) || die "parallax $*, to be killed at call $at: exit status $status"
    ((status == 137))
}

step "a file gets its name when it is whole, and an old one is there until then"
echo precious >old
for verb in "vdi export demo/web@one" "vdi export-diff demo/web@one"; do
    # shellcheck disable=SC2086 # words
    run 0 $verb whole
    partial=0
    # shellcheck disable=SC2086
    for ((at = 1; at < 500; at += at < 130 ? 13 : 4)); do # the file grows within a few calls
        killed $at $verb raw || break
        [[ ! -e raw ]] || cmp -s raw whole || die "a part of a file has the name of the whole"
        killed $at $verb old --force
        [[ $(head -c 8 old) == precious ]] || cmp -s old whole || die "the old file is gone, and no new one there"
        [[ -z $(find . -name 'old.partial-*' -size +2M) ]] || ((partial++))
        rm -f ./*.partial-* raw
        echo precious >old
    done
    rm -f raw whole
    ((at < 500 && partial)) || die "$verb was never killed in the middle of its file"
done
# No room: nothing is left, the old one stays.
limited() { bash -c 'ulimit -f 12288; exec "$@"' - "$PARALLAX" "$@" >out 2>err </dev/null; }
for words in "raw" "old --force"; do
    # shellcheck disable=SC2086 # words
    limited vdi export demo/web@one $words
    [[ $? == 6 ]] || die "there was no room"
    says err "File too large; a limit (ulimit -f) or the file system allows no more"
done
limited store format big --volume big --size 64M
[[ $? == 6 && ! -e big ]] || die "a file was made beyond the limit"
says err "File too large; a limit (ulimit -f) or the file system allows no file of that size"
bash -c 'ulimit -f 1; exec "$@"' - "$PARALLAX" help >out 2>err # of standard output, which is a file
[[ $? == 6 ]] || die "standard output that hits the limit is another error than a file that does"
says err "standard output: File too large"
limited vdi import image demo/web --force # its volume is larger than that already
[[ $? == 6 ]] || die "a limit that a volume hits is another error than one that a file hits"
says err "a file below the store may not grow further, by a limit (ulimit -f) or its file system's; demo/web holds a part"
limited snap create demo/web
[[ $? == 6 ]] || die "a snapshot needs no writing"
says err "(ulimit -f) or its file system's; nothing acknowledged is lost"
[[ $(<old) == precious && -z $(ls ./*.partial-* raw 2>/dev/null) ]] || die "something is left"
run 0 vdi export demo/web@one raw
same raw image
[[ $(stat -c %a raw) == 600 && -z $(ls ./*.partial-* 2>/dev/null) ]] || die "not as a new file is"
# Contents are durable before the name is theirs, and the name before the command has done its work.
sync_fails() { PLX_STAGE_SYNC_FAILS=$1 "$PARALLAX_STAGED" vdi export demo/web@one old --force >out 2>err </dev/null; }
sync_fails 1 && die "contents that are not durable are a success"
[[ $(<old) == precious && -z $(ls ./*.partial-* 2>/dev/null) ]] || die "contents that are not durable have the name"
sync_fails 2 && die "a name that is not durable is a success"
says err "make the name durable"
same old image

step "what replaces a file is of its mode, and where a link points to"
mkdir elsewhere
echo precious >elsewhere/file
chmod 640 elsewhere/file
ln -s elsewhere/file link
run 4 vdi export demo/web@one link
says err "--force"
run 0 vdi export demo/web@one link --force
[[ -L link && $(stat -c %a elsewhere/file) == 640 ]] || die "another file was replaced"
same elsewhere/file image
ln -s elsewhere/none dangling
run 4 vdi export demo/web@one dangling --force
says err "symbolic link to nothing"
[[ ! -e elsewhere/none ]] || die "made behind a link"
run 1 vdi export demo/web@one elsewhere --force
says err "Is a directory"

step "pipes are written directly"
mkfifo pipe
cat pipe >piped &
run 0 vdi export demo/web@one pipe
wait $!
same piped image

step "nothing exists that is overwritten without --force, and no volume with it"
echo precious >old
run 4 cdp timeline demo/web --svg old
says err "--force"
[[ $(<old) == precious ]] || die "overwritten"
run 0 cdp timeline demo/web --svg old --force
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("old")' || die "the drawing is no XML"
run 0 cdp timeline demo/web --svg - --quiet
same out old
for verb in "vdi export demo/web@one" "vdi export-diff demo/web@one" "cdp timeline demo/web --svg"; do
    for force in "" --force; do
        # shellcheck disable=SC2086
        run 4 $verb "$DIR/demo.plx" $force
    done
    says err "is a volume of store demo"
done
run 0 store check demo --data
head -c 1M demo.plx >damaged.plx
dd if=/dev/zero of=damaged.plx bs=4096 seek=1 count=15 conv=notrunc status=none
printf x | dd of=damaged.plx bs=1 seek=50 conv=notrunc status=none
run 4 vdi export demo/web@one damaged.plx --force # also when it cannot be read
says err "is a volume of a store"
if mknod block b 7 250 2>/dev/null; then
    run 2 cdp timeline demo/web --svg block --force
    says err "is a block device"
fi

step "an image of another format is not taken for a raw one"
run 0 vdi create demo/kept --size 1M
head -c 1M /dev/urandom >kept.raw
run 0 vdi import kept.raw demo/kept --force
for magic in 'QFI\xfb' KDMV vhdxfile conectix 'PLXDIFF\n' '\x28\xb5\x2f\xfd' '\x1f\x8b' '\xfd7zXZ'; do
    { printf '%b' "$magic" && head -c 100000 /dev/zero; } >image.other
    run 1 vdi import image.other demo/other
    says err "not a raw image"
    run 3 vdi info demo/other
    run 1 vdi import image.other demo/kept --force
    run 0 vdi export demo/kept kept.out --force
    same kept.raw kept.out
done
run 0 vdi import image.other demo/other --raw --size 1M
run 0 vdi delete demo/other --yes
"$PARALLAX" vdi import - demo/other --size 2M <kept.raw 2>err || die "an image that ends early is no error"
run 0 vdi delete demo/other --yes
head -c 1M kept.raw | "$PARALLAX" vdi import - demo/other --size 2M 2>err || die "a pipe that ends early is no error"
says err "the image ended 1048576 bytes before the virtual disk does; the rest of the disk is zero"
head -c 2M image >long.raw
run 0 vdi import long.raw demo/other --force
run 0 vdi import kept.raw demo/other --force
says err "bytes before the virtual disk does; the rest of the disk is zero now, whatever it held"
run 0 vdi export demo/other rest.raw
cmp -s <(tail -c 1M rest.raw) <(head -c 1M /dev/zero) || die "the rest of the disk is not zero"

step "an import that is killed shows, until one ends well"
mkfifo slow
for how in "" --force; do # a disk that it made, and one that was there
    # shellcheck disable=SC2086 # no word, or one
    "$PARALLAX" vdi import slow demo/killed --size 4M $how >/dev/null 2>&1 &
    import=$!
    exec 7>slow
    cat kept.raw >&7
    for _ in {1..100}; do
        run 0 vdi info demo/killed --json
        [[ $(json import) != unfinished ]] || break
        sleep 0.1
    done
    [[ $(json import) == unfinished ]] || die "an import that runs does not show"
    kill -9 "$import"
    wait "$import" 2>/dev/null
    exec 7>&-
    run 0 vdi info demo/killed
    says out "unfinished"
    says err "demo/killed: an import into it runs or did not finish"
    run 0 vdi list demo
    says err "demo/killed: an import into it runs or did not finish"
    [[ -z $how ]] || run 4 vdi import kept.raw demo/killed
    [[ -z $how ]] || says err "demo/killed holds a part of an import that did not finish; give --force"
    head -c 3M image | "$PARALLAX" vdi import - demo/killed --force >out 2>err || die "it cannot be repeated"
    run 0 vdi info demo/killed --json
    [[ $(json import) == null ]] || die "an import that ended well still shows as unfinished"
done
run 0 vdi delete demo/killed --yes
run 0 vdi delete demo/other --yes
run 0 vdi delete demo/kept --yes

step "a write fails somewhere while a new disk is opened or filled: it goes again, or says how to go on; closing says which write"
run 0 store format failing --volume "$DIR/failing.plx" --size 64M --extent-size 1M
head -c 64k /dev/urandom >small
cp --sparse=always failing.plx failing.before
for at in {10..90..4}; do
    cp --sparse=always failing.before failing.plx
    status=$(PLX_STAGE_WRITE_FAILS=$at "$PARALLAX_STAGED" vdi import small failing/new >out 2>err; echo $?)
    [[ $(<err) != *"was opened again"* ]] || die "write $at: the import takes its own opening for another command's"
    [[ $(<err) != *"cannot be opened: the registry is not reachable"* ]] || die "write $at: why the registry gave no room is not said"
    run 0 vdi list failing --json
    if ((status == 0)) || [[ $(<err) == *"closing the store: "* ]]; then # by then it is whole
        [[ $(json 0 vdi) == new ]] || die "write $at: the disk is missing"
    else
        [[ $(<out) == "[]" || $(json 0 import) == unfinished ]] || die "write $at: a disk is left that says nothing"
    fi
done
closings=0
for at in {1..40}; do
    cp --sparse=always failing.before failing.plx
    PLX_STAGE_WRITE_FAILS=$at "$PARALLAX_STAGED" vdi create failing/new --size 1M >out 2>err
    [[ $(<err) == *"closing the store: "* ]] || continue
    says err "closing the store: cannot write the registry in $DIR/failing.plx"
    closings=$((closings + 1))
done
((closings)) || die "no write fails while the store is closed"
run 0 store forget failing

step "bench: what holds data is overwritten with --force only"
run 0 vdi create demo/empty --size 16M
run 0 vdi bench demo/empty --rw randwrite --runtime 1 --size 1M
for pattern in write randwrite randrw; do
    run 4 vdi bench demo/web --rw $pattern --runtime 1 --size 1M
    says err "demo/web holds 16 MiB of data"
done
run 0 vdi bench demo/web --rw randread --runtime 1
run 0 vdi export demo/web back
same back image
run 0 vdi bench demo/web --rw write --bs 64k --runtime 1 --size 1M --force
run 0 vdi export demo/web back --force
cmp -s back image && die "--force was not enough"
run 0 store check demo --data

step "export --skip-errors: all that can be read, and a list of what not"
run 0 store format hurt --volume "$DIR/hurt.plx" --size 64M --extent-size 1M
head -c 8M image >eight
run 0 vdi import eight hurt/web
run 0 vdi export hurt/web back --force --skip-errors
same back eight
[[ $(grep -c '^[0-9]' out) == 0 ]] || die "something is missing"
# Blocks 5, 6 and 1500 of the disk are damaged, and the node that says where 512 to 1023 are.
python3 - <<'END'
image, path = open("eight", "rb").read(), "hurt.plx"
volume = bytearray(open(path, "rb").read())
where = {bytes(volume[at:at + 4096]): at for at in range(0, len(volume), 4096)}
block = lambda number: where[image[number * 4096:(number + 1) * 4096]]
for number in (5, 6, 1500):
    volume[block(number) + 77] ^= 1
entries = [block(number) // 4096 for number in range(512, 1024)]
mask = (1 << 37) - 1
nodes = 0
for at in range(0, len(volume), 4096):
    first = int.from_bytes(volume[at:at + 8], "little")
    if first & mask != entries[0]:
        continue
    if all(int.from_bytes(volume[at + 8 * i:at + 8 * i + 8], "little") & mask == e for i, e in enumerate(entries)):
        volume[at + 9] ^= 0x40
        nodes += 1
assert nodes, "where is the node?"
open(path, "wb").write(volume)
whole = bytearray(image)
for begin, count in ((5, 2), (512, 512), (1500, 1)):
    whole[begin * 4096:(begin + count) * 4096] = bytes(count * 4096)
open("readable", "wb").write(whole)
END
run 5 store check hurt --data
run 5 vdi export hurt/web torn
says err "; 'parallax vdi export hurt/web FILE --skip-errors' saves the rest, and 'parallax store check \
hurt --data' finds what is damaged"
[[ ! -e torn ]] || die "a part of the disk has the name of the whole"
run 5 vdi bench hurt/web --rw read --runtime 1
says err "; run 'parallax store check hurt' (with --data it reads all data, too)"
run 5 vdi export hurt/web torn --skip-errors --json
says err "2 MiB in 3 ranges could not be read"
python3 -c '
import json
lost = [(r["offset"] // 4096, r["length"] // 4096) for r in json.load(open("out"))]
assert lost == [(5, 2), (512, 512), (1500, 1)], lost' || die "not that is missing"
same torn readable
run 5 vdi export hurt/web torn --skip-errors --force
says out "20480"
"$PARALLAX" vdi export hurt/web - --skip-errors >stream 2>err
[[ $? == 5 ]] || die "another exit status"
says err "lost: offset 20480, length 8192"
same stream readable

step "a block device: one that is too small is not begun, of a larger one a note says what stays"
head -c 16M /dev/urandom >device
if loop=$(losetup --find --show device 2>losetup.err); then
    trap 'losetup --detach "$loop"; rm -rf "$DIR"' EXIT
    cp device unchanged
    run 0 vdi import image demo/web --force
    run 0 vdi create demo/large --size 17M
    run 0 vdi create demo/small --size 1M
    for path in "$loop" -; do
        timeout 60 "$PARALLAX" vdi export demo/large "$path" --force >"$([[ $path != - ]] && echo out || echo "$loop")" 2>err
        [[ $? == 6 ]] || die "another exit status"
        same device unchanged
        says err "has room for 16777216 bytes, and the copy has 17825792; nothing was written"
    done
    run 0 vdi export demo/small "$loop" --force
    says err "$loop is larger than the copy: what it holds in its last 15728640 bytes stays"
    head -c 1M /dev/zero >expected
    tail -c 15M unchanged >>expected
    same device expected
    run 0 vdi export demo/web "$loop" --force
    grep -q "is larger than" err && die "it is not larger"
    same device image
    losetup --detach "$loop"
    trap 'rm -rf "$DIR"' EXIT
else
    part_skipped "an export to a block device: no loop device: $(<losetup.err)"
fi

step "a copy of the registry replaces nothing without a word, and no volume at all"
run 0 store format reg --volume "$DIR/reg.plx" --size 64M
cp --sparse=always reg.plx before.plx
run 0 store export-registry reg registry.db
run 4 store export-registry reg registry.db
run 4 store export-registry reg "$DIR/reg.plx"
run 4 store export-registry reg "$DIR/reg.plx" --force
says err "is a volume of store reg"
same reg.plx before.plx
run 0 store export-registry reg registry.db --force
run 2 store export-registry reg -
[[ $(head -c 15 registry.db) == "SQLite format 3" ]] || die "it is no SQLite file"
compgen -G "registry.db.partial*" >/dev/null && die "a partial file is left"
run 0 store info reg

step "a label that is taken: no snapshot is left behind"
run 0 vdi create reg/a --size 1M
run 0 snap create reg/a@one
run 4 snap create reg/a@one
says err "'parallax snap unlabel reg/a@one'"
run 0 snap list reg/a --json
[[ $(grep -c '"seq"' out) == 1 ]] || die "a snapshot was taken all the same"
run 0 vdi create reg/race --size 16M # several look, and then wait for the disk
"$PARALLAX" vdi bench reg/race --rw randread --runtime 2 >/dev/null 2>&1 </dev/null &
reader=$! racers=()
sleep 0.5
for _ in 1 2 3; do
    "$PARALLAX" snap create reg/race@one >/dev/null 2>&1 &
    racers+=($!)
done
won=0
for racer in "${racers[@]}"; do wait "$racer" && ((won++)); done
wait "$reader"
run 0 snap list reg/race --json
[[ $won == 1 && $(grep -c '"seq"' out) == 1 ]] || die "$won took the label: $(<out)"

step "a disk at work is not called damaged"
run 0 vdi create reg/busy --size 16M
"$PARALLAX" vdi bench reg/busy --rw randwrite --runtime 4 --force >/dev/null 2>&1 </dev/null &
writer=$!
sleep 0.3
kill -0 "$writer" || die "nobody writes"
for _ in {1..8}; do
    timeout 300 "$PARALLAX" vdi export reg/busy busy.raw --force --wait 0 >out 2>err </dev/null
    status=$?
    [[ $status == 0 || $status == 4 ]] || die "an export beside a writer ends with $status"
done
wait
run 0 vdi export reg/busy busy.raw --force

echo "transfer: all is well"
