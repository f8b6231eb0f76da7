#!/bin/bash
# Rings as devices: made, taken up again, listed, deleted; what overwrites none of them; what is left when a command is
# killed; and that a virtual disk whose newest writes are in a ring is not used without it.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}" "${RING_FORGE:?the program that fills rings}"

# allows VOLUME: the store's superblocks say, in both slots, that it has rings (format.h).
allows() {
    python3 -c '
import sys
with open(sys.argv[1], "rb") as volume:
    sys.exit(not all(volume.read(4096)[32] & 4 for _ in range(2)))' "$1"
}

# erased PATH: there is no ring's superblock.
erased() { [[ $(head -c 8192 "$1" | tr -d '\0' | wc -c) == 0 ]] || die "$1 is not erased"; }

# uuid VDI
uuid() {
    run 0 vdi info "$1" --json
    json uuid
}

# holding BYTE PATH: another process has the lock on a byte of it, exclusively (bytelock.h), until `let_go`.
holding() {
    coproc HOLDER {
        python3 -c '
import fcntl, struct, sys
file = open(sys.argv[2], "r+b")
lock = struct.pack("hhqqixxxx", fcntl.F_WRLCK, 0, (1 << 62) + int(sys.argv[1]), 1, 0)
fcntl.fcntl(file, fcntl.F_OFD_SETLK if hasattr(fcntl, "F_OFD_SETLK") else 37, lock)
print("held", flush=True)
sys.stdin.read()' "$1" "$2"
    }
    read -r -u "${HOLDER[0]}" answer
    [[ $answer == held ]] || die "byte $1 of $2 cannot be locked"
}
let_go() {
    local pid=$HOLDER_PID
    eval "exec ${HOLDER[1]}>&-"
    wait "$pid"
}
USED=11 RING=15

