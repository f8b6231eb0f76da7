#!/bin/bash
# The newest state of a disk is no snapshot, and nothing holds it: who copies it is refused while another process has
# the disk open, and what was copied counts only if the disk stood still meanwhile.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"
export PARALLAX
trap 'kill -9 $(jobs -p) 2>/dev/null; rm -rf "$DIR"' EXIT

# does COMMANDS: all of them end well, one after the other.
does() { bash -e -c 'p() { "$PARALLAX" "$@"; }; '"$1" >said 2>&1 || die "$1: $(<said)"; }

# fresh: demo/web is as `first`, scattered, and none of its blocks has a checksum: they were overwritten in place.
fresh() {
    "$PARALLAX" vdi delete demo/web --yes >/dev/null 2>&1
    does "p gc demo; p vdi create demo/web --size 16M; p vdi bench demo/web --rw randwrite --bs 4k --iodepth 1 --runtime 1 --force;
        p vdi import second demo/web --force; p vdi import first demo/web --force"
}

# amid_pipe STATUS COMMANDS: they run while most of demo/web is still to be copied into a pipe that is full.
amid_pipe() {
    rm -f pipe
    mkfifo pipe
    "$PARALLAX" vdi export demo/web - >pipe 2>err &
    exec 9<pipe
    head -c 4096 <&9 >copied
    does "$2"
    cat <&9 >>copied
    exec 9<&-
    wait $!
    [[ $? == "$1" ]] || die "a copy into a pipe, while '$2', ends otherwise than with $1: $(cmp first copied)"
}

# amid_file STATUS COMMANDS: they run when all is copied, and the file is about to get its name.
amid_file() {
    rm -f image
    PLX_STAGE_SIGNAL=19 PLX_STAGE_SYNC=1 "$PARALLAX_STAGED" vdi export demo/web image >out 2>err </dev/null &
    stops $!
    does "$2"
    kill -CONT $!
    wait $!
    [[ $? == "$1" ]] || die "a copy into a file, while '$2', ends otherwise than with $1"
    ((!$1)) || [[ -z $(ls image* 2>/dev/null) ]] || die "while '$2': there is $(ls image*)"
}

step "what frees, moves or overwrites blocks while they are copied: no copy counts"
for name in first second; do head -c 16M /dev/urandom >$name; done
run 0 store format demo --volume "$DIR/demo.plx" --size 96M --extent-size 1M
# shellcheck disable=SC2016 # the inner shell's
taken='for name in a b c; do p vdi import second demo/$name; done; for name in a b c; do p vdi delete demo/$name --yes; done'
changes=("p vdi delete demo/web --yes; p gc demo; $taken"
    "p defrag demo/web; $taken"
    "p vdi import second demo/web --force"
    "p snap create demo/web@now; p vdi import second demo/web --force; p rewind demo/web --to now"
    "p vdi bench demo/web --rw randwrite --runtime 1 --force"
    "p dedup demo")
for way in amid_pipe amid_file; do
    for change in "${changes[@]}"; do
        fresh
        $way 4 "$change"
        says err "meanwhile, so what was read of it"
        [[ $change == *delete\ demo/web* ]] || says err "'parallax snap create demo/web@NAME'"
    done
done

step "what leaves the disk alone: the copy counts"
fresh
run 0 vdi create demo/other --size 16M
for way in amid_pipe amid_file; do
    $way 0 "p vdi import second demo/other --force; p vdi export demo/web another --force; p gc demo; p store check demo --data; p vdi info demo/web"
    [[ $way == amid_file ]] || same first copied
done
same first image

# as_it_is: a copy of demo/held into a pipe, at once.
as_it_is() { run "$1" vdi export demo/held - --wait 0; }

step "a disk that another process has open is not copied; what differs in it is told"
mkfifo feed
"$PARALLAX" vdi import - demo/held --size 16M <feed >/dev/null 2>&1 &
holder=$!
exec 8>feed
head -c 3M first >&8
for ((i = 0; i < 300; i++)); do
    run 0 vdi list demo --json
    grep -q '"held"' out && [[ $(registry "SELECT owner > 0 FROM vdis WHERE name = 'held'") == 1 ]] && break
    sleep 0.1
done
as_it_is 4
says err "demo/held is open in a parallax command (pid $holder)"
says err "try again when that has ended"
run 0 diff demo/held --summary
registry_edit demo.plx "UPDATE instances SET role = 'handler' WHERE pid = $holder" >/dev/null
SECONDS=0
run 4 vdi export demo/held copy --wait 60
((SECONDS < 30)) || die "a handler was waited for"
says err "demo/held is open in handler (pid $holder)"
says err "'parallax snap create demo/held@NAME' takes a snapshot at any time, and 'parallax vdi export demo/held@NAME FILE' exports that"
run 4 vdi export demo/held copy --skip-errors
[[ ! -e copy ]] || die "there is a copy"
registry_edit demo.plx "UPDATE instances SET role = 'admin' WHERE pid = $holder" >/dev/null
"$PARALLAX" vdi export demo/held copy --wait 120 >out 2>err 8>&- &
exec 8>&- # the import ends, and the copy begins
wait $! || die "a command was not waited for"
[[ $(head -c 3M copy | cmp first - 2>&1) == "cmp: EOF on -"* ]] || die "the copy is not what was imported"

step "one whose owner has died is copied as it is, and not if it is recovered meanwhile"
fresh
{ PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=400 "$PARALLAX_STAGED" vdi bench demo/web --rw randwrite --runtime 20 --force; } >said 2>&1
[[ $(registry "SELECT owner > 0 FROM vdis WHERE name = 'web'") == 1 ]] || die "nobody died with the disk open"
run 0 vdi export demo/web image --force
run 0 vdi export demo/web again
same image again
amid_file 4 "p snap create demo/web"
says err "was open for writing meanwhile"
