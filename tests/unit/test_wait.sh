#!/bin/bash
# --wait holds for everything that somebody else may have: each lock of a volume, of the registry in it and of the list
# of stores is held by another process, and every command that needs it ends when --wait says so, not before, not later.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

holder=
trap 'kill $holder 2>/dev/null; rm -rf "$DIR"' EXIT

# hold FILE BYTE [shared]: has a lock of bytelock.h, for itself or not, or (BYTE "list") the list of stores.
hold() {
    rm -f held
    python3 - "$1" "$2" held "${3:-}" 3>&- >/dev/null 2>&1 <<'PYTHON' &
import fcntl, os, struct, sys, time
if sys.argv[2] == "list":
    fd = os.open(sys.argv[1], os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
else:
    fd = os.open(sys.argv[1], os.O_RDWR)
    lock = struct.pack("hhqqi4x", fcntl.F_RDLCK if sys.argv[4] else fcntl.F_WRLCK, os.SEEK_SET, (1 << 62) + int(sys.argv[2]), 1, 0)
    fcntl.fcntl(fd, 37, lock)  # F_OFD_SETLK
open(sys.argv[3], "w").close()
time.sleep(600)
PYTHON
    holder=$!
    for _ in {1..300}; do
        [[ ! -e held ]] || return 0
        sleep 0.1
    done
    die "byte $2 of $1 cannot be locked"
}
let_go() {
    kill "$holder"
    wait "$holder" 2>/dev/null
}

# gives_up LEAST MOST WORDS...: it fails because of what is held, after so many seconds.
gives_up() {
    local least=$1 most=$2 since=${EPOCHREALTIME/./} status took
    shift 2
    timeout -k 5 60 "$PARALLAX" "$@" >out 2>err </dev/null
    status=$?
    took=$(((${EPOCHREALTIME/./} - since) / 1000))
    ((status == 4)) || die "parallax $*: exit status $status"
    ((took >= least * 1000 && took <= most * 1000)) || die "parallax $*: gave up after $took ms"
}
# waits WORDS...: not at all, or as long as it is told. A second is for turns that are taken all the time.
waits() {
    gives_up 0 3 "$@" --wait 0
    gives_up 2 6 "$@" --wait 2
}

step "a world"
head -c 1M /dev/urandom >image
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 vdi create demo/web --size 16M
truncate -s 64M foreign
demo=(--volume "$DIR/demo.plx")

step "a volume that somebody formats"
hold demo.plx 11
waits vdi list demo
waits vdi create demo/new --size 16M
waits store import "${demo[@]}"
waits store release demo
waits store rebuild-registry "${demo[@]}" --dry-run
waits store forget demo
let_go
hold demo.plx 11 shared # by one that has the store open
waits store forget demo
let_go
hold foreign 11
waits store format new --volume "$DIR/foreign"
waits store add-volume demo "$DIR/foreign"
let_go
step "the home page"
hold demo.plx 10
waits vdi create demo/new --size 16M
waits store import "${demo[@]}"
waits store take-over demo --any --i-checked-it-is-off
waits store release demo
waits store rebuild-registry "${demo[@]}"
let_go
cp --sparse=always demo.plx moved # its home page names another file, so whoever writes has to take the store
mv moved demo.plx
hold demo.plx 10
waits store set demo --warn-at 80%
says err "another process keeps the home page locked"
let_go
run 0 store set demo --warn-at 80%
step "the registry"
for byte in 8 0; do # while it is opened; SQLite's first
    hold demo.plx $byte
    waits vdi list demo
    waits vdi create demo/new --size 16M
    waits store import "${demo[@]}"
    let_go
done
hold demo.plx 1 # reserved: by one that is changing it
run 0 vdi list demo --wait 0
waits vdi create demo/new --size 16M
waits store set demo --warn-at 80%
let_go
hold demo.plx 2 shared # by one that reads it and stands still: what is changed meanwhile cannot be committed
run 0 vdi list demo --wait 0
waits vdi create demo/new --size 16M
waits vdi set demo/web --warn-at 80%
waits gc demo
let_go
hold demo.plx 2 # by one that commits
waits vdi list demo
gives_up 0 3 store format new --volume "$DIR/demo.plx" --wait 0
says err "is a volume of store demo (its disks cannot be listed)"
let_go
step "the superblocks: somebody adds a volume, which volume 0 counts already"
run 0 store format two --volume "$DIR/two0" --size 64M
run 0 store add-volume two "$DIR/two1" --size 64M
hold two0 9
gives_up 0 3 store rebuild-registry --volume "$DIR/two0" --dry-run --wait 0
says err "another process is adding a volume to store two"
let_go
run 6 store rebuild-registry --volume "$DIR/two0" --dry-run
says err "store two has 2 volumes, of which 1 was given; name them all"
run 0 store forget two
step "the list of stores"
hold state/stores list
waits store format new --volume "$DIR/foreign"
waits store import "${demo[@]}"
let_go
cmp -s foreign <(head -c 64M /dev/zero) || die "the volume was changed"

# stopped_at CALL COMMAND...: before its I/O number CALL.
stopped_at() {
    PLX_STAGE_SIGNAL=19 PLX_STAGE_AT=$1 "$PARALLAX_STAGED" "${@:2}" >stopped 2>&1 </dev/null &
    stopped=$!
    stops $stopped
}

# as_before: the store as it was, in the inode that it had, so that nobody has to take it over.
as_before() {
    rm -rf state further other
    cp --sparse=always demo.before demo.plx
    cp -a state.before state
}

step "beside a command that was stopped, whatever it has: a command ends at once, well or with 4"
cp --sparse=always demo.plx demo.before
cp -a state state.before
for words in "gc demo" "store add-volume demo $DIR/further --size 16M" "vdi create demo/new --size 16M"; do
    as_before
    # shellcheck disable=SC2086 # words
    PLX_STAGE_COUNT=$DIR/calls "$PARALLAX_STAGED" $words >out 2>err </dev/null || die "$words: $(<err)"
    for part in 1 2 3 4 5; do
        as_before
        # shellcheck disable=SC2086 # words
        stopped_at $(($(<calls) * part / 6)) $words
        for beside in "vdi list demo" "store set demo --warn-at 80%" "vdi create demo/beside --size 16M" "gc demo" \
            "store add-volume demo $DIR/other --size 16M" "store grow demo" "store rebuild-registry demo"; do
            since=${EPOCHREALTIME/./}
            # shellcheck disable=SC2086 # words
            timeout -k 5 60 "$PARALLAX" $beside --wait 0 >out 2>err </dev/null
            status=$?
            took=$(((${EPOCHREALTIME/./} - since) / 1000))
            ((status == 0 || status == 4)) || die "$beside: exit status $status, beside '$words' stopped at part $part"
            ((took < 4000)) || die "$beside: after $took ms, beside '$words' stopped at part $part"
        done
        kill -KILL $stopped
        wait $stopped 2>/dev/null
    done
done
as_before

step "the registry, kept for ever from the middle of a command on: it is waited for once, and then no more"
for part in "take extents" "label"; do # before the first change of its second connection, and after one of its first
    as_before
    PLX_STAGE_COUNT=$DIR/calls "$PARALLAX_STAGED" snap create demo/web@x >out 2>err </dev/null || die "$(<err)"
    tried=no
    # Between two transactions of its own.
    for percent in $([[ $part == label ]] && echo 68 70 72 74 || echo 54 55 56 57 58); do
        as_before
        stopped_at $(($(<calls) * percent / 100)) snap create demo/web@x --wait 0
        if python3 -c '
import fcntl, os, struct, sys
fd = os.open("demo.plx", os.O_RDWR)
fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, (1 << 62) + 1, 1, 0))' 2>/dev/null; then
            hold demo.plx 1
            tried=yes
            since=${EPOCHREALTIME/./}
            kill -CONT $stopped
            for _ in {1..500}; do kill -0 $stopped 2>/dev/null && sleep 0.1; done
            kill -0 $stopped 2>/dev/null && kill -KILL $stopped && die "$part: it asks again and again"
            wait $stopped
            status=$?
            let_go
            ((status == 4)) || die "$part: exit status $status: $(<stopped)"
            grep -q "another process keeps it busy" stopped || die "$part: $(<stopped)"
            break
        fi
        kill -KILL $stopped
        wait $stopped 2>/dev/null
    done
    [[ $tried == yes ]] || die "$part: no place between two transactions was found"
done
as_before

step "and what is given up in time is taken"
hold demo.plx 0
(sleep 2 && kill "$holder") &
run 0 vdi create demo/new --size 16M
run 0 store check demo
hold demo.plx 11 shared
(sleep 2 && kill "$holder") &
run 0 store forget demo
run 0 store import "${demo[@]}"
run 0 store check demo
echo "all is well"
