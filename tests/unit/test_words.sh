#!/bin/bash
# What a newcomer types and reads: numbers without a unit, a state directory that is not the right one, lists of
# nothing; and names that are meant for the terminal rather than for the reader.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "no store is known: where was looked, what comes next"
for words in "store list" "vdi list" "tree" "cdp status"; do
    # shellcheck disable=SC2086 # several words
    run 0 --state-dir "$DIR/mistyped" $words
    says err "no store is known in $DIR/mistyped/stores; "
    says err "'parallax store format'"
    says err "'parallax store scan' looks for existing ones"
    says err "'parallax store import --volume PATH'"
    [[ $(wc -l <err) == 1 ]] || die "$words: that is not one line"
    # shellcheck disable=SC2086
    run 0 --state-dir "$DIR/mistyped" $words -q
    [[ ! -s out && ! -s err ]] || die "$words -q is not silent"
    # shellcheck disable=SC2086
    run 0 --state-dir "$DIR/mistyped" $words --json
    [[ $(json) == "[]" && ! -s err ]] || die "$words --json is no empty list"
done
for words in "store info demo" "store check demo" "store set demo --warn-at 80%" "vdi list demo" \
    "vdi info demo/web" "vdi create demo/web --size 1G" "snap list demo/web" "gc demo" "dedup demo" "du demo" \
    "tree demo" "cdp status demo" "rewind demo/web --to 1"; do
    # shellcheck disable=SC2086
    run 3 --state-dir "$DIR/mistyped" $words
    says err "$DIR/mistyped/stores"
    says err "'parallax store scan' looks for others"
    says err "'parallax store import --volume PATH'"
done
mkdir -p zero/stores
: >zero/stores/demo.json
for words in "store list" "vdi list" "tree" "cdp status" "store info demo"; do
    # shellcheck disable=SC2086
    run 1 --state-dir "$DIR/zero" $words
    says err "zero/stores/demo.json cannot be read"
    says err "store import"
done

step "what is no file, where a file of the state directory is to be, is refused and not waited for"
# place KIND PATH
place() {
    rm -rf "$2"
    case $1 in
    pipe) mkfifo "$2" ;;
    folder) mkdir "$2" ;;
    device) ln -s /dev/zero "$2" ;;
    socket) python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$2" ;;
    huge) truncate -s 1T "$2" ;;
    esac
}
for kind in pipe folder device socket huge; do
    place $kind zero/stores/demo.json
    [[ $kind == huge ]] && why="has more than 2097152 bytes" || why="is no regular file"
    for words in "store list" "store info demo" "vdi create demo/web --size 1G" "store forget demo"; do
        # shellcheck disable=SC2086
        timeout 10 "$PARALLAX" --state-dir "$DIR/zero" $words >out 2>err </dev/null
        [[ $? == 1 ]] || die "$words, a $kind for an entry: not exit status 1"
        says err "zero/stores/demo.json $why, so it cannot be the entry of a store; remove it"
    done
    rm -rf zero/stores/demo.json
    place $kind zero/host-id
    [[ $kind == huge ]] && why="does not hold a UUID" || why="is no regular file"
    for words in "store list" "store format two --volume $DIR/two.plx --size 256M"; do
        # shellcheck disable=SC2086
        timeout 10 "$PARALLAX" --state-dir "$DIR/zero" $words >out 2>err </dev/null
        [[ $? == 1 ]] || die "$words, a $kind for host-id: not exit status 1"
        says err "zero/host-id $why; restore it"
    done
    rm -rf zero/host-id
done
ln -s nowhere zero/stores/demo.json
run 0 --state-dir "$DIR/zero" store list # as if it had just gone
rm zero/stores/demo.json

step "one store that cannot be used does not hide the others"
export PARALLAX_STATE_DIR=$DIR/several
for store in one two three four; do
    run 0 store format $store --volume "$DIR/$store.plx" --size 64M --extent-size 4M
    run 0 vdi create $store/web --size 16M
