#!/bin/bash
# What changed and when, incremental backups, bisecting: the command, end to end.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# put FILE OFFSET_BLOCKS BLOCKS: random blocks in an image, and in the disk of that name.
put() { dd if=/dev/urandom of="$1" bs=4096 seek="$2" count="$3" conv=notrunc status=none; }
# holds VDI[@SNAPSHOT] IMAGE: an export of the disk is the image.
holds() {
    run 0 vdi export "demo/$1" back --force
    same "$2" back
}
# settled DISK IMAGE: it holds that, and no mark is left.
settled() {
    holds "$1" "$2"
    run 0 snap list "demo/$1" --labels
    grep -q unfinished out && die "the label of an unfinished import stays"
    run 0 vdi import-diff full "demo/$1" --json
    [[ $(json present) == true ]] || die "it is not known what the copy holds"
}
# take LABEL: the disk becomes what the image `now` is; a snapshot, and the image under its name.
take() {
    run 0 vdi import now demo/web --force
    run 0 snap create "demo/web@$1"
    cp now "$1"
}

run 0 store format demo --volume "$DIR/demo.plx" --size 512M --extent-size 4M
run 0 vdi create demo/web --size 8M
truncate -s 8M now
put now 0 100
take a
put now 10 5
dd if=/dev/zero of=now bs=4096 seek=50 count=20 conv=notrunc status=none
put now 2000 48
take b
put now 11 1
take c

step "diff: ranges and sums"
run 0 diff demo/web@a..b --json
[[ $(json 0 offset) == 0 && $(json 0 type) == data ]] || die "an import writes all again"
run 0 vdi clone demo/web@c demo/clone
head -c 8192 /dev/urandom >two
run 0 vdi clone demo/web@a demo/small
run 0 diff demo/web@a demo/small
[[ ! -s out ]] || die "a clone that was not written differs"
run 0 diff demo/web@c demo/clone --summary --json
[[ $(json changed_bytes) == 0 && $(json ranges) == 0 ]] || die "a clone that was not written differs"
run 0 diff demo/web@.. --summary
says out "Changed:"
run 0 diff demo/web@c.. --json
[[ $(<out) == "[]" ]] || die "nothing was written since"
run 0 diff demo/web@b --json
[[ $(json 1 offset) == $((70 * 4096)) && $(json 1 length) == $((30 * 4096)) ]] || die "another range"
[[ $(json 2 offset) == $((2000 * 4096)) && $(json 2 length) == $((48 * 4096)) ]] || die "another range"
run 0 diff demo/web@c demo/web@a --json
python3 -c 'import json; r = json.load(open("out")); assert {"offset": 2000*4096, "length": 48*4096, "type": "zero"} in r' ||
    die "backwards, what came is gone"
run 3 diff demo/web@nothing..b
run 3 diff demo/nothing@a..b
run 2 diff demo/web@a other/web@b
run 2 diff demo
run 2 diff demo/web/x@a..b

step "find: when a range changed"
run 0 find demo/web --block 2000
says out "demo/web@2"
run 0 find demo/web --offset 8000k --limit 1 --json
[[ $(json 0 by_seq) == 3 && $(json 0 after_seq) == 2 && $(json 0 certain) == true ]] ||
    die "not the newest change"
run 2 find demo/web --block 2048
says err "2048 blocks"
run 2 find demo/web --block 7..3
run 2 find demo/web --block x
run 2 find demo/web --length 4k
run 2 find demo/web --block 1 --offset 4k
run 2 find demo/web --offset 0 --length 0
run 3 find demo/nothing

