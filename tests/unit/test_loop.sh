#!/bin/bash
# A volume that is a block device, with a disk at work: no command that would write over it, or give the store to
# somebody else, does so, by whatever name it reaches the device.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

truncate -s 256M below
loop=$(losetup --find --show below 2>err) || { echo "SKIPPED: no loop device: $(<err)" && exit 77; }
trap '[[ -z ${importer:-} ]] || kill "$importer" 2>/dev/null; losetup --detach "$loop"; rm -rf "$DIR"' EXIT
head -c 4M /dev/urandom >image

step "a world"
run 0 store format demo --volume "$loop" --extent-size 1M
run 0 vdi import image demo/web
run 0 store format other --volume "$DIR/other" --size 64M --extent-size 1M
ln "$DIR/below" "$DIR/second-name"
mkfifo pipe
exec 8<>pipe
"$PARALLAX" vdi import pipe demo/live --size 4M >/dev/null 2>&1 8>&- &
importer=$!
for _ in {1..600}; do
    "$PARALLAX" vdi info demo/live --json >out 2>err
    [[ $(<out) != *'"open_by": "admin '* ]] || break
    sleep 0.1
done
[[ $(json open_by) == "admin $importer on "* ]] || die "it is not in use"

tried=0
# refused WORDS...
refused() {
    timeout -k 5 60 "$PARALLAX" "$@" --wait 0 >out 2>err </dev/null
    local status=$?
    ((status > 0 && status < 100)) || die "parallax $*: exit status $status"
    [[ $(grep -c '^parallax: ' err) == 1 ]] || die "parallax $*: the error is not one line"
    run 0 vdi export demo/web out.raw --force
    same image out.raw
    kill -0 "$importer" || die "parallax $*: who uses the store has ended"
    ((++tried))
}

step "by the device's name, by that of the file below, and by another one of that"
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

step "by the store's name"
refused store release demo
refused store forget demo
refused vdi delete demo/live --yes
refused vdi import image demo/live --force
refused vdi bench demo/live --rw randwrite --runtime 1 --force
((tried == 40)) || die "$tried commands, not 40, were tried"

step "and all is there afterwards"
cat image >&8
exec 8>&-
wait "$importer" || die "the import that was under way has failed"
importer=
for disk in web live; do
    run 0 vdi export demo/$disk out.raw --force
    same image out.raw
done
run 0 store check demo --data
run 0 store check other
echo "all is well"