done
mkdir one.plx.d && mv two.plx one.plx.d
run 6 store list
[[ $(grep -c '^one \|^three \|^four ' out) == 3 ]] || die "the other stores are not listed"
grep -q '^two .*MISSING$' out || die "the list does not say what is wrong"
says err "parallax: store two: cannot open $DIR/two.plx"
echo '{' >several/stores/one.json
listed() { # WORDS...: what is whole is shown, and both that are not are named
    "$PARALLAX" "$@" >out 2>err </dev/null
    [[ $? == 1 ]] || die "$*: not the exit status of the first problem"
    for store in three four; do says out $store; done
    [[ $* == *--json ]] && return
    says err "parallax: store one: $DIR/several/stores/one.json cannot be read"
    [[ $(grep -c "^store two: cannot open $DIR/two.plx" err) == 1 ]] || die "$*: store two is not named once"
}
for words in "store list" "vdi list" "tree"; do
    # shellcheck disable=SC2086
    listed $words
    # shellcheck disable=SC2086
    listed $words --json
done
listed tree --dot
for store in three four; do run 0 cdp on $store/web; done
listed cdp status
listed store list --json
[[ $(json 1 name) == one && $(json 1 problem_code) == INVALID && $(json 1 problem) == *one.json* ]] || die "one is not listed"
[[ $(json 3 name) == two && $(json 3 problem_code) == MISSING && $(json 3 uuid) == *-* ]] || die "two is not listed"
run 0 vdi list three
run 0 store scan three.plx --json # by its identity
[[ $(json 0 known) == three ]] || die "store three is not found"
run 1 store import --volume "$DIR/four.plx" # which may be a volume of store one
says err "one.json cannot be read"
export PARALLAX_STATE_DIR=$DIR/state

step "nothing to list is said"
run 0 store format demo --volume "$DIR/demo.plx" --size 256M
quiet_or() { # SENTENCE WORDS...: that it says on standard error, but not with -q or --json
    local sentence=$1
    shift
    run 0 "$@"
    says err "$sentence"
    run 0 "$@" -q
    [[ ! -s err ]] || die "$* -q is not silent"
}
quiet_or "there are no virtual disks" vdi list
quiet_or "there are no virtual disks" vdi list demo
run 0 vdi create demo/web --size 16M
quiet_or "no virtual disk takes snapshots by itself" cdp status
quiet_or "demo/web has no snapshots" snap list demo/web
for words in "vdi clone demo/web@SNAPSHOT demo/new" "vdi export demo/web@SNAPSHOT image" "snap label demo/web@SNAPSHOT one" \
    "rewind demo/web --to SNAPSHOT" "diff demo/web@SNAPSHOT" "snap delete demo/web@SNAPSHOT"; do
    for snapshot in 1 monday -1s; do
        # shellcheck disable=SC2086 # words
        run 3 ${words/SNAPSHOT/$snapshot}
        says err "demo/web has no snapshots; 'parallax snap create"
    done
done
quiet_or "demo/web has no snapshots" snap list demo/web --all
quiet_or "demo/web has no labelled snapshots" snap list demo/web --labels
quiet_or "has no snapshots from 7 on" snap list demo/web --from 7
run 0 snap list demo/web --json
[[ $(json) == "[]" && ! -s err ]] || die "no snapshots are no empty list"
quiet_or "nothing differs" diff demo/web
run 3 snap delete demo/web@1
run 3 cdp timeline demo/web
run 0 vdi export demo/web web.raw
says err "exported 16 MiB to web.raw"
head -c 16M /dev/urandom >web.raw
run 0 vdi import web.raw demo/db
says err "imported 16 MiB into demo/db"

step "a size of a disk that is there already is not just ignored"
for option in "--size 32M" "--sector-size 4096"; do
    # shellcheck disable=SC2086 # words
    run 2 vdi import web.raw demo/db --force $option
    says err "demo/db exists already"