step "incremental: from nothing, and on, through files and pipes"
run 0 vdi export-diff demo/web@a full
run 0 vdi export-diff demo/web@a..b inc --json
[[ $(json to) == demo/web@2 && $(json from) == demo/web@1 ]] || die "other instants"
run 4 vdi export-diff demo/web@a..b inc
says err "--force"
run 2 vdi export-diff demo/web@a.. none
says err "snap create"
[[ ! -e none ]] || die "a file is left behind"
run 3 vdi export-diff demo/web@a..nothing none
(($(stat -c %s inc) < 128 * 4096 + 2000)) || die "zeroes are in the stream"
run 3 vdi import-diff inc demo/copy
says err "import one from nothing first"
run 0 vdi import-diff full demo/copy --dry-run --json
[[ $(json dry_run) == true ]] || die "no dry run"
run 3 vdi info demo/copy
run 0 vdi import-diff full demo/copy
holds copy a
run 0 vdi import-diff inc demo/copy --dry-run
holds copy a
"$PARALLAX" vdi export-diff demo/web@a demo/web@b - 2>err | "$PARALLAX" vdi import-diff - demo/copy --json >out 2>err ||
    die "no backup through a pipe"
label=$(json label)
holds copy b
holds "copy@$label" b
run 0 vdi import-diff inc demo/copy --json
[[ $(json present) == true ]] || die "what is there is imported again"
run 0 vdi import-diff inc demo/copy
[[ $(<err) == "demo/copy has @$label already, which is what the stream brings: nothing is written" ]] || die "it does not say so once"
run 0 vdi import-diff inc demo/copy -q
[[ ! -s err ]] || die "-q does not silence it"
says out "Present already: yes"
run 0 vdi export-diff demo/web@b..c inc2
run 0 vdi import-diff inc2 demo/copy
holds copy c
holds "copy@$label" b
run 0 snap list demo/copy --json
grep -q unfinished out && die "the label of an unfinished import stays"

step "incremental: what does not fit is refused, and changes nothing"
run 0 vdi import-diff full demo/late
run 3 vdi import-diff inc2 demo/late
says err "in their order"
holds late a
run 1 vdi import-diff now demo/late
says err "vdi export-diff"
: >nothing
run 1 vdi import-diff nothing demo/late # no damage: whoever should write it failed
says err "the stream is empty"
"$PARALLAX" vdi export-diff demo/web@none - 2>err | "$PARALLAX" vdi import-diff - demo/late >out 2>err
[[ $? == 1 ]] || die "an export that fails at the other end of a pipe is called damage"
says err "the stream is empty"
head -c 100 full >nothing
run 5 vdi import-diff nothing demo/late
says err "ends too early"
run 0 vdi clone demo/web@a demo/other
run 0 snap create demo/other@start
run 3 vdi import-diff inc demo/other
run 0 vdi import-diff inc demo/other --base start
holds other b
run 0 vdi create demo/larger --size 16M
run 1 vdi import-diff full demo/larger
says err "smaller"
run 0 vdi import two demo/late --force
run 4 vdi import-diff inc demo/late
says err "was changed since"
run 0 vdi import-diff inc demo/late --force
says err "it stays as demo/late@"
holds late b
run 4 vdi import-diff full demo/web
run 0 vdi create demo/empty --size 8M
run 0 vdi import-diff full demo/empty
holds empty a

