#!/bin/bash
# A copy of a store beside the original: it gets an identity of its own, and from then on nobody takes the one for the
# other.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# uuid_of NAME: what the disk is told by.
uuid_of() { run 0 vdi info "$1" --json && json uuid; }
head -c 1M /dev/urandom >image
head -c 1M /dev/urandom >other

step "two volumes, a disk with a clone and a snapshot, and a copy of them"
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
truncate -s 64M more.plx
run 0 store add-volume demo "$DIR/more.plx"
run 0 vdi import image demo/web
run 0 snap create demo/web@monday
run 0 vdi clone demo/web@monday demo/twin
for file in demo more; do cp --sparse=always $file.plx $file.copy; done
COPY=(--volume "$DIR/demo.copy" --volume "$DIR/more.copy")

step "it is no store of its own as it is, and says how it becomes one"
run 4 store import copy "${COPY[@]}"
says err "'parallax store import NAME --new-identity --volume PATH'"
run 4 store import --new-identity "${COPY[@]}"
says err "give the copy another name: 'parallax store import NAME --new-identity --volume PATH'"
run 4 store import again --new-identity --volume "$DIR/demo.plx" --volume "$DIR/more.plx"
says err "is store demo itself"
run 2 store import copy --i-checked-it-is-a-copy "${COPY[@]}"
same demo.plx <(head -c 64M demo.copy)
run 0 store scan "$DIR/demo.plx" "$DIR/demo.copy" --json
[[ $(json 0 known) == demo && $(json 1 known) == null && $(json 1 copy_of) == demo ]] || die "scan takes the copy for the original"
run 0 store scan "$DIR/demo.copy"
says out "copy of demo"
step "with an identity: known by it, found by it, and all disks have other UUIDs"
before=$(uuid_of demo/web)
run 0 store import copy --new-identity "${COPY[@]}" --json
identity=$(json uuid)
run 0 store info copy --json
[[ $(json name) == copy ]] || die "store info does not call it as it is called here"
[[ $(json uuid) == "$identity" ]] || die "store info has another identity than the import"
run 0 store info demo --json
[[ $(json uuid) != "$identity" ]] || die "the original has the copy's identity"
run 0 store scan "$DIR/demo.plx" "$DIR/more.copy" --json
[[ $(json 0 known) == demo && $(json 1 known) == copy ]] || die "scan takes one for the other"
run 0 vdi list copy --json
[[ $(json 1 uuid) != "$before" && $(uuid_of copy/web) == $(uuid_of copy/web) ]] || die "a UUID is not steady"
[[ $(uuid_of demo/web) == "$before" ]] || die "the original's UUID changed"
run 0 vdi info copy/twin --json
[[ $(json parent_uuid) == $(uuid_of copy/web) ]] || die "a clone does not name its parent as it is told by"
web=$(uuid_of copy/web)
run 0 tree copy --json
says out "$web"
[[ $(json 0 store) == copy ]] || die "the tree does not call it as it is called here"

step "each is written without the other noticing"
run 0 vdi export copy/web back
same back image
run 0 vdi import other copy/web --force
run 0 vdi export demo/web back --force
same back image
run 0 vdi export copy/web back --force
same back other
run 0 vdi export copy/twin back --force
same back image
run 0 snap create copy/web@tuesday
run 0 snap create demo/web@tuesday
for store in demo copy; do run 0 store check $store --data; done

step "volumes of two copies make no store, also where nobody would notice; each is known by its place"
MIXED=(--volume "$DIR/demo.copy" --volume "$DIR/more.plx")
for name in copy third; do
    run 1 store import $name "${MIXED[@]}"
    run 4 store import $name --new-identity "${MIXED[@]}"
    run 1 store rebuild-registry "${MIXED[@]}"
done
run 0 store forget copy
run 1 store import copy "${MIXED[@]}"
says err "of another copy of store demo"
cp --sparse=always demo.plx fresh.copy # it has the original's identity still
run 4 store import copy --new-identity --volume "$DIR/fresh.copy" --volume "$DIR/more.plx"
says err "more.plx is a volume of store demo, which is known here"
run 1 store rebuild-registry --volume "$DIR/fresh.copy" --volume "$DIR/more.copy"
run 0 store import copy "${COPY[@]}"
run 0 vdi export demo/web back --force
same back image
run 0 vdi export copy/web back --force
same back other

