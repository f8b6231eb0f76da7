#!/bin/bash
# What earlier programs left (images/make): a store of format version 1 is refused with a way out and stays as it is; one of
# version 2, whose host died with a disk open, is taken over, and everything in it is read.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# unpack VERSION: the image, in demo.plx.
unpack() {
    python3 -c 'import lzma, sys; sys.stdout.buffer.write(lzma.open(sys.argv[1]).read())' \
        "$SOURCE/tests/unit/images/version-$1.xz" >demo.plx || die "no image of version $1"
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
unpack 1
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
unpack 2
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
