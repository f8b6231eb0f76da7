#!/bin/bash
# What fails leaves nothing behind that nobody knows of: a store that could not be entered, a disk that was imported
# into a store that became full. What is there is said, and what to do.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"

# A list of stores in which nobody can make a file, root neither.
shut() {
    [[ ! -e state/stores ]] || mv state/stores open
    ln -s /proc state/stores
}
unshut() {
    rm state/stores
    [[ ! -e open ]] || mv open state/stores
}

step "where a store cannot be entered nothing is changed"
mkdir state
shut
run 1 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
says err "cannot write $DIR/state/stores/demo.json"
[[ ! -e demo.plx ]] || die "a file is left behind"
truncate -s 64M there.plx
echo "another's" | dd of=there.plx conv=notrunc status=none
cp there.plx before.plx
run 1 store format demo --volume "$DIR/there.plx" --force
same there.plx before.plx
unshut
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
run 0 store release demo
run 0 store forget demo
cp demo.plx before.plx
shut
run 1 store import --volume "$DIR/demo.plx"
same demo.plx before.plx
run 1 store import copy --new-identity --volume "$DIR/demo.plx"
same demo.plx before.plx
unshut
run 0 store import --volume "$DIR/demo.plx"
cp demo.plx before.plx
shut
run 1 store rebuild-registry --volume "$DIR/demo.plx"
same demo.plx before.plx
run 0 store rebuild-registry --volume "$DIR/demo.plx" --dry-run
unshut
touch file
mv state/stores open
mv file state/stores # no folder at all
run 1 store info demo
says err "cannot read $DIR/state/stores/demo.json: Not a directory"
run 1 store format other --volume "$DIR/other.plx" --size 64M
[[ ! -e other.plx ]] || die "a file is left behind"
rm state/stores
mv open state/stores

step "where it can no more at the very end, what there is is said"
PLX_STAGE_SIGNAL=19 PLX_STAGE_AT=5 "$PARALLAX_STAGED" store format late --volume "$DIR/late.plx" --size 64M --extent-size 1M \
    >out 2>err </dev/null &
format=$!
stops $format
shut
kill -CONT $format
wait $format && die "it could be entered"
says err "store late is whole, but not known here"
says err "'parallax store import late --volume $DIR/late.plx' makes it known"
unshut
run 0 store import late --volume "$DIR/late.plx"
run 0 vdi create late/web --size 16M

step "what a full store did not take"
head -c 80M /dev/urandom >image
run 6 vdi import image demo/web
says err "no space left in the store; demo/web was deleted again, and 'parallax gc demo' frees what it took"
run 0 gc demo
run 0 vdi list demo --json
[[ $(json) == "[]" ]] || die "the disk is still there"
run 0 store info demo --json
[[ $(json used_bytes) -lt $((10 << 20)) ]] || die "its space did not come back"
run 0 vdi create demo/web --size 100M
run 6 vdi import image demo/web
says err "no space left in the store; demo/web holds a part of the image now: import again with --force, or delete it"

step "what killed rebuilds leave in the state directory the next one removes, and nothing of a living one"
run 0 store format other --volume "$DIR/other.plx" --size 64M --extent-size 1M
run 0 vdi create other/kept --size 1M
for ((at = 1; at < 400; at++)); do # killed while it has its file
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" store rebuild-registry --volume "$DIR/demo.plx"; } >out 2>&1
    compgen -G "state/rebuild.*.db" >left && break
done
[[ -s left ]] || die "it was never killed while it had its file"
dead=$(basename "$(<left)")
for file in state/"$dead"*; do mv "$file" "${file/$dead/rebuild.$$.db}"; done # another process has its number by now
PLX_STAGE_SIGNAL=19 PLX_STAGE_AT=$at "$PARALLAX_STAGED" store rebuild-registry --volume "$DIR/other.plx" >living 2>&1 </dev/null &
living=$!
stops $living
[[ -e state/rebuild.$living.db ]] || die "it stands still without its file"
echo mine >state/rebuild.notes.db
run 0 store rebuild-registry --volume "$DIR/demo.plx"
compgen -G "state/rebuild.$$.*" >left && die "$(<left) stays"
[[ -e state/rebuild.$living.db && $(<state/rebuild.notes.db) == mine ]] || die "it removed what is another's"
kill -CONT $living
wait $living || die "the one that lived has failed: $(<living)"
rm state/rebuild.notes.db
compgen -G "state/rebuild.*" >left && die "$(<left) stays"
run 0 vdi list other --json
[[ $(json 0 name) == other/kept ]] || die "what was rebuilt is not whole"
run 0 store rebuild-registry --volume "$DIR/demo.plx"
compgen -G "state/rebuild.*" >left && die "$(<left) stays"
run 0 store check demo
echo "all is well"