done
run 0 vdi import web.raw demo/db --force --size 16M --sector-size 512 # as it is

step "a stream that brings nothing is no image"
for existing in no yes; do
    timeout 60 "$PARALLAX" vdi import - demo/stream --size 1M --force >out 2>err < <(:)
    [[ $? == 1 ]] || die "nothing was imported"
    says err "nothing came"
    [[ $existing == yes ]] || run 3 vdi info demo/stream
    head -c 1M web.raw | "$PARALLAX" vdi import - demo/stream --size 1M --force >out 2>err || die "no import"
done
run 0 vdi export demo/stream stream.raw
cmp -s stream.raw <(head -c 1M web.raw) || die "the disk is not what it was"

step "help is told in sentences of a length that can be read"
for noun in $("$PARALLAX" __complete); do
    verbs=$("$PARALLAX" __complete "$noun" | grep -v '^--')
    for verb in ${verbs:-""}; do
        # shellcheck disable=SC2086 # no verb, no word
        run 0 help $noun $verb
        python3 - >err <<'PYTHON' || die "help $noun $verb has a sentence of more than 30 words"
import re
text = re.split(r"\n(?:Options|Everywhere|Examples):", open("out").read())[0]
long = [s for s in re.split(r"(?<=[.:])\s+(?=[A-Z'-])", " ".join(text.split())) if len(s.split()) > 30]
print(*long)
raise SystemExit(bool(long))
PYTHON
    done
done

step "nobody reads the output any more: not a word, and what was to be changed is"
# unread STATUS WORDS...: to a pipe that has no reader
unread() {
    timeout -k 5 60 python3 -c '
import os, subprocess, sys
reader, writer = os.pipe()
os.close(reader)
ignores = os.environ.get("IGNORES")
status = subprocess.run(sys.argv[1:], stdout=writer, restore_signals=not ignores).returncode
sys.exit(128 - status if status < 0 else status)' \
        "$PARALLAX" "${@:2}" >out 2>err </dev/null
    local got=$?
    [[ $got == "$1" ]] || die "$* without a reader: $got"
}
died=$((128 + 13))
for words in help version "store list" "store info demo" "vdi list demo --json" "vdi info demo/web" "tree" "vdi export demo/web -" \
    "du demo" "store check demo --json"; do
    # shellcheck disable=SC2086 # words
    unread $died $words
    [[ ! -s err ]] || die "$words without a reader is not silent"
done
unread $died vdi create demo/unread --size 1M --json
unread $died snap create demo/unread@first --json -q
run 0 snap list demo/unread
says out "first"
unread $died vdi export-diff demo/unread@first -
[[ ! -s err ]] || die "vdi export-diff without a reader is not silent"
run 0 snap create demo/unread
unread $died snap delete demo/unread@first --json
unread $died vdi delete demo/unread --yes --json
run 3 vdi info demo/unread
unread 3 vdi info demo/unread # what went wrong counts
says err "unread"
IGNORES=yes unread 1 store list
says err "standard output: Broken pipe"

step "numbers want a unit"
for words in "store set demo" "vdi set demo/web"; do
    for number in 8 80; do
        # shellcheck disable=SC2086
        run 2 $words --warn-at $number
        says err "has no unit; write $number% or ${number}G"
    done
    # shellcheck disable=SC2086
    run 2 $words --warn-at 800000 # which is no percentage
    says err "has no unit; write 800000M or 800000G"
    for number in 0 00 0% 0G 100%; do
        # shellcheck disable=SC2086
        run 2 $words --warn-at $number
        says err "a percentage from 1% to 99%, or 'none', which turns the limit off"
    done
    # shellcheck disable=SC2086
    run 0 $words --warn-at 8388608
    says err "a warning when 8 MiB are used"
    # shellcheck disable=SC2086
    run 0 $words --warn-at none
    says err "no warning"