step "incremental: what the copy holds already, and was changed since"
run 0 vdi import-diff full demo/held
run 0 vdi import-diff full demo/held --force --json
[[ $(json present) == true && $(json changed) == false ]] || die "it was not changed"
run 0 snap list demo/held -q
[[ $(wc -l <out) == 2 ]] || die "there is a snapshot of nothing"
run 0 vdi import two demo/held --force
run 0 vdi export demo/held two.held
run 0 vdi import-diff full demo/held
says err "was changed since @import-"
says err "--force"
holds held two.held
run 0 vdi import-diff full demo/held --force --dry-run
says err "would be taken back"
holds held two.held
run 0 vdi import-diff full demo/held --json
[[ $(json present) == true && $(json changed) == true ]] || die "JSON does not say that it was changed"
cp full damaged
printf x >>damaged
run 5 vdi import-diff damaged demo/held --force
holds held two.held
run 0 vdi import-diff full demo/held --force
says err "it stays as demo/held@"
kept=$(sed -n 's/.*it stays as demo.//p' err)
holds held a
holds "$kept" two.held
run 0 vdi import-diff full demo/held --json
[[ $(json present) == true && $(json changed) == false ]] || die "what was taken back counts as a change"
run 0 vdi import-diff inc demo/held # goes on from there, and there is nothing to force
holds held b
run 0 vdi import-diff full demo/held
says err "already, which is what the stream brings, and later ones were imported since: nothing is written"
holds held b
run 0 vdi import-diff full demo/held --force # by an import, too
holds held a
run 0 vdi import-diff inc demo/held --force
holds held b
head -c $(($(stat -c %s inc2) - 40)) inc2 >damaged
run 5 vdi import-diff damaged demo/held
run 0 vdi import-diff inc demo/held --force # what an import has left, as well
holds held b
run 0 snap list demo/held --labels
grep -q unfinished out && die "the label of an unfinished import stays"
run 0 vdi import-diff inc2 demo/held
holds held c
for ms in 050 100 150 200; do # killed at any time, and repeated
    run 0 vdi import two demo/held --force
    timeout -s KILL "0.$ms" "$PARALLAX" vdi import-diff full demo/held --force >out 2>err
    run 0 vdi import-diff full demo/held --force
    settled held a
done

step "incremental: a disk that grew"
run 0 vdi resize demo/web --size 12M
truncate -s 12M now
put now 3000 20
take d
run 0 vdi export-diff demo/web@c..d inc3
run 0 vdi import-diff inc3 demo/copy
holds copy d
run 0 vdi export-diff demo/web@c back.diff
run 0 vdi import-diff back.diff demo/grown
run 0 vdi resize demo/grown --size 12M
run 0 vdi import-diff inc3 demo/grown
holds grown d
run 0 vdi export-diff demo/web@d..c shrunk
run 1 vdi import-diff shrunk demo/copy
holds copy d

