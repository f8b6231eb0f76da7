#!/bin/bash
# The parallax command, end to end, on a store in a file.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "help and words"
run 0 --help
says out "store rebuild-registry"
says out "Exit status:"
run 0 vdi create --help
says out "Examples:"
run 0 help snap
says out "snap unlabel"
run 0 version
run 2
run 2 vdi
run 2 vdi creat demo/web
run 2 vdi create demo/web --sise 1G
says err "unknown option '--sise'; did you mean '--size'?; see 'parallax vdi create --help'"
run 2 vdi create demo/web --size
run 2 vdi create demo/web --size 1G --size 2G
run 2 vdi create demo/web extra --size 1G
run 2 --json vdi create demo/web --sise 1G
[[ $(python3 -c 'import json; print(json.load(open("err"))["error"]["code"])') == USAGE ]] || die "no JSON error"

step "words that are wrong"
run 2 frobnicate
says err "unknown command 'frobnicate': there are store, vdi, snap, "
# guess WORD WORDS...: what is meant by words that are wrong
guess() {
    run 2 "${@:2}"
    says err "; did you mean '$1'?"
}
guess list vdi lits
guess snap sanp list
guess --columns vdi list --colums x
guess --json store info --jsn
guess delete vdi rm
guess list snap ls
guess forget store remove
guess rewind snap rollback
guess rewind rollback
guess snap snapshot
guess "vdi clone" clone
guess "--size 10G" vdi create demo/web 10G
for words in -V -x "--wait 1 -x"; do
    # shellcheck disable=SC2086 # words
    run 2 $words
    says err "unknown option '-"
done
run 2 --state-dir
says err "--state-dir needs a value: DIR"
run 2 vdi export demo/web ""
says err "an argument is empty; it takes: STORE/VDI[@SNAPSHOT] FILE"
run 2 vdi delete demo/web@one
says err "demo/web@one is a snapshot; 'parallax snap delete' deletes those"
run 2 vdi create demo/web --size 300T
says err "a virtual disk has 4k to 256T, not 300 TiB (329853488332800 bytes)"
run 2 help frobnicate
says err "no help on 'frobnicate': there are store, vdi, "
run 2 store list --json=yes
says err "--json takes no value"
run 2 vdi create demo/web --size=
says err "--size has an empty value"
run 2 store format demo --volume "$DIR/x" --volume "$DIR/x" --size 256M
says err "is given twice"
# shellcheck disable=SC2046 # many words
run 2 store format demo --size 256M $(for i in {1..65}; do echo --volume "$DIR/$i"; done)
says err "more than 64 volumes"
# shellcheck disable=SC2046
run 2 store format demo $(for i in {1..300}; do echo --volume "$DIR/$i"; done)
says err "options"
run 2 vdi create demo/web
says err "--size is missing"
run 2 vdi create demo/web --size 1025k --sector-size 4096
says err "no multiple of the sector size 4096"
run 2 vdi create demo/web --size 1.5.5G
for size in 10MB 10kb 10Mi; do
    run 2 vdi create demo/web --size $size
    says err "no size; write it as 4k, 64M, 1G or 2T, which are KiB, MiB, GiB and TiB"
done
run 2 vdi create demo/web --size 1.
run 2 vdi create demo/web --size 0.00000000001G
run 2 vdi create demo/web --size 99999999999999999999G
run 2 vdi resize demo/web
says err "--size is missing"
run 2 snap create demo/web@one --label two
says err "two labels, 'one' and 'two'"
run 2 vdi export demo/web@ out
says err "a snapshot is a label, a sequence number or a time"
run 0 --state-dir "$DIR/elsewhere" store list
says err "$DIR/elsewhere/stores"
[[ ! -e elsewhere ]] || die "a folder was made for nothing"
run 1 --state-dir /dev/null store list
says err "cannot use directory /dev/null"
run 0 version --json
[[ -n $(json version) ]] || die "no version in the JSON"

