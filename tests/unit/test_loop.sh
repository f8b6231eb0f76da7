#!/bin/bash
# A volume that is a block device, with a disk at work, in a command and then as a LUN of a handler under load: no command
# that would write over it, or give the store to somebody else, does so, by whatever name it reaches the device.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

truncate -s 256M below
loop=$(losetup --find --show below 2>err) || { echo "SKIPPED: no loop device: $(<err)" && exit 77; }
trap '[[ -z ${holder:-} ]] || kill "$holder" 2>/dev/null; losetup --detach "$loop"; rm -rf "$DIR"' EXIT
head -c 4M /dev/urandom >image

step "a world"
run 0 store format demo --volume "$loop" --extent-size 1M
run 0 vdi import image demo/web
run 0 vdi create demo/lun --size 16M
run 0 store format other --volume "$DIR/other" --size 64M --extent-size 1M
ln "$DIR/below" "$DIR/second-name"
cp -r state restored

# opened DISK WHO: waits until $holder has it open.
opened() {
    for _ in {1..600}; do
        "$PARALLAX" vdi info "demo/$1" --json >out 2>err
        [[ $(<out) != *'"open_by": "'* ]] || break
        sleep 0.1
    done
    [[ $(json open_by) == "$2 $holder on "* ]] || die "it is not in use"
}

step "--size is for files: of a device it is refused, and not passed over"
for words in "store format new --volume $loop --force" "store add-volume other $loop" "ring create other $loop"; do
    # shellcheck disable=SC2086 # words
    run 2 $words --size 64M
    says err "--size is for a file that is created, and $loop is used whole: leave it out"
done

tried=0
# refused WORDS...
refused() {
    timeout -k 5 300 "$PARALLAX" "$@" --wait 0 >out 2>err </dev/null
    local status=$?
    ((status > 0 && status < 100)) || die "parallax $*: exit status $status"
    [[ $(grep -c '^parallax: ' err) == 1 ]] || die "parallax $*: the error is not one line"
    run 0 vdi export demo/web out.raw --force
    same image out.raw
    kill -0 "$holder" || die "parallax $*: who uses the store has ended"
    ((++tried))
}

# all_refused DISK: whatever there is, beside that disk at work.
all_refused() {
    local name force
    tried=0
    for name in "$loop" "$DIR/below" "$DIR/second-name"; do
        for force in "" --force "--force --i-checked-nobody-uses-it"; do
            # shellcheck disable=SC2086 # words
            refused store format new --volume "$name" $force
            # shellcheck disable=SC2086
            refused store add-volume other "$name" $force
            [[ $name == "$loop" ]] && continue # it has that already
            # shellcheck disable=SC2086
            refused store add-volume demo "$name" $force
        done
        refused store format new --volume "$DIR/blank" --volume "$name" --size 64M --force --i-checked-nobody-uses-it
        refused store rebuild-registry --volume "$name"
        refused store import new --volume "$name"
        [[ $name == "$loop" ]] || refused store take-over --volume "$name" --any --i-checked-it-is-off # nothing is taken else
    done
    refused store release demo
    refused store forget demo
    refused vdi delete "demo/$1" --yes
    refused vdi import image "demo/$1" --force
    refused vdi bench "demo/$1" --rw randwrite --runtime 1 --force
    # By a state directory that was restored from a backup, and by none.
    refused store forget demo --state-dir "$DIR/restored"
    refused store release demo --state-dir "$DIR/restored"
    for name in restored none; do
        refused store rebuild-registry --volume "$loop" --state-dir "$DIR/$name"
        refused store format new --volume "$loop" --force --i-checked-nobody-uses-it --state-dir "$DIR/$name"
    done
    ((tried == 46)) || die "$tried commands, not 46, were tried"
}

step "beside a command: by the device's name, by that of the file below, by another one of that, by the store's"
mkfifo pipe
exec 8<>pipe
"$PARALLAX" vdi import pipe demo/live --size 4M >/dev/null 2>&1 8>&- &
holder=$!
opened live admin
all_refused live
cat image >&8
exec 8>&-
wait "$holder" || die "the import that was under way has failed"
holder=

harness=$(dirname "$PARALLAX")/harness
if [[ -x $harness ]]; then
    step "beside a LUN: the same, and each of its sectors is what was written last"
    "$harness" "${harness%/*}/handler_parallax.so" parallax/demo/lun --size $((16 << 20)) --verify --flush 64 --quiet \
        --iodepth 4 --runtime 1000 >load.out 2>load.err &
    holder=$!
    opened lun handler
    all_refused lun
    kill "$holder"
    wait "$holder" || die "the load beside it has failed: $(cat load.out load.err)"
    holder=
    grep -q '([1-9][0-9]* writes), 0 failed, 0 wrong' load.out || die "there was no load: $(<load.out)"
else
    part_skipped "a LUN: the handler is not built"
fi

step "and all is there afterwards"
for disk in web live; do
    run 0 vdi export demo/$disk out.raw --force
    same image out.raw
done
run 0 store check demo --data
run 0 store check other
echo "all is well"