# killed AT WORDS...: the command dies with that submission to a device. Its exit status is in status.
killed() {
    local at=$1
    shift
    status=$(exec 2>/dev/null && PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" "$@" >out 2>err; echo $?)
    [[ $status == 0 || $status == 137 ]] || die "parallax $*, killed at $at: exit status $status"
}

run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 store format other --volume "$DIR/other.plx" --size 64M --extent-size 1M
run 0 vdi create demo/web --size 1M
run 0 vdi create demo/db --size 1M
run 0 vdi create demo/other --size 1M
head -c 1M /dev/urandom >image
run 0 vdi import image demo/web
run 0 vdi import image demo/db
run 0 snap create demo/web@clean

step "nothing is made for words that are wrong"
run 2 ring create demo
run 2 ring create demo "$DIR/a" "$DIR/b" "$DIR/c" --size 64M
run 2 ring create demo iscsi://127.0.0.1/iqn.x:y/1
run 3 ring create demo "$DIR/a"
says err "give --size to make a file of that size"
run 3 ring create none "$DIR/a" --size 64M
run 2 ring create demo "$DIR/a" "$DIR/a" --size 64M
for size in 64 10M 32M; do
    run 2 ring create demo "$DIR/a" --size $size
    says err "--size is too small: a ring's member needs at least 33M"
    run 2 ring repair demo --with "$DIR/a" --size $size
    says err "--size is too small: a ring's member needs at least 33M"
done
run 2 ring create demo "$DIR/a" --size 40000001
says err "--size must be a multiple of 4096"
truncate -s 32M small
run 1 ring create demo "$DIR/small"
says err "a ring's member needs at least 33 MiB"
rm small
begun=$SECONDS
run 4 ring create demo "$DIR/demo.plx" --force
((SECONDS - begun < 5)) || die "a command waits for a volume that it has open itself"
says err "$DIR/demo.plx is a volume of a store, or a copy of one: no ring is made over it, with --force neither"
run 3 ring info demo
says err "this host has no ring of store 'demo'"
run 3 ring delete demo
run 3 ring info "$DIR/a"
run 0 ring list
says err "this host has no ring"
[[ ! -e a && -z $(find state/rings -type f) ]] || die "something is left"
allows demo.plx && die "the store allows rings that it has none of"

step "a ring of one file"
run 0 ring create demo "$DIR/one" --size 64M --json
[[ $(json store) == demo && $(json taken_up) == false && $(json size_bytes) == $((48 << 20)) ]] || die "that is another ring"
ring=$(json ring)
allows demo.plx || die "the store does not allow the ring"
(($(stat -c %b one) >= 64 << 11)) || die "its blocks are not allocated"
[[ $(stat -c %a one) == 600 ]] || die "others may read it"
run 0 store info demo --json
identity=$(json uuid)
entry=state/rings/$identity.json
[[ $(stat -c %a "$entry") == 600 && $(<"$entry") == *"$ring"*"$DIR/one"* ]] || die "its entry is another one"
run 0 ring list --json
[[ $(json 0 ring) == "$ring" && $(json 0 members 0 path) == "$DIR/one" && $(json 0 state) == idle ]] || die "it is not listed"
run 0 ring list demo --columns store,size_bytes,free_bytes --bytes -q
[[ $(tr -s ' ' <out) == "demo $((48 << 20)) $((48 << 20))" ]] || die "its size is another one"
run 0 ring info demo
says out "$ring"
run 0 ring info "$DIR/one" --json
[[ $(json store) == demo && $(json ours) == true && $(json disks) == "[]" ]] || die "by its path it is another one"
run 0 store check demo
run 0 vdi export demo/web back
same image back

step "one ring a store"
run 4 ring create demo "$DIR/two" --size 64M
says err "this host has a ring of store demo already, on $DIR/one; 'parallax ring delete demo' ends that one"
[[ ! -e two ]] || die "a file is left"

step "a ring that was moved is taken up where it lies now, unless it is where it was as well"
mv one moved
cp --sparse=always moved before
cp --sparse=always moved two
run 0 ring create demo "$DIR/moved"
says err "this host's ring on $DIR/moved is known again"
run 0 ring info demo --json
[[ $(json ring) == "$ring" && $(json members 0 path) == "$DIR/moved" ]] || die "it is not known where it lies"
run 4 ring create demo "$DIR/two" --force
says err "$DIR/two is a copy of this host's ring of store demo on $DIR/moved, or was used apart; to use it instead, move that one away and repeat this"
run 4 ring create demo "$DIR/demo.plx" --force
says err "$DIR/demo.plx is a volume of a store, or a copy of one: no ring is made over it"
same moved before
mv moved one
rm two before
run 0 ring create demo "$DIR/one"
run 4 ring create other "$DIR/one"
run 4 ring create other "$DIR/one" --force
says err "is, or overlaps, a member of this host's ring of store demo"
[[ ! -e two ]] || die "a file is left"

step "what is not taken for a ring"
run 0 store format gone --volume "$DIR/gone.plx" --size 64M --extent-size 1M
cp --sparse=always gone.plx before
for force in "" "--force"; do
    # shellcheck disable=SC2086 # words
    run 4 ring create other "$DIR/gone.plx" $force
    says err "is a volume of store gone"
done
run 0 store release gone
run 0 store forget gone
for lost in "" 20480; do # its spare superblock tells as well
    [[ ! $lost ]] || head -c $lost /dev/zero | dd of=gone.plx conv=notrunc status=none
    cp --sparse=always gone.plx before
    for force in "" "--force"; do
        # shellcheck disable=SC2086 # words
        run 4 ring create other "$DIR/gone.plx" $force
        says err "is a volume of a store, or a copy of one: no ring is made over it, with --force neither"
        same gone.plx before
    done
done
for at in 0 1000000 40000000 67108863; do
    truncate -s 0 data && truncate -s 64M data
    printf x | dd of=data bs=1 seek=$at conv=notrunc status=none
    cp --sparse=always data before
    # Between the places that are looked at there may be anything.
    [[ $at == 40000000 ]] || run 4 ring create other "$DIR/data"
    [[ $at == 40000000 ]] || says err "holds data already"
    same data before
done
run 0 ring create other "$DIR/data" --force
run 0 ring delete other
erased data
truncate -s 64M second
run 1 ring create other "$DIR/second" "$DIR/other.plx/x"
ln second hard
run 1 ring create other "$DIR/second" "$DIR/hard"
says err "are the same volume"
if [[ $(id -u) == 0 ]] && loop=$(losetup -f --show "$DIR/second" 2>/dev/null); then
    trap '[[ ! $loop ]] || { umount "$DIR/mounted" 2>/dev/null; losetup -d "$loop"; }; rm -rf "$DIR"' EXIT
    mkfs.ext4 -q "$loop" && mkdir mounted
    run 4 ring create other "$loop"
    says err "holds data already"
    if mount "$loop" mounted 2>/dev/null; then
        run 4 ring create other "$loop" --force
        says err "is in use: mounted"
        umount mounted
    else
        part_skipped "a mounted ext4: none can be mounted here"
    fi
    run 0 ring create other "$loop" --force
    run 4 store format new --volume "$DIR/second" --force
    says err "member of this host's ring of store other"
    [[ -z $(blkid -p -o value -s TYPE "$loop" 2>/dev/null) ]] || die "the file system is still seen"
    run 0 ring delete other
    losetup -d "$loop"
    loop=
else
    part_skipped "through a loop device: none can be made here"
fi

# refused PATH TEXT: nothing overwrites it, nor says that it would.
refused() {
    cp --sparse=always "$1" before
    for force in "" "--force" "--force --i-checked-nobody-uses-it"; do
        for words in "format new --volume $1" "format new --volume $DIR/blank --volume $1 --size 64M" "add-volume other $1"; do
            # shellcheck disable=SC2086 # words
            run 4 store $words $force
            says err "$2"
        done
    done
    for words in "vdi export demo/web $1" "vdi export-diff demo/web@clean $1" "cdp timeline demo/web --svg $1" \
        "store export-registry demo $1"; do
        # shellcheck disable=SC2086 # words
        run 4 $words --force
        says err "it is not overwritten, with --force neither"
    done
    timeout 60 "$PARALLAX" vdi export demo/web - 1<>"$1" 2>err && die "standard output is overwritten"
    says err "it is not overwritten, with --force neither"
    cmp -s "$1" before || die "$1: refused, and overwritten all the same"
    [[ ! -e blank ]] || die "$1: refused, and a file was left behind"
}

step "nothing overwrites a member of this host's ring, whatever is left on it"
refused "$DIR/one" "is, or overlaps, a member of this host's ring of store demo"
ln -s one link
run 4 store format new --volume "$DIR/link" --force
cp --sparse=always one kept
head -c 8192 /dev/zero | dd of=one conv=notrunc status=none
refused "$DIR/one" "is, or overlaps, a member of this host's ring of store demo"
dd if=kept of=one bs=8k count=1 conv=notrunc status=none
cp "$entry" kept.json
echo "no entry" >"$entry"
run 1 store format new --volume "$DIR/new" --size 64M
says err "$identity.json cannot be read"
[[ ! -e new ]] || die "a file is left"
run 1 vdi export demo/web "$DIR/one" --force
says err "may be a member of a ring whose entry cannot be read"
run 0 vdi export demo/web "$DIR/fresh"
run 1 ring list
says out "INVALID"
says err "remove it, and enter the ring again with 'parallax ring create STORE PATH'"
run 1 ring create demo "$DIR/two" --size 64M
[[ ! -e two ]] || die "a file is left"
rm "$entry"

step "a ring that was forgotten is taken up again as it is, by its own host and store only"
run 4 store format new --volume "$DIR/one"
says err "holds an empty ring of host $(hostname), this host's of store demo, which no virtual disk needs; 'parallax ring create demo PATH'"
cp --sparse=always one before
run 4 ring create other "$DIR/one"
says err "holds an empty ring of host"
run 0 ring create demo "$DIR/one"
says err "this host's ring on $DIR/one is known again"
same one before
same "$entry" kept.json
web=$(uuid demo/web)
"$RING_FORGE" append "$web" 1 5 "$DIR/one" || die "the ring cannot be filled"
rm "$entry"
cp --sparse=always one before
refused "$DIR/one" "may hold writes that a store lacks; 'parallax ring info"
run 4 ring create other "$DIR/one" --force
says err "may hold writes that a store lacks"
run 0 ring create demo "$DIR/one" --force --json
[[ $(json taken_up) == true && $(json ring) == "$ring" ]] || die "it was made anew"
same one before
rm "$entry"
mkdir elsewhere
python3 -c 'import uuid; print(uuid.uuid4())' >elsewhere/host-id
run 0 store release demo
run 0 --state-dir "$DIR/elsewhere" store import --volume "$DIR/demo.plx"
for force in "" "--force"; do
    # shellcheck disable=SC2086 # words
    run 4 --state-dir "$DIR/elsewhere" ring create demo "$DIR/one" $force
    says err "is a member of its ring of store demo, and may hold writes that the store lacks"
done
run 0 --state-dir "$DIR/elsewhere" ring info "$DIR/one" --json
[[ $(json ours) == false && $(json store) == demo ]] || die "another host's ring is not told"
run 0 --state-dir "$DIR/elsewhere" ring list
[[ ! -s out ]] || die "another host's ring is listed"
run 4 --state-dir "$DIR/elsewhere" ring delete "$DIR/one"
says err "if that host does not use it any more, add --force"
run 0 --state-dir "$DIR/elsewhere" store release demo
run 0 store import --volume "$DIR/demo.plx"
rm -r elsewhere
same one before
run 0 ring create demo "$DIR/one"

step "two members"
run 0 ring create other "$DIR/left" "$DIR/right" --size 40M
mv state/rings state/away
run 4 ring create other "$DIR/left"
says err "is one of two members of a ring of store other; give both to take the ring up again"
truncate -s 40M stranger
run 4 ring create other "$DIR/left" "$DIR/stranger"
says err "holds an empty ring of host"
run 0 ring create other "$DIR/right" "$DIR/left"
rm -r state/rings && mv state/away state/rings
run 0 ring info other --json
[[ $(json members 1 path) == "$DIR/right" && $(json size_bytes) == $((32 << 20)) ]] || die "that is another ring"

step "whoever looks changes nothing and locks nothing; damage is told with where it is"
cp --sparse=always left before
holding $USED "$DIR/left"
run 0 ring list --wait 0
run 0 ring info other --wait 0
let_go
holding $RING "$DIR/left"
run 0 ring list other --json
[[ $(json 0 state) == "in use" ]] || die "that it is in use is not told"
run 4 ring delete other --wait 0
says err "has the ring open; a handler lets go of it when"
let_go
same left before
dd if=/dev/urandom of=left bs=4k count=1 conv=notrunc status=none # one of two copies
run 0 ring list
printf 'PLXRING.damaged' | dd of=left conv=notrunc status=none
printf 'PLXRING.damaged' | dd of=left bs=4k seek=1 conv=notrunc status=none
run 5 ring list
says out demo
says out CORRUPT
says err "ring of store other: $DIR/left: neither copy of the ring's superblock can be used"
run 5 ring info other
says out "$DIR/left (CORRUPT), $DIR/right"
says out "32 MiB"
run 4 ring delete other
says err "neither copy of the ring's superblock can be used"
says err "with --force the ring is deleted all the same"
run 4 ring delete "$DIR/left" --dry-run
mv left elsewhere
run 3 ring list other
says out "NOT_FOUND"
run 3 ring info other --json
[[ $(json members 0 problem_code) == NOT_FOUND && $(json free_bytes) == $((32 << 20)) ]] || die "the other member is not read"
run 4 ring delete other
says err "with --force the ring is deleted all the same"
run 0 ring delete other --force
erased right
mv elsewhere left
run 4 store format new --volume "$DIR/left"
run 4 store format new --volume "$DIR/left" --force
says err "neither copy of the ring's superblock can be used"
run 4 ring delete "$DIR/left"
says err "so nobody knows whether a virtual disk needs the ring, which holds writes to"
run 4 ring delete "$DIR/left" --force
run 0 ring delete "$DIR/left" --i-checked-nobody-needs-it
erased left
run 3 ring delete "$DIR/left" --i-checked-nobody-needs-it
says err "there is no ring"

step "what was set aside goes with --force only"
run 0 ring info demo --json
[[ $(json disks 0 vdi) == web && $(json disks 0 needed) == false && $(json disks 0 aside) == 5 ]] || die "5 records are not aside"
cp --sparse=always one before
for words in "" --dry-run --i-checked-nobody-needs-it; do
    # shellcheck disable=SC2086 # words
    run 4 ring delete demo $words
    says err "the ring may hold writes to web that were set aside: they were given up, or a newer state of the store needs them (then put that one back); with --force they are lost"
done
run 0 ring delete demo --force --dry-run
says err "would erase the ring on $DIR/one with up to 16 MiB of writes to web; nothing was changed"
same one before
[[ -e $entry ]] || die "a dry run has changed something"

step "a ring that a virtual disk needs is never deleted, and the disk not used without it"
"$RING_FORGE" mark "$DIR/demo.plx" "$web" "$DIR/one" || die "the disk cannot be marked"
run 0 ring info demo --json
[[ $(json disks 0 vdi) == web && $(json disks 0 needed) == true && $(json disks 0 records) == 5 ]] || die "5 records are not the disk's"
run 0 ring info demo
says out "web"
for words in "demo" "demo --force" "demo --force --i-checked-nobody-needs-it" "demo --force --dry-run" "$DIR/one --force"; do
    # shellcheck disable=SC2086 # words
    run 4 ring delete $words
    says err "the ring is needed, for it may hold the newest writes of web; 'parallax vdi set STORE/VDI --ring off' brings them to the store"
done
same one before
mv one hidden
run 4 vdi import image demo/web --force
says err "demo/web: its newest writes lie in this host's ring on $DIR/one, without which it cannot be used: cannot open $DIR/one"
run 4 snap create demo/web
says err "without which it cannot be used"
mv hidden one
run 0 snap create demo/db
run 0 store check demo --data
run 0 ring info demo --json
[[ $(json disks 0 needed) == true && $(json disks 0 records) == 5 ]] || die "who may not use the disk has changed its mark"
rm "$entry"
run 4 vdi resize demo/web --size 2M
says err "its newest writes lie in the write-back ring $ring, which this host does not have; if it lies here, 'parallax ring create demo PATH'"
run 4 ring delete "$DIR/one" --force --i-checked-nobody-needs-it
says err "the ring is needed"
run 0 ring create demo "$DIR/one"
mv one elsewhere
run 4 ring delete demo --force --i-checked-nobody-needs-it
says err "the ring is needed"
cp before one
printf 'PLXRING.damaged' | dd of=one conv=notrunc status=none
printf 'PLXRING.damaged' | dd of=one bs=4k seek=1 conv=notrunc status=none
run 4 ring delete demo --force --i-checked-nobody-needs-it
says err "the ring is needed"
cp before one
run 0 ring info demo

step "a disk that a dead process left open is recovered, and its mark stays"
db=$(uuid demo/db)
for at in 100 200 300 400 500; do # somewhere it has the disk open
    killed "$at" vdi import image demo/db --force
    run 0 vdi info demo/db --json
    [[ $(<out) != *", gone"* ]] || break
done
[[ $(<out) == *", gone"* ]] || die "nobody died with the disk open"
"$RING_FORGE" mark "$DIR/demo.plx" "$db" "$DIR/one" || die "the disk cannot be marked"
mv one hidden
run 4 snap create demo/db
says err "demo/db: its newest writes lie in this host's ring on $DIR/one"
run 0 vdi info demo/db --json
[[ $(<out) != *", gone"* ]] || die "it was not recovered"
run 4 snap create demo/db
mv hidden one
run 4 ring delete demo --force
says err "the newest writes of db, web;"
run 0 store check demo --data

step "an old copy of the ring is told from it"
cp one older
"$RING_FORGE" append "$web" 2 1 "$DIR/one" || die "the ring cannot be filled"
"$RING_FORGE" mark "$DIR/demo.plx" "$web" "$DIR/one" || die "the disk cannot be marked"
cp one newer
cp older one
for _ in 1 2 3; do # each time
    run 4 ring info demo
    says err "an older copy of the ring that has the newest writes"
done
cp newer one

step "where the store cannot be asked only the operator can know"
mv demo.plx demo.away
run 6 ring info demo
says out "$ring"
for words in "" --force --dry-run; do
    # shellcheck disable=SC2086 # words
    run 4 ring delete demo $words
    says err "if none does, add --i-checked-nobody-needs-it"
done
run 0 ring delete demo --i-checked-nobody-needs-it --dry-run
cmp -s one newer || die "a dry run has changed something"
cp one spared
run 0 ring delete demo --i-checked-nobody-needs-it
erased one
[[ ! -e $entry ]] || die "the entry is left"
mv demo.away demo.plx
run 3 ring list demo

step "a deletion that was cut off is gone on with"
cp spared one
run 0 ring create demo "$DIR/one"
run 0 vdi delete demo/web --yes
run 0 vdi delete demo/db --yes
head -c 8192 /dev/zero | dd of=one conv=notrunc status=none
run 3 ring list
says out "NOT_FOUND"
cp -r demo.plx whole
python3 - demo.plx "$(registry "SELECT slot FROM vdis WHERE name = 'other'")" <<'END'
import sys
with open(sys.argv[1], "r+b") as volume:
    volume.seek(volume.read(1 << 20).index(b"PLXVDREC") // 8192 * 8192 + int(sys.argv[2]) * 8192 + 200)
    volume.write(bytes(4096) + b"damage")
END
run 4 ring delete demo --force
says err "the record of a virtual disk cannot be read, so nobody knows whether a virtual disk needs the ring"
mv whole demo.plx
run 0 ring delete demo
says err "forgot the ring on $DIR/one; it does not lie there"
[[ ! -e $entry ]] || die "the entry is left"
run 0 store check demo

step "killed at every point: what is there is made, taken up or overwritten, and the store is whole"
run 0 store format fresh --volume "$DIR/fresh.plx" --size 64M --extent-size 1M
run 0 vdi import image fresh/web
run 0 ring create fresh "$DIR/x" "$DIR/y" --size 33M
mv y z # one of two
run 0 ring create fresh "$DIR/x" "$DIR/z"
says err "this host's ring on $DIR/x and $DIR/z is known again"
mv z y
run 0 ring create fresh "$DIR/x" "$DIR/y" --json
[[ $(json taken_up) == true ]] || die "it was made anew"
run 4 ring create fresh "$DIR/x" "$DIR/y"
run 0 ring delete fresh
rm x y
# making AT: killed there, the creation is gone on with. Ends with 1 if it was not killed, and with a ring in any case.
making() {
    run 0 ring delete fresh
    rm -f x y
    truncate -s 33M x y
    killed "$1" ring create fresh "$DIR/x" "$DIR/y"
    ((status)) || return 1
    "$PARALLAX" ring create fresh "$DIR/x" "$DIR/y" >out 2>err || case $(<err) in
    *"--force overwrites it"*) run 0 ring create fresh "$DIR/x" "$DIR/y" --force ;;
    *"this host's ring of store fresh on $DIR/x and $DIR/y is known already"*) ;;
    *) die "killed at $1: it is not gone on with" ;;
    esac
    run 0 ring info fresh
}
# deleting AT: likewise, a deletion.
deleting() {
    killed "$1" ring delete fresh
    local was=$status
    ((status == 0)) || run 0 ring delete fresh
    erased x
    erased y
    rm x y
    run 0 ring create fresh "$DIR/x" "$DIR/y" --size 33M
    return $((was == 0))
}
# at_each_point COMMAND: at every tenth submission of it, and at each of the last ones, which are those that write.
at_each_point() {
    local at end=10
    while "$1" $end; do
        run 0 store check fresh
        ((end += 10))
    done
    ((end > 20 && end < 600)) || die "$1 has another number of points ($end)"
    for ((at = end - 10; at > end - 50 && at > 0; at--)); do "$1" $at; done
    for ((at = end - 9; at < end; at++)); do "$1" $at || break; done
}
run 0 ring create fresh "$DIR/x" "$DIR/y" --size 33M
at_each_point making
at_each_point deleting
run 0 store check fresh
run 0 ring delete fresh
allows fresh.plx || die "the store does not allow the ring"
run 0 vdi export fresh/web back --force
same image back