step "the manual and the completion know every command and option"
for noun in $("$PARALLAX" __complete); do
    verbs=$("$PARALLAX" __complete "$noun" | grep -v '^--')
    for verb in ${verbs:-""}; do
        # shellcheck disable=SC2086 # no verb: no word
        section=$(grep -A12 "^\*parallax $noun${verb:+ $verb}\*" "$SOURCE/packaging/man/parallax.8.scd")
        [[ -n $section ]] || die "the manual has no 'parallax $noun $verb'"
        # shellcheck disable=SC2086
        for option in $("$PARALLAX" __complete "$noun" $verb | grep '^--' | tr -d =); do
            case $option in
            --json | --quiet | --help | --state-dir | --config | --wait | --columns | --bytes) ;; # of all tables: among the options of every command
            *) [[ $section == *"*$option"* ]] || die "the manual of '$noun $verb' has no $option" ;;
            esac
        done
    done
done
bash -n "$SOURCE/packaging/completion/parallax.bash" || die "the completion is no bash"

step "stores: what cannot be formatted is not"
run 3 store format demo --volume "$DIR/demo.plx"
says err "give --size"
[[ ! -e demo.plx ]] || die "a file was made"
run 2 store format demo
run 2 store format demo --volume "$DIR/demo.plx" --size 0
run 2 store format de/mo --volume "$DIR/demo.plx" --size 256M
run 2 store format "$(printf 'x%.0s' {1..300})" --volume "$DIR/demo.plx" --size 256M
run 2 store format demo --volume "$DIR/demo.plx" --size 256M --extent-size 3M
run 1 store format demo --volume "$DIR/demo.plx" --size 64k
[[ ! -e demo.plx ]] || die "a file is left behind"
run 1 store format demo --volume /dev/null/x --size 256M
says err "check the path"
echo "not empty" >foreign
run 4 store format demo --volume "$DIR/foreign" --size 256M
says err "exists with 10 bytes, and --size is for a file that is created; leave it out"
truncate -s 256M foreign
run 4 store format demo --volume "$DIR/foreign"
[[ $(head -c 9 foreign) == "not empty" ]] || die "a foreign file was changed"
truncate -s 256M blank
ln blank hard
ln -s blank soft
for name in hard soft "$DIR/blank"; do
    run 1 store format demo --volume blank --volume "$name"
    says err "parallax: blank and $name are the same volume"
    same blank <(head -c 256M /dev/zero)
done
run 1 store format demo --volume made --volume ./made --size 256M
says err "made and ./made are the same volume"
[[ ! -e made ]] || die "a file is left behind"
rm blank hard soft

step "stores: format, list, info"
run 0 store format demo --volume "$DIR/demo.plx" --size 512M --extent-size 16M --json
[[ $(json name) == demo && $(json extent_bytes) == $((16 << 20)) ]] || die "what was formatted is not told"
[[ $(stat -c %s demo.plx) == $((512 << 20)) ]] || die "the volume has another size"
run 4 store format demo --volume "$DIR/second.plx" --size 256M
says err "demo"
[[ ! -e second.plx ]] || die "a file is left behind"
run 4 store format other --volume "$DIR/demo.plx"
run 0 store list --json
[[ $(json 0 name) == demo ]] || die "the store is not listed"
run 0 store info demo --json
[[ $(json block_size) == 4096 ]] || die "blocks are not 4096"
blocks=$(($(json used_blocks) + $(json free_blocks)))
[[ $blocks == $((512 << 8)) ]] || die "used and free blocks add up to $blocks"
[[ $(($(json available_blocks) + $(json reserved_blocks))) == $(json free_blocks) ]] || die "what is free does not add up"
[[ $(json reclaimable_bytes) == null ]] || die "something is reclaimable before anything was collected"
[[ $(json recovery_bytes) == 0 ]] || die "something is left to disks that are open, and none is"
run 0 store info demo
says out "512 MiB"
says out "gc demo --dry-run"
run 2 store set demo
for limit in 0 100% 0% 1T 10X -1; do run 2 store set demo --warn-at "$limit"; done
run 3 store set nothing --warn-at 80%
run 0 store set demo --warn-at 80%
run 0 store info demo --json
[[ $(json warn_at_bytes) == $(((512 << 20) * 80 / 100)) && $(json warning) == null ]] || die "the soft limit is not told"
run 0 store set demo --warn-at 20M
run 0 store info demo
says out "the soft limit is crossed"
run 0 store set demo --warn-at none
run 0 store info demo
[[ $(<out) != *"Warn"* ]] || die "the soft limit is still there"
run 0 store check demo
run 3 store info nothing
run 3 store check nothing