step "a copy's registry is rebuilt under the copy's name, and never in the original's place"
cp --sparse=always more.plx fresh2.copy
run 4 store rebuild-registry --volume "$DIR/fresh.copy" --volume "$DIR/fresh2.copy"
says err "--new-identity"
run 0 store rebuild-registry "${COPY[@]}"
run 0 vdi export demo/web back --force
same back image
run 0 vdi export copy/web back --force
same back other

step "cut off at any write, an import is done again"
for at in {5..805..32}; do
    cp --sparse=always demo.plx fresh.copy
    cp --sparse=always more.plx fresh2.copy
    FRESH=(--volume "$DIR/fresh.copy" --volume "$DIR/fresh2.copy")
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" -q store import fresh --new-identity "${FRESH[@]}"; } >out 2>&1
    status=$?
    if ((status)); then
        run 0 store import fresh --new-identity "${FRESH[@]}" # also where it is known by then
    fi
    run 0 vdi export fresh/web back --force
    same back image
    run 0 store forget fresh
    ((status)) || break
done
((status == 0 && at > 3)) || die "$at cuts, and the last one ended with $status"
run 0 store check demo

step "a stream of the one does not go on where one of the other ended"
run 0 store format safe --volume "$DIR/safe.plx" --size 64M
run 0 vdi export-diff demo/web@monday full
run 0 vdi import-diff full safe/web
run 0 vdi export-diff copy/web@monday..tuesday more
run 3 vdi import-diff more safe/web
run 0 vdi export-diff demo/web@monday..tuesday more --force
run 0 vdi import-diff more safe/web

step "what is overwritten at a known place is another store"
run 0 store forget copy
cp --sparse=always demo.plx demo.copy
cp --sparse=always more.plx more.copy
run 0 store import copy --new-identity "${COPY[@]}"
cp --sparse=always demo.plx demo.copy
run 1 vdi list copy
says err "holds another store now"
run 0 vdi list demo

step "a copy on another host: only by the operator's word, and never of what is alive there"
[[ -n ${PARALLAX_STAGED:-} ]] || die "PARALLAX_STAGED is not set"
mkdir beta
cat /proc/sys/kernel/random/uuid >beta/host-id
cat /proc/sys/kernel/random/uuid >beta/boot
cp --sparse=always demo.plx far.plx
cp --sparse=always more.plx far2.plx
FAR=(--volume "$DIR/far.plx" --volume "$DIR/far2.plx")
here=$(hostname)
HERE=$PARALLAX
PARALLAX=$PARALLAX_STAGED
on_beta() { PLX_STAGE_HOST=beta PLX_STAGE_BOOT=$DIR/beta/boot PARALLAX_STATE_DIR=$DIR/beta run "$@"; }
on_beta 4 store import --new-identity "${FAR[@]}"
says err "belongs to host $here, or is a copy of a volume that does"
on_beta 2 store import --i-checked-it-is-a-copy "${FAR[@]}"
sums=$(cksum far.plx far2.plx)
on_beta 0 store import --read-only "${FAR[@]}"
on_beta 0 vdi export demo/web back --force
same back image
on_beta 0 vdi export demo/web@monday back --force
same back image
on_beta 0 snap list demo/web
says out monday
on_beta 0 vdi export-diff demo/web@monday back.diff --force
on_beta 4 vdi create demo/late --size 1M
[[ $(cksum far.plx far2.plx) == "$sums" ]] || die "who could only read has written"
on_beta 0 store forget demo
on_beta 0 store import --new-identity --i-checked-it-is-a-copy "${FAR[@]}"
on_beta 0 vdi export demo/web back --force
same back image
run 0 vdi list demo

step "a store is called here as it was, also when it comes back; and a list says what is not there"
PARALLAX=$HERE
run 0 store forget demo
run 0 store import original --volume "$DIR/demo.plx" --volume "$DIR/more.plx"
run 0 store release original
run 0 store import --volume "$DIR/more.plx" --volume "$DIR/demo.plx"
says err "store original is known here"
run 0 store forget copy
run 0 store list
mv more.plx away.plx
run 6 store list --json
says out "more.plx"
[[ $(json 0 problem) == *"No such file"* ]] || die "the list does not say which volume is missing"
mv away.plx more.plx
cp --sparse=always demo.plx whole.plx
truncate -s 32M demo.plx
run 5 store list --json
[[ $(json 0 problem) == *"cut off"* ]] || die "the list does not say which volume was cut off"