step "incremental: every damage is found, and nothing of a damaged record is written"
run 0 vdi import-diff full demo/target
python3 - inc >offsets <<'END'
import struct, sys
data = open(sys.argv[1], "rb").read()
# Every field of the header, of every record, and each end of its data; then the stream's end.
places = list(range(0, 100, 4)) + [104, 112, 128, 200, 383]
at = 384
while at < len(data):
    kind, _, offset, length, _ = struct.unpack_from("<IIQQQ", data, at)
    size = 32 + (length if kind == 1 else 0)
    places += [at, at + 4, at + 8, at + 11, at + 16, at + 19, at + 24, at + 31]
    places += [at + 32, at + size // 2, at + size - 1] if kind == 1 else []
    at += size
print("\n".join(map(str, sorted({p for p in places if p < len(data)}))))
END
while read -r place; do
    python3 -c '
import sys
data = bytearray(open("inc", "rb").read())
data[int(sys.argv[1])] ^= 0x10
open("damaged", "wb").write(data)' "$place"
    "$PARALLAX" vdi import-diff damaged demo/target --dry-run >out 2>err && die "damage at byte $place is not found"
    [[ $(wc -l <err) == 1 ]] || die "the error is not one line"
done <offsets
for size in 1 100 384 400 420 5000 $(($(stat -c %s inc) - 1)) $(($(stat -c %s inc) - 32)); do
    head -c "$size" inc >damaged
    run 5 vdi import-diff damaged demo/target --dry-run
    says err "ends too early"
done
python3 -c '
data = bytearray(open("inc", "rb").read())
data[384 + 32 + 5000] ^= 1 # in the first record
open("damaged", "wb").write(data)'
run 5 vdi import-diff damaged demo/target
holds target a
{ cat inc; echo; } >damaged
run 5 vdi import-diff damaged demo/target --dry-run
holds target a

step "incremental: an import that is broken off is repeated"
head -c $(($(stat -c %s inc) - 40)) inc >damaged
run 5 vdi import-diff damaged demo/target
says err "until the import is repeated, and is whole at @import-"
label=$(sed -n 's/.*whole at @//p' err)
run 0 snap list demo/target --labels
says out "import-unfinished"
holds "target@$label" a
run 3 vdi import-diff shrunk demo/target
run 0 vdi import-diff inc demo/target
holds target b
run 0 snap list demo/target --labels
grep -q unfinished out && die "the label of an unfinished import stays"
head -c 60000 full >half
run 5 vdi import-diff half demo/fresh
run 3 vdi info demo/fresh
# Another stream than the one that was broken off.
run 0 vdi export-diff demo/web@a..c inc13
run 0 vdi import-diff full demo/third
run 5 vdi import-diff damaged demo/third
run 0 vdi import-diff inc13 demo/third
holds third c
# Killed in the middle: by a stream that never goes on.
run 0 vdi import-diff full demo/killed
mkfifo pipe
"$PARALLAX" vdi import-diff pipe demo/killed >out 2>err &
pid=$!
exec 9>pipe
head -c 60000 inc >&9
sleep 1
kill -9 "$pid"
wait "$pid" 2>/dev/null
exec 9>&-
run 0 vdi import-diff inc demo/killed
holds killed b
"$PARALLAX" vdi import-diff pipe demo/killed >out 2>err &
pid=$!
exec 9>pipe
head -c 60000 inc2 >&9
sleep 1
kill -INT "$pid"
wait "$pid" && die "an interrupted import ends well"
exec 9>&-
[[ $(wc -l <err) == 1 ]] || die "the error is not one line"
run 0 vdi import-diff inc2 demo/killed
holds killed c

step "incremental: an import that is killed, wherever that is, is repeated"
# stall STREAM BYTES WORDS...: an import that has read so many bytes, and waits for more, is killed.
stall() {
    local stream=$1 bytes=$2 pid
    shift 2
    "$PARALLAX" vdi import-diff pipe "$@" >out 2>err &
    pid=$!
    exec 9>pipe
    head -c "$bytes" "$stream" >&9
    # It has taken all that the pipe held; what it does with that is under way, or done.
    timeout 300 python3 -c '
import array, fcntl, termios, time
left = array.array("i", [1])
while left[0]:
    fcntl.ioctl(9, termios.FIONREAD, left)
    time.sleep(0.01)' || die "the import does not read"
    kill -9 "$pid"
    wait "$pid" 2>/dev/null
    exec 9>&-
}
size=$(stat -c %s full)
for bytes in 384 60000 $((size - 1)); do
    stall full "$bytes" demo/new # one that it creates
    run 0 vdi import-diff full demo/new
    settled new a
    run 0 vdi delete demo/new --yes
    run 0 vdi create demo/bare --size 8M
    stall full "$bytes" demo/bare # one that is empty
    stall full 60000 demo/bare    # twice
    run 0 vdi import-diff full demo/bare
    settled bare a
    stall inc "$((bytes % $(stat -c %s inc)))" demo/bare
    run 0 vdi import-diff inc demo/bare
    settled bare b
    run 0 vdi delete demo/bare --yes
done
# At any time, in the steps at its end as well.
for ms in 100 200 300; do
    timeout -s KILL "0.$(printf %03d "$ms")" "$PARALLAX" vdi import-diff full demo/new >out 2>err
    run 0 vdi import-diff full demo/new
    settled new a
    timeout -s KILL "0.$(printf %03d "$ms")" "$PARALLAX" vdi import-diff inc demo/new >out 2>err
    run 0 vdi import-diff inc demo/new
    settled new b
    run 0 vdi delete demo/new --yes
done
# What somebody wrote is no rest of an import.
run 0 vdi import two demo/new
run 4 vdi import-diff full demo/new
says err "holds data already"
run 0 vdi delete demo/new --yes

step "incremental: the copy does not grow for a stream that is not whole, and zeroes cost nothing"
size_of() {
    run 0 vdi info "demo/$1" --json
    json size_bytes
}
run 0 vdi create demo/vast --size 8M
run 0 vdi import a demo/vast
run 0 snap create demo/vast@a
run 0 vdi export-diff demo/vast@a vast.full
run 0 vdi resize demo/vast --size 256T
run 0 snap create demo/vast@b
run 0 vdi export-diff demo/vast@a..b vast.inc
run 0 vdi import-diff vast.full demo/huge
# The trailer is missing, in a file and in a pipe; and one that says that all of 256 TiB are zeroes.
head -c 384 vast.inc >damaged
run 5 vdi import-diff damaged demo/huge
"$PARALLAX" vdi import-diff - demo/huge <damaged >out 2>err && die "the end is missing"
"$PARALLAX" vdi import-diff - demo/huge < <(cat damaged) >out 2>err && die "the end is missing"
[[ $(size_of huge) == $((8 << 20)) ]] || die "the copy has grown for nothing"
python3 - <<'END'
import struct

def crc32c(data, crc=0):
    crc ^= 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF

header = bytearray(open("vast.inc", "rb").read(384))
(told,) = struct.unpack_from("<I", header, 8)
struct.pack_into("<I", header, 8, 0)
assert crc32c(header) == told
size = struct.unpack_from("<Q", header, 88)[0]
struct.pack_into("<Q", header, 104, size)
crc = crc32c(header)
struct.pack_into("<I", header, 8, crc)
stream = bytes(header)
for kind, *words in ((2, 0, size), (3, 1, 0)):
    words += [0] if kind == 2 else [size]
    record = bytearray(struct.pack("<IIQQQ", kind, 0, *words))
    crc = crc32c(record, crc)
    struct.pack_into("<I", record, 4, crc)
    stream += record
open("zeroes", "wb").write(stream)
open("zeroes.part", "wb").write(stream[:384 + 32])
END
run 5 vdi import-diff zeroes.part demo/huge
"$PARALLAX" vdi import-diff - demo/huge < <(cat zeroes.part) >out 2>err && die "the end is missing"
[[ $(size_of huge) == $((8 << 20)) ]] || die "the copy has grown for nothing"
run 0 vdi import-diff zeroes demo/huge
[[ $(size_of huge) == $((256 << 40)) ]] || die "the copy has not grown"
run 0 diff demo/huge --summary --json
[[ $(json changed_bytes) == 0 ]] || die "something is left"
run 0 vdi delete demo/huge --yes
# Data behind the end, through a pipe.
run 0 vdi import-diff back.diff demo/bare
stall inc3 20000 demo/bare
[[ $(size_of bare) -ge $((8 << 20)) ]] || die "the copy is smaller"
"$PARALLAX" vdi import-diff - demo/bare <inc3 >out 2>err || die "it cannot be repeated"
holds bare d
run 0 vdi delete demo/bare --yes

step "all of it beside a disk that is being written"
run 0 vdi export-diff demo/web@b..c quiet
"$PARALLAX" vdi bench demo/web --rw randwrite --force --bs 4k --runtime 300 --size 8M >figures 2>&1 &
pid=$!
for _ in {1..100}; do "$PARALLAX" vdi info demo/web --json 2>err | grep -q '"open_by' && break; sleep 0.1; done
for _ in {1..4}; do
    run 0 vdi export-diff demo/web@b..c loud --force
    same quiet loud
    run 0 diff demo/web@a..d --summary
    run 0 find demo/web --block 2000 --limit 1
done
kill -0 "$pid" || die "the disk was not being written any more"
kill -INT "$pid" # however long all that took
wait "$pid"
[[ $? == 130 ]] || die "the bench failed"
holds web@c c

step "bisect: the command's answers"
mkdir temporary
export TMPDIR="$DIR/temporary"
# empty: nothing is left of the image.
empty() { [[ -z $(ls -A "$TMPDIR") ]] || die "the image is left behind"; }
run 0 vdi create demo/story --size 4M
truncate -s 4M story
for i in {1..20}; do
    put story $((i * 37 % 900)) $((i % 7 + 1))
    ((i == 12)) && dd if=/dev/zero of=story bs=4096 seek=100 count=300 conv=notrunc status=none
    ((i == 15)) && run 0 vdi resize demo/story --size 5M && truncate -s 5M story
    run 0 vdi import story demo/story --force
    run 0 snap create demo/story
    cp story "story.$i"
done
# The image must be what was imported; it is bad from $FIRST on, and some cannot be told.
cat >judge <<'END'
#!/bin/bash
i=${PARALLAX_INSTANT#demo/story@}
[[ ${!#} == "$PARALLAX_IMAGE" && $1 == --word ]] || exit 200
cmp "$PARALLAX_IMAGE" "story.$i" || exit 201
echo "$i" >>asked
[[ " $SKIP " == *" $i "* ]] && exit 125
((i < FIRST))
END
chmod +x judge
for first in 2 9 15 16 20; do
    export FIRST=$first SKIP=
    run 0 bisect demo/story --good 1 --bad 20 --json -- ./judge --word
    [[ $(json first_bad) == demo/story@$first && $(json last_good_seq) == $((first - 1)) ]] ||
        die "another first bad snapshot"
    (($(json tests) <= 7)) || die "too many tests"
    empty
done
export FIRST=11 SKIP="9 10 11 12"
run 0 bisect demo/story --good 1 --bad 20 --json -- ./judge --word
[[ $(json last_good_seq) == 8 && $(json first_bad_seq) == 13 && $(json skipped) == 4 ]] || die "skipped wrongly"
export SKIP=
run 0 bisect demo/story --good 10 --bad 11 -- ./judge --word
says out "demo/story@11"
run_bisect() { # STATUS WORDS...: as run, but what the command says may come before the error
    local status=$1
    shift
    timeout -k 5 300 "$PARALLAX" bisect demo/story "$@" >out 2>err </dev/null
    [[ $? == "$status" ]] || die "bisect $*: another exit status than $status"
    empty
}
run_bisect 1 --good 12 --bad 20 -- ./judge --word
says err "given as --good, is called bad"
run_bisect 1 --good 1 --bad 9 -- ./judge --word
says err "given as --bad, is called good"
run_bisect 1 --good 1 --bad 20 -- sh -c 'exit 130'
says err "status 130"
run_bisect 1 --good 1 --bad 20 -- sh -c 'kill -9 $$'
says err "signal 9"
run_bisect 3 --good 1 --bad 20 -- ./missing
run_bisect 2 --good 20 --bad 1 -- true
run_bisect 2 --good 1 -- true
run_bisect 2 --good 1 --bad 20 --
run_bisect 2 --good 1 --bad 20
run_bisect 3 --good 1 --bad nothing -- true
says err "nothing"

step "bisect: an image that is changed or gone is rebuilt"
# shellcheck disable=SC2016 # the inner shell expands these
for harm in 'chmod u+w "$0"; echo damage >"$0"' 'rm "$0"' 'mv "$0" moved; cp moved "$0"' 'chmod u+w "$0"; truncate -s 1M "$0"'; do
    run_bisect 0 --good 1 --bad 20 -- sh -c './judge --word "$0"; status=$?; '"$harm"'; exit $status'
    says out "demo/story@11"
done

step "bisect: interrupted"
"$PARALLAX" bisect demo/story --good 1 --bad 20 -- sh -c 'touch started; exec sleep 100' >out 2>err &
pid=$!
for _ in {1..100}; do [[ -e started ]] && break; sleep 0.1; done
kill -TERM "$pid"
wait "$pid"
[[ $? == 143 ]] || die "another exit status"
says err "interrupted"
empty

run 0 store check demo --data
echo "all is well"