step "virtual disks: create, list, info"
for size in 0 -1 1X 300T 18446744073709551617 1000; do run 2 vdi create demo/bad --size "$size"; done
run 2 vdi create demo/a/b --size 1G
run 2 vdi create "demo/$(printf 'x%.0s' {1..300})" --size 1G
run 2 vdi create demo/bad --size 1G --sector-size 1024
run 3 vdi create nothing/web --size 1G
run 0 vdi create demo/web --size 1G
run 4 vdi create demo/web --size 1G
says err "exists"
run 0 vdi create demo/large --size 256T --sector-size 4096 --overwrite copy --json
[[ $(json size_bytes) == $((256 << 40)) && $(json sector_size) == 4096 && $(json overwrite) == copy ]] ||
    die "another virtual disk was made"
run 0 vdi list demo --json
[[ $(json 1 name) == demo/web ]] || die "the list is not in order"
run 0 vdi list
says out "1 GiB"
run 3 vdi list nothing
run 3 vdi info demo/nothing

step "virtual disks: resize"
run 2 vdi resize demo/web --size 512M
says err "smaller"
run 2 vdi resize demo/web --size 300T
run 0 vdi resize demo/web --size 1536M --json
[[ $(json open_by) == null ]] || die "the command tells itself as who has the disk open"
run 0 vdi resize demo/web --size 2G
run 0 vdi info demo/web --json
[[ $(json size_bytes) == $((2 << 30)) ]] || die "it did not grow"
[[ $(json used_bytes) == 0 ]] || die "an empty virtual disk uses space"
run 2 vdi set demo/web
run 2 vdi set demo/web --warn-at 3G
run 3 vdi set demo/nothing --warn-at 1G
run 0 vdi set demo/web --warn-at 1G --json
[[ $(json warn_at_bytes) == $((1 << 30)) ]] || die "the soft limit is not told"
run 0 vdi set demo/web --warn-at none

step "images in and out"
head -c 5000000 /dev/urandom >random
{ cat random; head -c 3000000 /dev/zero; cat random; } >image
truncate -s 20M image
run 3 vdi import missing demo/image
run 0 vdi import image demo/image
run 0 vdi info demo/image --json
[[ $(json used_bytes) -ge 10000000 && $(json used_bytes) -le 10020000 ]] || die "what it uses is told as $(json used_bytes)"
run 0 vdi export demo/image back
same image back
(($(stat -c %b back) * 512 < 15 << 20)) || die "the export is not sparse"
run 4 vdi export demo/image back
says err "--force"
run 0 vdi export demo/image back --force
"$PARALLAX" vdi export demo/image - >stream 2>err || die "no export to a pipe"
same image stream
run 4 vdi import image demo/image
says err "--force"
tr '\0' '\1' <image | head -c 3000000 >ones
run 0 vdi import ones demo/image --force
run 0 vdi export demo/image back --force
truncate -s 20M ones
same ones back
# shellcheck disable=SC2002 # a pipe, not a file
cat image | "$PARALLAX" vdi import - demo/piped --size 32M 2>err || die "no import from a pipe"
run 0 vdi export demo/piped back --force
truncate -s 32M image
same image back
# shellcheck disable=SC2002
cat image | "$PARALLAX" vdi import - demo/short --size 1M >out 2>err && die "an image that is too large went in"
run 3 vdi info demo/short
# shellcheck disable=SC2002
cat image | "$PARALLAX" vdi import - demo/unknown >out 2>err && die "a size was guessed"
run 3 vdi info demo/unknown
run 0 store check demo --data --json
[[ $(json errors) == 0 ]] || die "the check found something"

