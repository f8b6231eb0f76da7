#!/bin/bash
# --wait holds for everything that somebody else may have: each lock of a volume, of the registry in it and of the list
# of stores is held by another process, and every command that needs it ends when --wait says so, not before, not later.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# hold FILE BYTE [shared]: has a lock of bytelock.h, for itself or not, or (BYTE "list") the list of stores.
hold() {
    rm -f held
    python3 - "$1" "$2" held "${3:-}" 3>&- <<'PYTHON' &
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
step "the list of stores"
hold state/stores list
waits store format new --volume "$DIR/foreign"
waits store import "${demo[@]}"
let_go
cmp -s foreign <(head -c 64M /dev/zero) || die "the volume was changed"

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