step "a ring that this host has forgotten: its file is recognised, and who needs it is told"
run 0 store format tank --volume "$DIR/tank.plx" --size 64M --extent-size 1M
run 0 vdi import image tank/img
run 0 snap create tank/img # its record is there in both copies
run 0 vdi create tank/other --size 1M
run 0 ring create tank ring1 --size 64M --json
ring=$(json ring)
run 3 store scan ring1
says err "ring1 holds no store: it is a member of a write-back ring of store tank, made on host $(hostname), and is empty; this host knows it"
img=$(uuid tank/img)
"$RING_FORGE" append "$img" 1 5 "$DIR/ring1" || die "the ring cannot be filled"
"$RING_FORGE" mark "$DIR/tank.plx" "$img" "$DIR/ring1" || die "the disk cannot be marked"
run 0 store info tank --json
identity=$(json uuid)
rm "state/rings/$identity.json"
run 3 store scan ring1
says out "ring of tank"
says err "$DIR/ring1 holds no store: it is a member of a write-back ring of store tank, made on host $(hostname), and may hold writes that were acknowledged"
says err "so do not delete it; 'parallax ring create tank $DIR/ring1' makes it known again"
run 3 store scan tank.plx ring1 --json
[[ $(json 0 ring) == null && $(json 1 ring) == "$ring" && $(json 1 ring_store_uuid) == "$identity" && $(json 1 uuid) == null ]] ||
    die "the ring is not told from the store"