step "snapshots and labels"
run 0 snap create demo/image@first
first=$(<out)
[[ $first == demo/image@+([0-9]) ]] || die "the name is not printed"
head -c 1000000 /dev/urandom >second
run 0 vdi import second demo/image --force
run 0 snap create demo/image --label second --json
second=$(json seq)
time=$(json time)
[[ $time == 20??-??-??T??:??:??.*+0[12]:00 ]] || die "$time is no RFC 3339 time of this zone"
run 0 snap list demo/image --json
[[ $(json 0 name) == "$first" && $(json 1 seq) == "$second" && $(json 0 labels 0) == first ]] ||
    die "the list is wrong"
run 0 snap list demo/image --limit 1 --from 1
says err "--from $second"
run 0 snap list demo/image --from "$second" --json
[[ $(json 0 seq) == "$second" ]] || die "the next page is wrong"
run 0 snap list demo/image --limit 1
says err "there are older ones"
says out "@$second"
run 0 snap list demo/image --from "$time" --all --json
[[ $(json 0 seq) == "$second" ]] || die "a time does not begin a list"
run 2 snap list demo/image --all --limit 3
run 3 snap list demo/image --from nothing
run 0 vdi export demo/image@first back --force
same ones back
run 0 vdi export "demo/image@$time" back --force
truncate -s 20M second
same second back
run 0 snap label "$first" one
run 0 snap list demo/image --labels
says out "first, one"
run 2 snap label "$first" 1bad
run 3 snap label demo/image@999999 nothing
run 0 snap unlabel demo/image@one
run 3 snap unlabel demo/image@one
run 3 vdi export demo/image@one back --force
run 3 vdi export demo/image@2001-01-01T00:00:00Z back --force

step "clones and the tree"
run 0 vdi clone demo/image@first demo/clone
run 3 vdi clone demo/image@nothing demo/clone2
run 4 vdi clone demo/image@first demo/clone
run 2 vdi clone demo/image@first other/clone
run 0 vdi export demo/clone back --force
same ones back
run 0 vdi import second demo/clone --force
run 0 vdi export demo/image@first back --force
same ones back
run 0 tree demo
says out "clone"
says out "@${first#*@} first"
run 0 tree demo --dot
says out "digraph"
run 0 tree --json
run 3 tree nothing

step "deleting"
run 4 vdi delete demo/image
says err "--yes"
run 4 vdi delete demo/image --json
grep -q '"code": *"UNCONFIRMED"' err || die "what is not confirmed counts as in use"
run 0 vdi delete demo/image --dry-run
says err "demo/image (20 MiB) would be deleted with all its snapshots, 2 of them with a label; its clone demo/clone stays; nothing was changed"
run 0 vdi delete demo/image --dry-run --json
[[ $(json deleted) == false && $(json labels 0) == first && $(json clones) == '["demo/clone"]' ]] || die "not what would be deleted"
run 0 vdi info demo/image
run 0 vdi delete demo/image --yes
run 3 vdi delete demo/image --dry-run
run 3 vdi info demo/image
run 3 vdi delete demo/image --yes
run 0 vdi export demo/clone back --force
same second back
run 0 tree demo
says out "(deleted)"

step "on a terminal"
run 0 vdi create demo/doubt --size 64M
typed no vdi delete demo/doubt && die "deleted without a yes"
says out "will be lost for good"
says out "nothing was deleted"
run 0 vdi info demo/doubt
typed "" vdi export demo/doubt - && die "an image on a terminal"
says out "this is not for a terminal; redirect the output"
typed yes vdi delete demo/doubt || die "a yes did not count"
run 3 vdi info demo/doubt
typed "" store check demo --data --rate 4M || die "no check on a terminal"
says out "check: "
says out " left"

step "files that are no images"
run 3 vdi import missing demo/none
says err "missing"
run 1 vdi import "$DIR" demo/none --size 1M
says err "Is a directory"
: >nothing
run 1 vdi import nothing demo/none
says err "the file is empty"
run 1 vdi export demo/web /dev/full/x
run 3 vdi export demo/web "$DIR/no/folder"
says err "No such file"
run 3 vdi info demo/none

step "a disk that is open elsewhere"
mkfifo pipe
exec {held}<>pipe
"$PARALLAX" vdi import pipe demo/web --force >/dev/null 2>&1 &
importer=$!
for ((i = 0; i < 100; i++)); do
    run 0 vdi info demo/web --json
    [[ $(<out) != *'"open_by": "admin '* ]] || break
    sleep 0.1