done
for words in "gc demo" "dedup demo" "defrag demo/web" "store check demo"; do
    for rate in 0 50 4095 2E; do
        # shellcheck disable=SC2086
        run 2 $words --rate $rate
        says err "--rate '$rate' is "
        says err "write a size from 4 KiB to 1 EiB"
    done
done
for words in "gc demo" "dedup demo"; do
    for memory in 0 64 511 2E; do
        # shellcheck disable=SC2086
        run 2 $words --memory $memory
        says err "write a size from 512 B to 1 EiB"
    done
done
run 2 vdi bench demo/web --size 0
run 2 vdi bench demo/web --bs 0
run 2 vdi bench demo/web --snapshot-every 10
says err "parallax: --snapshot-every: '10' is no interval: "
run 2 vdi create demo/none --size 0
run 2 vdi resize demo/web --size 0
run 2 store add-volume demo "$DIR/more.plx" --size 0
run 2 snap list demo/web --limit 0

step "notes come behind what they are about; a list from before the oldest one is all of it"
run 0 snap create demo/web@one
run 0 snap create demo/web
timeout 60 "$PARALLAX" snap list demo/web --from -1y --limit 1 >both 2>&1 </dev/null || die "no list"
[[ $(head -n 1 both) == NAME* && $(tail -n 1 both) == "there are more: --from 2 "* ]] || die "not in this order: $(<both)"
run 0 snap list demo/web --from 2020-01-01T00:00:00Z --json
[[ $(json 0 seq) == 1 && $(json 1 seq) == 2 ]] || die "that is not all of it"
for number in 0 000 9223372036854775808 99999999999999999999; do
    for words in "vdi export demo/web@$number image" "vdi clone demo/web@$number demo/then" "diff demo/web@$number" \
        "diff demo/web@$number.." "diff demo/web@1..$number" "snap label demo/web@$number x" "snap delete demo/web@1..$number"; do
        # shellcheck disable=SC2086 # words
        run 2 $words
        says err "$number is no number of a snapshot"
    done
    run 3 rewind demo/web --to "$number"
    says err "demo/web has no snapshot $number"
done
step "a range of times in which there is no snapshot is no error; one that is the wrong way round, or names one, is"
run 0 vdi create demo/bare --size 1M
for range in demo/web@..-1d demo/web@-2d..-1d demo/web@..2020-01-01T00:00:00Z demo/bare@..-1d demo/bare@-2d..; do
    for command in "snap delete" du; do
        # shellcheck disable=SC2086
        run 0 $command $range
        says err "$range: there are no such snapshots, so there is nothing to do"
        # shellcheck disable=SC2086
        run 0 $command $range --json
        [[ $(json snapshots) == 0 && $(json stays) == "[]" ]] || die "$command $range: something goes"
    done
done
sleep 0.1
run 0 snap delete demo/web@-1ms.. # younger than all
says err "there are no such snapshots"
run 2 snap delete demo/web@-1d..-2d
says err "the range ends before it begins"
run 2 snap delete demo/web@2..1
says err "the range ends before it begins"
for range in 99.. 98..99; do
    run 3 snap delete demo/web@$range
    says err "$range: there is no snapshot ${range%%.*}: the newest is "
done
run 3 snap delete demo/web@-1d
run 3 snap delete demo/web@one..-1d
run 3 snap delete demo/bare@1..
says err "demo/bare has no snapshots"
for words in "diff demo/web@..-1d" "vdi export-diff demo/web@..-1d -" "vdi clone demo/web@-1d demo/then"; do
    # shellcheck disable=SC2086
    run 3 $words # which want an instant
done

