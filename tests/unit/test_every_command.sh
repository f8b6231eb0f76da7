#!/bin/bash
# Every command that there is, on every kind of thing: none, empty, ordinary, damaged, busy. Whatever a command
# thinks of it, it ends, by itself; an error is one line, success is not silent, JSON is JSON. And with a signal in
# the middle: the exit status says so, and nothing is damaged.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"

# every_command: "NOUN VERB" or "NOUN", one a line, from what the completion knows.
every_command() {
    local noun verbs verb
    for noun in $("$PARALLAX" __complete); do
        verbs=$("$PARALLAX" __complete "$noun" | grep -v '^--')
        for verb in ${verbs:-""}; do echo "$noun${verb:+ $verb}"; done
    done
}

# has OPTION: of the command that completes to $words.
has() { [[ $words =~ (^|$'\n')$1=?($'\n'|$) ]]; }

# look: what is in err, by lines; its last one; and how many begin as the command's own do.
look() {
    local line
    mapfile -t lines <err
    last="" own=0
    for line in "${lines[@]}"; do
        last=$line
        [[ $line != "parallax: "* ]] || ((++own))
    done
}

# damage FILE MAGIC: every block of that kind.
damage() {
    python3 -c '
import sys
with open(sys.argv[1], "r+b") as volume:
    found = at = 0
    while block := volume.read(4096):
        if block.startswith(sys.argv[2].encode()):
            volume.seek(at + 200)
            volume.write(bytes([block[200] ^ 1]))
            found += 1
        at += 4096
        volume.seek(at)
    sys.exit(not found)' "$1" "$2" || die "there is no $2"
}