done
[[ $(json open_by) == "admin $importer on "* ]] || die "who has the disk open is not told"
run 0 store info demo --json
[[ $(json open_by 0) == "admin $importer on "* ]] || die "who has the store open is not told"
run 4 vdi resize demo/web --size 8G --wait 0
says err "is in use by a parallax command (pid $importer)"
run 4 vdi delete demo/web --yes --wait 0
run 4 vdi delete demo/web --dry-run
says err "demo/web is in use by command $importer on $(hostname), so it would not be deleted"
kill -INT "$importer"
wait "$importer" && die "an interrupted import succeeded"
exec {held}>&-
run 0 vdi info demo/web

step "which share of a disk is vouched for"
run 0 store format hot --volume "$DIR/hot.plx" --size 64M
head -c 4M /dev/urandom >hot.raw
run 0 vdi import hot.raw hot/web
run 0 vdi info hot/web --json
[[ $(json vouched_blocks) == $(json mapped_blocks) ]] || die "what was only written once is not vouched for"
run 0 vdi bench hot/web --rw write --runtime 1 --size 1M --force
run 0 vdi info hot/web --json
left=$(($(json mapped_blocks) - $(json vouched_blocks)))
((left > 0)) || die "what was overwritten in place is vouched for"
run 0 vdi info hot/web
says out "With checksum: "
run 0 store check hot
says out "virtual disk web: $left of its 1024 blocks have no checksum yet"
run 0 store check hot --json
[[ $(($(json mapped_blocks) - $(json vouched_blocks))) == "$left" ]] || die "check and info differ"
run 0 store forget hot

step "bench"
run 0 vdi bench demo/web --rw randwrite --force --bs 4k --iodepth 8 --runtime 1 --size 16M --json
[[ $(json lat_ns p99) -gt 0 && $(json write ios) -gt 0 ]] || die "no figures"
run 0 vdi bench demo/web --rw randrw --force --runtime 1 --size 16M
says out "IOPS"
run 2 vdi bench demo/web --rw sideways
run 2 vdi bench demo/web --bs 1000
for pattern in read randread; do
    run 2 vdi bench demo/web --rw $pattern --snapshot-every 10ms
    says err "--snapshot-every has no effect with --rw $pattern"
done
run 2 vdi bench demo/web --snapshot-every 10ms
says err "a disk that is not written takes no snapshots; give write, randwrite or randrw"
run 2 vdi bench demo/web --size 1T
says err "--size 1 TiB is more than the virtual disk has: "
run 3 vdi stats demo/web
says err "no handler of this host has demo/web open"
run 3 store stats demo

step "the registry is lost"
known() { # all but the instants of creation, which the registry and the store each take
    run 0 vdi list --json
    sed 's/,"created".*//' out
}
known >before
rm -rf state
run 0 store list --json
[[ $(<out) == "[]" ]] || die "a store that nobody knows"
run 0 store scan "$DIR/demo.plx" --json
[[ $(json 0 store) == demo && $(json 0 ours) == true && $(json 0 known) == null ]] || die "the scan does not find it"
run 3 store import --volume "$DIR/nothing.plx"
# It looks at the loop devices of other tests, too, of which some are damaged on purpose.
"$PARALLAX" store scan >out 2>err || [[ $? == 5 ]] || die "a scan of all devices fails: $(<err)"
((EUID)) || ! grep "look as root" err || die "root is told to look as root"
step "a scan goes on behind what it cannot read, and says at the end what that was"
head -c 1M /dev/zero >noise
run 0 store format pair --volume "$DIR/pair0.plx" --volume "$DIR/pair1.plx" --size 64M --extent-size 1M
cp demo.plx damaged.plx
dd if=/dev/zero of=damaged.plx bs=4k count=2 conv=notrunc status=none
printf 'PLXSUPER' | tee >(dd of=damaged.plx bs=4k seek=1 conv=notrunc status=none) | dd of=damaged.plx conv=notrunc status=none
scanned=("$DIR/noise" "$DIR/pair1.plx" "$DIR/nothing.plx" "$DIR/damaged.plx" "$DIR/pair0.plx" "$DIR/demo.plx")
"$PARALLAX" store scan "${scanned[@]}" >out 2>err
[[ $? == 3 ]] || die "the scan does not fail as its first volume does"
for name in noise nothing.plx damaged.plx; do says err "$DIR/$name"; done
[[ $(wc -l <err) == 3 && $(tail -n 1 err) == "parallax: $DIR/noise"* ]] || die "not each is told once"
[[ $(grep -c "pair.*$(hostname).*pair$" out) == 2 ]] || die "a further volume does not tell whose it is"
says out demo.plx
"$PARALLAX" store scan "${scanned[@]}" --json >out 2>err
[[ $(json 0 problem) == *noise* && $(json 1 ours) == true && $(json 1 index) == 1 && $(json 5 store) == demo ]] ||
    die "the scan is not told as JSON"