step "a virtual disk is named as STORE/VDI, whoever speaks of it"
named() { # TEXT STATUS WORDS...
    run "${@:2}"
    says err "parallax: $1"
}
named "there is no virtual disk demo/none;" 3 vdi info demo/none
named "there is no virtual disk demo/none;" 3 snap create demo/none
named "demo/web exists already" 4 vdi create demo/web --size 1M
named "demo/web exists already" 4 vdi clone demo/web@1 demo/web
named "demo/web has no snapshot with the label none;" 3 vdi clone demo/web@none demo/then
named "demo/web has no snapshot at or before -1y" 3 rewind demo/web --to -1y
named "'2026-11-24' is no time" 2 vdi clone demo/web@2026-11-24 demo/then
for time in -5x 2026-13-01T00:00:00Z 2026-11-21T25:00:00Z -5; do
    for command in "snap delete demo/web@$time" "snap delete demo/web@$time.." "diff demo/web@$time.." "rewind demo/web --to $time" \
        "vdi export demo/web@$time x.raw" "bisect demo/web --good $time --bad one -- true" "snap list demo/web --from $time"; do
        # shellcheck disable=SC2086 # words
        run 2 $command
        says err "'$time' is no time"
    done
done
named "demo/web: 2199-01-01T00:00:00Z lies in the future;" 3 rewind demo/web --to 2199-01-01T00:00:00Z
named "demo/web has no label none" 3 snap unlabel demo/web@none
named "label one names demo/web@1 already" 4 snap label demo/web@2 one
named "label one names demo/web@1 already" 4 snap create demo/web@one
run 2 snap create demo/web@one..two
says err "looks like a range"
run 0 gc demo --dry-run
says err "nothing was freed"

step "an image that is no whole sectors: that its disk is larger is said"
head -c 5000 /dev/urandom >odd.raw
run 0 vdi import odd.raw demo/odd
says err "demo/odd has 5120 bytes, and the image has 5000"
run 0 vdi import odd.raw demo/even --size 8k
[[ $(wc -l <err) == 2 ]] || die "its size was asked for"
says err "the rest of the disk is zero"

step "of a deleted disk the tree shows what is there still"
run 0 snap create demo/odd@kept
run 0 snap create demo/odd@gone
run 0 vdi clone demo/odd@kept demo/kid
run 0 vdi delete demo/odd --yes
run 0 tree demo
says out "kept"
grep -q gone out && die "a snapshot of a deleted disk is shown"

step "a store has one name here, and says which it is when a volume is missing"
run 4 store import zoo --volume "$DIR/demo.plx"
says err "known here as store demo; 'parallax store forget demo' first"
run 0 store import demo --volume "$DIR/demo.plx"
mv demo.plx away.plx
for words in "store list" "gc demo" "snap list demo/web" "vdi list"; do
    # shellcheck disable=SC2086 # words
    run 6 $words
    says err "store demo: cannot open $DIR/demo.plx: No such file or directory; connect or restore the volume, or 'parallax store import"
done
: >demo.plx # cut off, or a loop device with nothing attached
for words in "store list" "store info demo" "vdi create demo/late --size 1M" "store release demo --dry-run" "store grow demo"; do
    # shellcheck disable=SC2086 # words
    run 6 $words
    says err "store demo: $DIR/demo.plx is empty; connect or restore the volume, or 'parallax store import"
done
truncate -s 1M demo.plx
for words in "store list" "vdi list demo"; do
    # shellcheck disable=SC2086 # words
    run 6 $words
    says err "no Parallax superblock here; connect or restore the volume, or 'parallax store import"
done
mv -f away.plx demo.plx

