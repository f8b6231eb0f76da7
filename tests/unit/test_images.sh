#!/bin/bash
# What earlier programs left (images/make, images/make-ring): a store of format version 1 is refused with a way out and stays as
# it is; one of version 2, whose host died with a disk open, is taken over, and everything in it is read. So is a store whose
# host died with writes on a ring of format version 3, together with that ring.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# unpack IMAGE FILE
unpack() {
    python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' \
        "$SOURCE/tests/unit/images/$1.xz" >"$2" || die "no image $1"
}

# content VERSION NUMBER: what images/make put into a disk.
content() {
    yes "version $1, content $2" | head -c 300K
    head -c 100K /dev/zero
}

# holds NAME SHA256: of the disk or snapshot.
holds() {
    run 0 vdi export "demo/$1" back --force
    [[ $(sha256sum <back) == "$2  -" ]] || die "demo/$1 is not what it was: $(sha256sum <back)"
}

step "version 1 is refused, with the way out, and nothing is written"
unpack version-1 demo.plx
cp demo.plx before
for command in "store import --volume" "store rebuild-registry --volume" "store take-over --any --i-checked-it-is-off --volume"; do
    # shellcheck disable=SC2086 # words
    run 1 $command "$DIR/demo.plx"
    says err "format version 1, which Parallax 0.1 was the last to read; export its disks with that"
done
run 1 store scan "$DIR/demo.plx"
says err "format version 1"
same demo.plx before

step "version 2: the host that had it is named, and it is taken over from it"
unpack version-2 demo.plx
run 4 store import --volume "$DIR/demo.plx"
says err web1
run 0 store take-over --volume "$DIR/demo.plx" --from web1 --i-checked-it-is-off
run 0 store check demo
run 0 store info demo --json
[[ $(json format_version) == 2 ]] || die "not format version 2"

step "its disks, snapshots and the clone are what they were"
holds history "$(content 2 3 | sha256sum | cut -d' ' -f1)"
holds history@first "$(content 2 1 | sha256sum | cut -d' ' -f1)"
holds history@second "$(content 2 2 | sha256sum | cut -d' ' -f1)"
holds clone "$(content 2 1 | sha256sum | cut -d' ' -f1)"

step "the log of the disk that was open is replayed"
holds killed 30207d87bd68f7634b37456b98b6b63bbb65586d5cb516ebc7ebfc79e5b397a6
run 0 snap list demo/killed --json
[[ $(grep -c '"name"' out) == 40 ]] || die "not 40 snapshots"

step "and it is a store like any other"
content 2 4 >later
run 0 vdi import later demo/killed --force
run 0 snap create demo/killed@later
run 0 vdi delete demo/clone --yes
run 0 gc demo
run 0 store check demo --data
holds killed@later "$(content 2 4 | sha256sum | cut -d' ' -f1)"
holds history@first "$(content 2 1 | sha256sum | cut -d' ' -f1)"
run 0 store release demo
run 0 store forget demo

step "a ring of format version 3: store and ring are taken over, and the store gets what was acknowledged"
unpack ring-3-store demo.plx
for member in one two; do unpack ring-3-$member $member; done
run 0 store take-over --volume "$DIR/demo.plx" --from web1 --i-checked-it-is-off
run 4 snap create demo/burst
run 0 ring create demo "$DIR/one" "$DIR/two" --from web1 --i-checked-it-is-off
run 0 store check demo
run 0 ring info demo --json
[[ $(json disks 0 records) == 112 ]] || die "not 112 records"
run 0 vdi set demo/burst --ring off
holds burst 3df6fc386ae2b70a3bbf06d74635e316bc77753aa52febec6a45e2ac3426ea59
run 0 store check demo --data