run 0 store scan "$DIR/pair1.plx" --json # its volume 0 is known here
[[ $(json 0 ours) == true ]] || die "a further volume alone does not tell whose it is"
run 0 store forget pair
advised=$(sed -n "s/.*'parallax \(store import .*\)' makes it known again/\1/p" err)
[[ $advised == "store import --volume $DIR/pair0.plx --volume $DIR/pair1.plx" ]] || die "it advises '$advised'"
# shellcheck disable=SC2086 # words
run 0 $advised
run 0 store release pair
advised=$(sed -n "s/.*'parallax \(store import .*\)' takes it.*/\1/p" err)
# shellcheck disable=SC2086 # words
run 0 $advised
run 0 store forget pair
run 0 store scan "$DIR/pair1.plx" --json
[[ $(json 0 host) == null ]] || die "whose a further volume is cannot be known"
run 0 store import --volume "$DIR/demo.plx"
known >after
same after before
run 2 store rebuild-registry
says err "which store? Give its name, or --volume"
for command in rebuild-registry "take-over --from web1"; do
    # shellcheck disable=SC2086 # words
    run 2 store $command demo --volume "$DIR/demo.plx"
    says err "not both"
done
run 3 store rebuild-registry unknown
run 0 store rebuild-registry demo --dry-run
says err "would rebuild the registry of store demo"
run 0 store rebuild-registry --volume "$DIR/demo.plx" --dry-run
compgen -G 'state/rebuild.*' >out && die "a dry run leaves files"
# Nothing that is said of a full state directory leads to the store's loss.
# full WORDS...: with one that has no room. A mount needs a namespace where there is no root.
full() {
    # shellcheck disable=SC2016 # expanded inside
    unshare -rm bash -c 'mkdir -p full && mount -t tmpfs -o size=1m none full && mkdir full/run || exit 99
        cp -r state/stores full && cat /dev/zero >full/ballast 2>/dev/null
        exec "$PARALLAX" --state-dir full "$@"' - "$@" >out 2>err </dev/null
}
for command in "store rebuild-registry --volume demo.plx" "store import --volume demo.plx"; do
    # shellcheck disable=SC2086 # words
    full $command
    status=$?
    if ((status == 1)) && grep -q unshare: err; then
        part_skipped "a full state directory: no namespaces here: $(head -n 1 err)"
        break
    fi
    ((status == 6)) || die "parallax $command: exit status $status, not 6"
    says err "make room there"
done
rm -rf state
run 6 store rebuild-registry --volume "$DIR/nothing.plx"
run 0 store rebuild-registry --volume "$DIR/demo.plx"
compgen -G 'state/rebuild.*' >out && die "a rebuild leaves files"
known >after
same after before
run 0 vdi export demo/clone back --force
same second back
run 0 store check demo --data