tried=0
# try WORDS...: as the head of this file says. The exit status is left in status.
try() {
    ((++tried))
    timeout -k 5 300 "$PARALLAX" "$@" >out 2>err </dev/null
    status=$?
    ((status < 100)) || die "parallax $*: does not end, or dies (status $status)"
    look
    if ((status)); then
        [[ $own == 1 && $last == "parallax: "* ]] ||
            [[ $* == *--json* && $last == '{"error":'* ]] || die "parallax $*: the error is not one line"
    elif [[ ! -s out && ! -s err && $* != *--json* ]]; then
        die "parallax $*: says nothing"
    fi
    singular
    ((${#lines[@]} < 2)) || [[ -z $(sort err | uniq -d) ]] || die "parallax $*: says a thing twice"
    [[ $* != *--json* || ! -s out ]] || cp out "json/$tried"
}

step "a world"
mkdir json
for store in ok log record; do
    run 0 store format $store --volume "$DIR/$store.plx" --size 1G --extent-size 4M # a bench writes what it can in its second
    run 0 vdi create $store/one --size 16M
    run 0 vdi bench $store/one --rw randwrite --runtime 1 --size 1M
    run 0 snap create $store/one@first
done
run 0 store format bare --volume "$DIR/bare.plx" --size 256M # no disk is ever made in it
run 0 ring create ok "$DIR/ok.ring" --size 33M
run 0 ring create log "$DIR/log.ring" --size 33M
for at in 0 1; do printf PLXRING.damaged | dd of=log.ring bs=4k seek=$at conv=notrunc status=none; done
run 0 vdi create ok/empty --size 16M
run 0 vdi create ok/busy --size 16M
damage log.plx PLXLOGSG
damage record.plx PLXVDREC
mkfifo pipe
exec {held}<>pipe
"$PARALLAX" vdi import pipe ok/busy >/dev/null 2>&1 &
importer=$!
for _ in {1..600}; do
    run 0 vdi info ok/busy --json
    [[ $(<out) != *'"open_by": "admin '* ]] || break
    sleep 0.1
done
[[ $(json open_by) == "admin $importer on "* ]] || die "it is not busy"

step "every command"
objects=(ok bare bare/x none none/x ok/none ok/empty ok/one ok/busy ok/one@first ok/one@none ok/one@-1s ok/one@1 ok/empty@1
    ok/one@first.. ok/one@.. log log/one log/one@first record record/one record/one@first)
while read -ra command; do
    name="${command[*]}"
    run 0 "${command[@]}" --help
    case $name in
    lun* | help | version) continue ;; # the kernel's target (tests/lab); nothing to name
    esac
    try "${command[@]}"
    more=()
    words=$("$PARALLAX" __complete "${command[@]}")
    [[ $name != "vdi bench" ]] || more=(--runtime 1 --size 1M)
    ! has --dry-run || more=(--dry-run)
    # Long enough for the note that it waits. One waits as long as it does untold; the lengths are test_wait.sh's.
    [[ $name == "snap create" ]] || ! has --wait || more+=(--wait 2)
    for object in "${objects[@]}"; do
        # What is there is needed further.
        [[ $name != "store forget" || $object == none* ]] || continue
        try "${command[@]}" "$object" "${more[@]}"
        case $object in # one of each kind
        ok | bare | none | ok/empty | ok/one | ok/one@first | record/one) try "${command[@]}" "$object" "${more[@]}" --json ;;
        esac
    done
done < <(every_command)
for object in ok/empty ok/one log/one record/one; do # not only a dry run
    try defrag $object
done
for object in log bare; do
    try gc $object
    try dedup $object
done
run 0 vdi list bare --json
[[ $(json) == "[]" ]] || die "a command made a disk in a store that was to have none"
run 0 store check bare --data
((tried > 600)) || die "only $tried commands were tried"
python3 - json/* <<'PYTHON' || die "that is no JSON"
import json, sys
for path in sys.argv[1:]:
    with open(path) as file:
        json.load(file)
PYTHON
run 0 cdp on ok/one
"$PARALLAX" cdp status >out 2>err && die "a record that is damaged is not told"
says out ok/one # though another one's record cannot be read
says err "record"
"$PARALLAX" store info record >out 2>err && die "a record that is damaged is not told"
says out "Free"
kill "$importer"
wait "$importer"
exec {held}>&-

step "a signal at every point"
run 0 vdi create ok/many --size 16M
run 0 vdi bench ok/many --rw randwrite --runtime 1 --size 8M --snapshot-every 1ms
run 0 snap create ok/many@last
run 0 vdi clone ok/many@last ok/clone
run 0 vdi export ok/many many.raw
run 0 vdi export-diff ok/many@last many.diff
run 0 cdp on ok/many --every 1d --keep all:1ms
seen=0
# signalled NUMBER AT WORDS...: the command, and the signal with that submission to the device.
signalled() {
    local number=$1 at=$2 status
    shift 2
    PLX_STAGE_SIGNAL=$number PLX_STAGE_AT=$at timeout -k 5 120 "$PARALLAX_STAGED" "$@" >out 2>err </dev/null
    status=$?
    case $status in
    0) ;;
    $((128 + number)))
        look
        [[ $last == "parallax: interrupted"* && $own == 1 ]] ||
            die "parallax $*, signal $number at $at: that it was interrupted is not one line"
        ((++seen))
        cat err >>errs
        ;;
    *) die "parallax $*, signal $number at $at: exit status $status" ;;
    esac
}
interrupt() {
    local at
    seen=0
    : >errs
    for at in 1 2 3 5 8 13 21 34 55 89 144 233 377 450 610; do signalled 2 $at "$@"; done
    ((seen)) || die "parallax $* was never interrupted"
}
interrupt snap list ok/many --all
interrupt snap list ok/many
interrupt diff ok/many@1 ok/clone
interrupt diff ok/many@1 ok/clone --summary
interrupt cdp timeline ok/many
interrupt du ok
interrupt du ok/many
interrupt find ok/many --block 7
interrupt rewind ok/many --to 5 --dry-run
interrupt cdp apply ok/many --dry-run
interrupt snap delete ok/many@.. --force --dry-run
interrupt vdi export-diff ok/many@1..last -
interrupt vdi import-diff many.diff ok/new --dry-run
interrupt store rebuild-registry --volume "$DIR/ok.plx"
interrupt store check ok --data
interrupt store info ok
interrupt cdp status ok
interrupt gc ok
interrupt dedup ok
interrupt defrag ok/many
interrupt vdi bench ok/empty --rw randwrite --runtime 1 --size 1M --force
interrupt vdi import many.raw ok/many --force
says errs "holds a part of the image now"
cp many.raw back.raw
interrupt vdi export ok/many back.raw --force
compgen -G "back.raw.partial-*" >/dev/null && die "an interrupted export left a part"
[[ $(stat -c %s back.raw) == $(stat -c %s many.raw) ]] || die "an interrupted export left a part under the final name"
run 0 vdi import many.raw ok/many --force
run 0 vdi export ok/many back.raw --force
same many.raw back.raw

step "a signal in the middle of what changes a store"
run 0 store format real --volume "$DIR/real.plx" --size 1G --extent-size 4M
run 0 vdi create real/many --size 16M
run 0 vdi bench real/many --rw randwrite --runtime 1 --size 8M --snapshot-every 1ms
run 0 snap create real/many@last
run 0 vdi clone real/many@last real/clone
run 0 cdp on real/many --every 1d --keep all:1ms
run 0 vdi export real/many@5 fifth.raw
run 0 vdi export real/many@last last.raw
run 0 vdi export-diff real/many@last last.diff
cp real.plx kept.plx
# interrupt_real WORDS...: each time from the same state on. Nothing is damaged, labels stay and so does what they name,
# and the command can be given again. Calls again(), which looks at what came of it.
interrupt_real() {
    local at
    seen=0
    for at in 1 5 34 144 377; do
        cp kept.plx real.plx
        signalled 2 $at "$@"
        run 0 store check real --data
        timeout -k 5 120 "$PARALLAX" "$@" >out 2>err
        again $?
        run 0 store check real --data
        run 0 vdi export real/many@last back.raw --force
        same last.raw back.raw
        run 0 vdi export real/clone back.raw --force
        same last.raw back.raw
    done
}
again() { (($1 == 0 || $1 == 4)) || die "cannot be deleted any more: $(<err)"; } # 4: all had gone by then that may
interrupt_real snap delete real/many@.. --force
((seen)) || die "snap delete was never interrupted"
again() { (($1 == 0)) || die "cannot be given again: $(<err)"; }
interrupt_real cdp apply real/many
((seen)) || die "cdp apply was never interrupted"
again() {
    (($1 == 0)) || die "cannot be given again: $(<err)"
    run 0 vdi export real/new back.raw --force
    same last.raw back.raw
}
interrupt_real vdi import-diff last.diff real/new
((seen)) || die "import-diff was never interrupted"
again() {
    (($1 == 0)) || die "cannot be given again: $(<err)"
    run 0 vdi export real/many back.raw --force
    same fifth.raw back.raw
}
interrupt_real rewind real/many --to 5
((seen)) || die "rewind was never interrupted"

seen=0
for at in 2 5 13 34; do signalled 15 $at store check ok --data; done
((seen)) || die "SIGTERM did nothing"
PLX_STAGE_SIGNAL=2 PLX_STAGE_AT=5 "$PARALLAX_STAGED" store check ok --data --json >out 2>err
[[ $(python3 -c 'import json; print(json.load(open("err"))["error"]["code"])') == INTERRUPTED ]] || die "JSON does not say so"
run 0 store check ok --data
echo "all is well ($tried commands)"
