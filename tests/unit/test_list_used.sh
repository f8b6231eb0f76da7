#!/bin/bash
# vdi list shows what each disk uses, as far as the store can be opened; and lists the disks of one that cannot.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "what disks use, as 'vdi info' has it"
run 0 store format demo --volume "$DIR/one" --volume "$DIR/two" --size 64M
head -c 3M /dev/urandom >image
run 0 vdi import image demo/db
run 0 vdi create demo/empty --size 1G
run 0 snap create demo/db
run 0 vdi list demo --columns name,used_bytes -q
[[ $(<out) == "demo/db     3 MiB"$'\n'"demo/empty    0 B" ]] || die "not what they use"
run 0 vdi info demo/db --json
used=$(json used_bytes)
run 0 vdi list demo --json
[[ $(json 0 used_bytes) == "$used" && $used == $((3 << 20)) ]] || die "not what 'vdi info' says"

step "records are damaged: their disks are listed, and what is wrong is said"
# harm FIRST COUNT: writes over the records in so many slots of volume one.
harm() {
    python3 - "$@" <<'END' || die "the records cannot be overwritten"
import os, sys
with open("one", "r+b") as volume:
    volume.seek(volume.read(1 << 20).index(b"PLXVDREC") + 8192 * int(sys.argv[1]))
    volume.write(os.urandom(8192 * int(sys.argv[2])))
END
}
cp --sparse=always one whole
harm 1 1
run 5 vdi list demo --columns name,used_bytes -q
[[ $(<out) == "demo/db     3 MiB"$'\n'"demo/empty      -" ]] || die "not what can be known"
[[ $(<err) == "parallax: virtual disk empty: both copies of its record (VDI slot 1) are damaged; "*"vdi delete demo/empty --lost'" ]] ||
    die "it is not said what is wrong"
cp --sparse=always whole one
harm 0 2
run 5 vdi list --json
[[ $(json 0 used_bytes) == null && $(json 1 used_bytes) == null ]] || die "the use is told"
says err "virtual disk db: both copies of its record"
"$PARALLAX" vdi list >out 2>err
[[ $? == 5 && $(wc -l <err) == 2 ]] || die "not a note and an error"
says err "store demo: 1 more virtual disk has a record that cannot be used; 'parallax store check demo' names all of them"
singular
cp --sparse=always whole one
run 0 vdi list

step "a volume went back to an older state: lists say so"
# told VOLUME WORDS...: the error names the volume, and what comes first.
told() {
    run 5 "${@:2}"
    says err "$1 went back to an older state"
    says err "put the newer one back; only if there is none"
}
mkdir older newer unknown
cp --sparse=always one two older
run 0 snap create demo/db
cp --sparse=always one two newer
for volume in one two; do
    other=one
    [[ $volume == two ]] || other=two
    cp --sparse=always older/$volume $volume
    told "$DIR/$volume" store list
    says out " CORRUPT"
    told "$DIR/$volume" store list --json
    [[ $(json 0 name) == demo && $(json 0 problem_code) == CORRUPT && $(json 0 problem) == *"$DIR/$volume went back"* ]] ||
        die "the JSON does not say it"
    told "$DIR/$volume" vdi list --columns name -q
    says out "demo/db"
    told "$DIR/$volume" vdi list demo --json
    [[ $(json 0 used_bytes) == null ]] || die "the use is told"
    told "$DIR/$volume" tree demo
    for volumes in "$DIR/one $DIR/two" "$DIR/two $DIR/one" "$DIR/two"; do
        # shellcheck disable=SC2086 # words
        told "$DIR/$volume" store scan $volumes
    done
    told "$DIR/$volume" store scan "$DIR/two" "$DIR/one" --json
    index=0
    [[ $volume == two ]] || index=1
    [[ $(json $index problem) == *"$DIR/$volume went back"* && $(json $((1 - index)) problem) == null ]] ||
        die "not this one has the problem"
    # Where the store is not known; and no word where it is not clear which volumes belong together.
    told "$DIR/$volume" --state-dir "$DIR/unknown" store scan "$DIR/one" "$DIR/two"
    says err "store rebuild-registry --volume PATH... --i-checked-there-is-no-newer-one"
    run 0 --state-dir "$DIR/unknown" store scan one two newer/$volume
    run 0 --state-dir "$DIR/unknown" store scan $other newer/$volume
    cp --sparse=always newer/$volume $volume
    run 0 store scan one two older/one older/two
    run 0 store scan older/one older/two
    run 0 store list
done

step "a volume is lost: disks are listed, their use is not known"
mv two lost
run 6 vdi list demo --json
[[ $(json 0 name) == demo/db && $(json 0 used_bytes) == null ]] || die "the disks are not listed"
run 6 vdi list demo --columns name,used_bytes -q
[[ $(awk 'NR == 1 { print $1, $2 }' out) == "demo/db -" ]] || die "the use is not '-'"
run 6 store info demo
says out "$DIR/two"
says out "Virtual disks: "
says err "cannot open $DIR/two"
run 6 store info demo --json
[[ $(json name) == demo && $(json vdis) == 2 && $(json ours) == true ]] || die "JSON says less"

step "the first volume is lost: what this host knows is shown"
mv one gone
run 6 store info demo
says out "$DIR/one, $DIR/two"
says err "cannot open $DIR/one"
run 3 store info none
[[ ! -s out ]] || die "something is known of a store that is not"
echo "all is well"