step "check: every finding says where, and what to do"
run 2 store check demo --rate 0
run 2 store check demo --rate much
run 0 store check demo --data --rate 10G --json
[[ $(json clean) == true && $(json errors) == 0 && $(json data_verified) != 0 ]] || die "the check is not clean"
[[ $(json unsettled) == 0 && $(json bytes_read) != 0 ]] || die "the check read nothing"
run 0 vdi create demo/gone --size 64M
head -c 1M /dev/urandom | "$PARALLAX" vdi import - demo/gone >/dev/null 2>&1 || die "no import"
run 0 vdi delete demo/gone --yes
run 0 store check demo --json
[[ $(json deleted_blocks) -ge 256 ]] || die "the deleted disk's blocks are not told apart"
[[ $(json leaks) != "[]" ]] || die "no leaks by extent"
run 0 snap create demo/clone --label kept
run_check() {
    local status=$1
    shift
    "$PARALLAX" store check demo "$@" >out 2>err
    [[ $? == "$status" ]] || die "store check $*: not exit status $status"
}
registry_edit demo.plx "UPDATE vdis SET name = 'other' WHERE name = 'clone'" # every other difference: test_compare.c
run_check 5
says out "virtual disk other is called clone by its record; opening it for writing sets it right"
run_check 5 --json
[[ $(json findings) == *'"kind": "registry"'* ]] || die "no finding of kind registry"
registry_edit demo.plx "UPDATE vdis SET name = 'clone' WHERE name = 'other'"
run_check 0

step "who has the store"
run 0 store take-over demo --from nobody
says err "this host has store demo already"
run 0 store release demo
run 4 store take-over demo --from nobody
says err "--i-checked-it-is-off"
run 0 vdi list demo # reading goes on
run 4 vdi create demo/none --size 1M
says err "was released"
run 0 store import --volume "$DIR/demo.plx"
run_check 0
run 4 store format other --volume "$DIR/demo.plx" --force
says err "store forget demo"
run 0 store add-volume demo "$DIR/demo.plx" --force --dry-run # a volume that it has

step "no space"
run 0 vdi create demo/full --size 4G
head -c 600M /dev/urandom >big
run 6 vdi import big demo/full
run 0 store check demo --json
[[ $(json errors) == 0 ]] || die "a full store is damaged"
rm -f big

step "damage and strange files"
run 0 store forget demo
run 3 store info demo
: >nought.plx
for size in "" "--size 64M"; do
    # shellcheck disable=SC2086 # words
    run 4 store format new --volume nought.plx $size
    says err "nought.plx is empty; delete it, and --size makes a file of that size"
done
run 4 store format new --volume "$DIR/demo.plx"
says err "holds store demo; 'parallax store import' makes it known here, --force overwrites it with all its disks"
cp demo.plx damaged
dd if=/dev/urandom of=damaged bs=4096 count=8 conv=notrunc status=none
"$PARALLAX" store rebuild-registry --volume "$DIR/damaged" >out 2>err && die "a damaged store was accepted"
"$PARALLAX" store rebuild-registry --volume "$DIR/foreign" >out 2>err && die "a foreign file was accepted"
run 0 store rebuild-registry --volume "$DIR/demo.plx"
run 0 store check demo
step "a rebuild reads what it can, whichever block of the store's structures is damaged"
run 0 store format small --volume "$DIR/small.plx" --size 16M --extent-size 1M
head -c 200k /dev/urandom >small.raw
for label in x y z; do
    run 0 vdi import small.raw small/a --force
    run 0 snap create "small/a@$label"
done
run 0 rewind small/a --to x
run 0 snap delete small/a@y
python3 - "$PARALLAX" "$DIR/small.plx" <<'SCRIPT' || die "a rebuild of a damaged store fails"
import subprocess, sys
good, damaged = open(sys.argv[2], "rb").read(), 0
for at in range(16 * 4096, len(good), 4096):
    if 256 <= at // 4096 < 512 or not any(good[at:at + 4096]):
        continue  # the registry itself; nothing
    with open(sys.argv[2], "r+b") as volume:
        volume.seek(at)
        volume.write(bytes(byte ^ 0xa5 for byte in good[at:at + 4096]))
        volume.flush()
        done = subprocess.run([sys.argv[1], "store", "rebuild-registry", "--volume", sys.argv[2], "--dry-run"],
                              capture_output=True)
        volume.seek(at)
        volume.write(good[at:at + 4096])
    damaged += done.returncode == 5
    if done.returncode not in (0, 5):
        sys.exit(f"block {at // 4096}: {done}")