step "one of a thing is not many"
one() { # STATUS WORDS...
    run "$@"
    singular
}
one 0 store format one --volume "$DIR/single.plx" --size 64M --extent-size 1M
head -c 4096 /dev/urandom >block
one 0 vdi import block one/web
says err "imported 4 KiB"
one 2 vdi create one/none --size 1
says err "not 1 byte"
one 2 find one/web --block 7
says err "(1 block)"
for label in good odd; do one 0 snap create one/web@$label; done
head -c 4096 /dev/urandom >other
run 0 vdi import other one/web --force
one 0 snap create one/web@bad
one 0 bisect one/web --good good --bad bad -- cmp -s "$DIR/block"
says err "1 snapshot left"
one 0 cdp timeline one/web
one 0 store rebuild-registry --volume "$DIR/single.plx" --dry-run
says err "1 virtual disk,"
one 1 store import --volume "$DIR/single.plx" --volume "$DIR/demo.plx"
run 0 vdi create one/gone --size 4k
run 0 vdi import block one/gone --force
run 0 vdi delete one/gone --yes
for words in "store check one" "store info one" "du one" "du one/web@good..odd" "gc one --dry-run" "gc one" "dedup one" "defrag one/web" \
    "snap delete one/web@odd" "snap delete one/web@odd --dry-run" "tree one" "vdi info one/web" "cdp status one/web"; do
    # shellcheck disable=SC2086 # words
    "$PARALLAX" $words >out 2>err </dev/null
    singular
done
: >byte && printf x >byte
one 4 store format byte --volume "$DIR/byte" --size 64M
says err "with 1 byte,"

step "what a terminal would obey is escaped"
plain() { # FILE: nothing but printable characters, line ends and whole UTF-8
    python3 -c '
import sys
text = open(sys.argv[1], "rb").read().decode()
sys.exit(any(c != "\n" and not c.isprintable() for c in text))' "$1" || die "$1 is not plain"
}
evil=$'a\e]0;owned\a\nb\x7f\xff\xc2\x9bc\xe2\x80\xae'
for words in "vdi info demo/" "snap list demo/" "store info " "vdi clone demo/web@" "help " "" "diff demo/web@"; do
    # shellcheck disable=SC2086
    "$PARALLAX" $words"$evil" >out 2>err </dev/null && die "$words: such a name is taken"
    [[ $(wc -l <err) == 1 ]] || die "$words: the error is not one line"
    plain err
    # shellcheck disable=SC2086
    "$PARALLAX" --json $words"$evil" >out 2>err </dev/null
    plain err
    [[ $(python3 -c 'import json; print(len(json.load(open("err"))["error"]["message"]) > 10)') == True ]] ||
        die "$words: no message in the JSON"
done
run 3 snap list demo/web --from "x${evil:1:3}"
plain err
run 2 store format evil --volume "$DIR/$evil" --size 256M
says err "no UTF-8"
[[ ! -e $evil && ! -e state/stores/evil.json ]] || die "something was made"
evil=$'a\e]0;owned\a\nb\xc2\x9bc\xe2\x80\xae'
shown='a\x1b]0;owned\x07\x0ab\xc2\x9bc\xe2\x80\xae'
run 0 store format evil --volume "$DIR/$evil" --size 256M
run 0 vdi create evil/web --size 16M
for words in "store list" "store info evil" "store scan"; do
    more=()
    [[ $words != "store scan" ]] || more=("$DIR/$evil")
    # shellcheck disable=SC2086
    run 0 $words "${more[@]}"
    plain out
    says out "$shown"
    # shellcheck disable=SC2086
    run 0 $words "${more[@]}" --json
    plain out
    [[ $(python3 -c 'import json; print(json.load(open("out")))') == *owned* ]] || die "$words: it is not in the JSON"
done
# A damaged store's checker names the volume.
python3 - "$evil" <<'PYTHON' || die "there is no record"
import sys
data = bytearray(open(sys.argv[1], "rb").read())
at, found = data.find(b"PLXVDREC"), 0
while at >= 0:
    data[at + 200] ^= 1
    found += 1
    at = data.find(b"PLXVDREC", at + 1)