mkdir lost
[[ ! -e state/host-id ]] || cp state/host-id lost
run 3 --state-dir "$DIR/lost" store scan ring1
says err "a write-back ring of store $identity, made on host"
says err "once that store is known here, 'parallax ring create STORE $DIR/ring1' makes it known again"
run 0 --state-dir "$DIR/lost" store import --volume tank.plx
says err "tank/img: its newest writes may lie on write-back ring $ring, which this host does not have, and it is not used without that ring"
run 0 --state-dir "$DIR/lost" store import --volume tank.plx --json # a warning is no note
says err "'parallax ring create tank PATH' with its own path makes it known again"
python3 -c 'import uuid; print(uuid.uuid4())' >lost/host-id
run 3 --state-dir "$DIR/lost" store scan ring1
says err "so do not delete it; 'parallax ring create STORE PATH' on that host makes it known again there"
rm -r lost
cp --sparse=always tank.plx tank.copy
run 0 store import copied --new-identity --volume tank.copy
says err "copied/img: its newest writes may lie on write-back ring $ring of the original"
run 0 ring discard copied/img --yes
run 0 store release copied
run 0 store forget copied
cp ring1 damaged
for at in 0 1; do printf PLXRING.damaged | dd of=damaged bs=4k seek=$at conv=notrunc status=none; done
run 3 store scan damaged
says err "neither copy of the ring's superblock can be used"
says err "a member of a write-back ring, which may hold writes"
rm damaged tank.copy