sys.exit(damaged < 3)
SCRIPT
run 0 store forget small
step "a registry that was overwritten: damage, and how to make it anew"
run 0 store format worn --volume "$DIR/worn.plx" --size 64M
run 0 vdi import second worn/kept
cp worn.plx worn.whole
for how in "if=/dev/zero bs=64k seek=16 count=1" "if=/dev/urandom bs=64k seek=16 count=1" \
    "if=/dev/urandom bs=4k seek=257 count=40"; do # all, its first pages, and all but that
    cp worn.whole worn.plx
    # shellcheck disable=SC2086 # words
    dd of=worn.plx conv=notrunc status=none $how
    for command in "vdi list" "vdi list worn" "vdi export worn/kept -" "store check worn" "vdi create worn/new --size 1M" \
        "store info worn" "store list" "snap list worn/kept" "gc worn"; do
        # shellcheck disable=SC2086 # words
        run 5 $command
        says err "'parallax store rebuild-registry --volume $DIR/worn.plx' rebuilds it from the store"
        [[ $how != *zero* ]] || says err "is empty: it was overwritten, or its format or rebuild was not finished"
        [[ $how == *zero* ]] || says err "the registry in $DIR/worn.plx is damaged"
    done
    run 5 store import --volume "$DIR/worn.plx"
    [[ -e state/stores/worn.json ]] || die "a failed import forgets a store that was known"
    run 0 store forget worn
    run 5 store import --volume "$DIR/worn.plx"
    [[ ! -e state/stores/worn.json ]] || die "a failed import leaves the store known"
    says err "'parallax store rebuild-registry --volume $DIR/worn.plx' rebuilds it from the store"
    run 5 -q store rebuild-registry --volume "$DIR/worn.plx"
    says err "store worn: the old registry could not be read, and what only it knew is gone: --warn-at of the store"
    run 0 vdi export worn/kept worn.back --force
    same second worn.back
done
step "page 1 of a registry is gone: no command makes an empty one over the rest"
cp worn.whole worn.plx
dd if=/dev/zero of=worn.plx conv=notrunc status=none bs=4k seek=256 count=1
for command in "vdi list worn" "vdi create worn/new --size 1M" "store check worn" "gc worn" "store import --volume $DIR/worn.plx"; do
    # shellcheck disable=SC2086 # words
    run 5 $command
    says err "is empty: it was overwritten, or its format or rebuild was not finished"
done
dd if=worn.whole of=worn.plx conv=notrunc status=none bs=4k seek=256 skip=256 count=1
run 0 store check worn --data
run 0 vdi export worn/kept worn.back --force
same second worn.back
run 0 store forget worn

step "a volume that was cut off"
truncate -s 100M demo.plx
"$PARALLAX" store check demo >out 2>err && die "a truncated volume was accepted"
[[ $(wc -l <err) == 1 ]] || die "the error is not one line"

step "a list of stores that is damaged, or another's"
mkdir -p broken/stores
head -c 4096 /dev/urandom >broken/stores/demo.json
run 1 --state-dir "$DIR/broken" store list
says err "store import"
if ((EUID == 0)) && command -v setpriv >/dev/null; then
    chmod 755 "$DIR"
    setpriv --reuid=65534 --clear-groups "$PARALLAX" store list >out 2>err && die "another user read the registry"
    says err "ermission denied"
else
    part_skipped "another user: root and setpriv are needed"
fi

step "output that cannot be written"
"$PARALLAX" store list >/dev/full 2>err && die "a full output was not noticed"

step "who may log in to a LUN has to be said"
run 2 lun create demo/none
says err "--initiator IQN"
says err "--any-initiator"
run 2 lun create demo/none --any-initiator --initiator iqn.2026-11.org.lab:h1

if ((EUID != 0)); then
    step "LUNs need root"
    run 1 lun list
elif "$PARALLAX" lun list >out 2>err; then
    step "a store that is not known has no LUNs to be listed"
    run 3 lun list nothing
    says err "there is no store 'nothing'"
else
    part_skipped "LUNs: $(head -n 1 err)"
fi
echo "all is well"