open(sys.argv[1], "wb").write(data)
sys.exit(not found)
PYTHON
"$PARALLAX" store check evil >out 2>err && die "that is not found"
says out "error: "
plain out
plain err
"$PARALLAX" store check evil --json >out 2>err
plain out
json findings 0 text >/dev/null
mv "$evil" elsewhere
run 6 store info evil
plain err
# Names that a registry of somebody else's store holds.
run 0 store format harm --volume "$DIR/harm" --size 256M
run 0 vdi create harm/web --size 16M
run 0 snap create harm/web@one
"$REGISTRY_SQL" "$DIR/harm" "UPDATE labels SET name = 'l' || char(27) || '<b\"&'"
run 0 cdp timeline harm/web --svg -
plain out
python3 -c 'import xml.dom.minidom; xml.dom.minidom.parse("out")' || die "the drawing is no XML"
says out ">l??b??<"
"$REGISTRY_SQL" "$DIR/harm" "UPDATE vdis SET name = 'w' || char(27) || '\"b'"
for words in "vdi list harm" "tree harm" "tree harm --dot"; do
    # shellcheck disable=SC2086
    run 0 $words
    plain out
done
says out 'label="w??b\n16 MiB"'
says out 'label="@1\nl??b??"'

step "what is advised can be done as it is written"
run 0 store format tank --volume "$DIR/a.img" --volume "$DIR/b.img" --size 64M
run 0 store info tank
says out "'parallax gc tank --dry-run' counts it"
run 6 store import --volume "$DIR/a.img"
says err "name them all: 'parallax store scan' shows those that are block devices, and 'parallax store scan FILE...' what files are"
run 0 store scan "$DIR/a.img" "$DIR/b.img"
[[ $(grep -c ' tank ' out) == 2 ]] || die "they are not shown"
"$PARALLAX" store scan >out 2>err # it may find the loop devices of other tests
(($(wc -l <out) > 1)) || says err "'parallax store scan PATH...' looks at files"
run 4 store format tank --volume "$DIR/c.img" --size 64M
says err "a store named tank is known here already; give this one another name; only if "
[[ ! -e c.img ]] || die "a file is left behind"
run 0 --state-dir "$DIR/another" store format tank --volume "$DIR/c.img" --size 64M
run 4 store import --volume "$DIR/c.img"
says err "'parallax store import NAME --volume PATH...' gives this one another name here"
run 0 store import tank2 --volume "$DIR/c.img"
run 0 store forget tank2
says err "'parallax store import --volume $DIR/c.img' makes it known again"
dd if=/dev/zero of=c.img bs=4k seek=2 count=2 conv=notrunc status=none
run 0 store import tank2 --read-only --volume "$DIR/c.img"
run 0 store forget tank2
says err "makes it known again, if no other host has it"

run 2 vdi clone tank/web tank/test
says err "tank/web is a virtual disk, and a clone is made from one of its snapshots: 'parallax snap list tank/web' shows them; take one first: 'parallax snap create tank/web@LABEL'"
run 2 vdi clone tank tank/test
says err "'tank' is not a name of the form STORE/VDI@SNAPSHOT"

step "a path that a shell would not take as one word is advised as one that it does"
ODD="$DIR/my disk's \$(touch gone)!.plx"
run 0 store format odd --volume "$ODD" --size 64M
# advised: the command that err advises is done as it is written.
advised() {
    local words=${1#*\'parallax }
    words=${words%\' *}
    eval "run 0 $words" || die "this is no command: $words"
}
run 0 store forget odd
advised "$(sed "s/' makes it known again.*/' /" err)"
run 0 store release odd
advised "$(sed "s/' takes it, here or.*/' /" err)"
run 0 store info odd
[[ ! -e gone ]] || die "the advice was obeyed as a command"
dd if=/dev/zero of="$ODD" bs=4k count=2 conv=notrunc status=none
run 5 store info odd
advised "$(sed "s/' writes them again.*/ --i-checked-nobody-uses-it' /" err)"
run 0 store info odd
run 0 store forget odd
echo "all is well"