step "a word that is a file here and no store is told; advice names a path that is right from everywhere"
run 0 ring info ring1
says out "$ring"
run 3 ring info none
says err "this host has no ring of store 'none'"
run 3 ring info tank.plx
says err "this host has no ring of store 'tank.plx'"
run 3 ring delete ring1
says err "if the ring in the file of that name is meant, give './ring1'"
run 4 ring delete ./ring1
run 4 store format x --volume ring1
says err "may hold writes that a store lacks; 'parallax ring info $DIR/ring1' shows them"

step "another ring beside one that was forgotten: that is told, and how to go back"
run 0 ring create tank ring2 --size 64M
says err "tank/img: its newest writes may lie on another ring than this host's, $ring, and it is not used without that one; if that lies here: 'parallax ring delete tank', then 'parallax ring create tank PATH'"
run 0 store import --volume tank.plx
says err "tank/img: its newest writes may lie on another ring than this host's, $ring"
run 4 ring create tank ring1

step "a ring goes whose disks have the setting: they are named; its file takes a new ring without --force"
run 0 vdi set tank/other --ring on
run 0 vdi info tank/other --json
[[ $(json ring) == on ]] || die "it has a ring, and is said to have none"
"$RING_FORGE" append "$(uuid tank/other)" 1 5 "$DIR/ring2" || die "the ring cannot be filled"
run 0 ring delete tank --force --dry-run
says err "virtual disk tank/other has --ring on, and would go on without a ring"
run 0 ring delete tank --force
says err "virtual disk tank/other has --ring on, and goes on without a ring"
! grep -q tank/img err || die "a disk without the setting is named"
run 0 vdi info tank/other --json
[[ $(json ring) == "on, but this host has no ring" && $(json ring_setting) == on ]] || die "it is not said that there is no ring"
run 0 ring create tank ring2
run 0 ring delete tank
run 0 ring create tank ring1 --json
[[ $(json taken_up) == true && $(json ring) == "$ring" ]] || die "the ring that was forgotten is not back"
! grep -q "newest writes" err || die "a disk is said to need another ring"
run 0 snap create tank/img

step "an entry that cannot be written: nothing is made"
rm -rf x y
: >state/rings.kept
rm -rf state/rings
: >state/rings
"$PARALLAX" ring create fresh "$DIR/x" --size 64M >out 2>err && die "a ring was made that nobody would know"
[[ ! -e x ]] || die "a file is left"
rm state/rings
echo "all is well"
