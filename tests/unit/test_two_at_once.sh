#!/bin/bash
# Two commands at once on one disk, and commands whose standard output is a volume or none: what one of them has
# acknowledged stays.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

head -c 8M /dev/urandom >good
run 0 store format d --volume "$DIR/d.plx" --size 256M --extent-size 1M
run 0 vdi import good d/x

step "standard output that is closed, or a volume, is not written"
cp --sparse=always d.plx before
"$PARALLAX" vdi export d/x - >&- 2>err && die "it was written nowhere, and nobody was told"
"$PARALLAX" vdi export d/x - 1<>d.plx 2>err && die "the volume was overwritten"
says err "is a volume of store"
"$PARALLAX" vdi list d <&- >&- 2>&-
same <(head -c 1M d.plx) <(head -c 1M before)
run 0 vdi export d/x got
same got good

step "a known volume is no file to export to, whatever is left on it"
run 0 store format k --volume "$DIR/k.plx" --size 64M
head -c 17408 /dev/urandom | dd of=k.plx conv=notrunc status=none
cp --sparse=always k.plx before
run 4 vdi export d/x "$DIR/k.plx" --force
says err "is a volume of store"
same k.plx before

step "an import that fails deletes what it made, and not what another one has made of it"
head -c 1M good >small
kept=0
for n in $(seq 12); do
    (
        head -c 1M good
        sleep 0.6
        head -c 9M /dev/zero | tr '\0' x
    ) | "$PARALLAX" -q vdi import - "d/two$n" --size 8M >/dev/null 2>&1 &
    first=$!
    sleep 0.3
    "$PARALLAX" -q vdi import small "d/two$n" --force --wait 15 >/dev/null 2>&1
    second=$?
    wait "$first" && die "an image that is too large was imported"
    ((second)) && continue
    run 0 vdi export "d/two$n" got --force
    same <(head -c 1M got) small
    ((++kept))
done
echo "($kept of 12 came in between)"
run 1 vdi import - d/alone --size 4M <good
run 3 vdi info d/alone

step "... and not what another one has made of it before it was opened, nor is that overwritten"
head -c 9M /dev/zero | tr "\0" x |
    PLX_STAGE_SIGNAL=19 PLX_STAGE_LOCK=1 "$PARALLAX_STAGED" vdi import - d/between --size 8M >out 2>err &
first=$!
until [[ $(ps -o stat= -p "$first") == T* ]]; do sleep 0.05; done
"$PARALLAX" -q vdi import small d/between --force || die "the second import failed"
kill -CONT "$first"
wait "$first" && die "an image that is too large was imported"
says err "d/between holds data already; give --force to overwrite it"
run 0 vdi export d/between got --force
same <(head -c 1M got) small

step "a stream is judged when the copy is its own"
run 0 snap create d/x@one
run 0 vdi bench d/x --rw randwrite --size 64k --runtime 1 --force
run 0 snap create d/x@two
run 0 vdi export-diff d/x@one full
run 0 vdi export-diff d/x@one..two inc
run 0 vdi import-diff full d/copy
head -c 8M /dev/urandom >other
mkfifo pipe
exec 7<>pipe
"$PARALLAX" -q vdi import pipe d/copy --force 7>&- >/dev/null 2>&1 &
holder=$!
sleep 0.5
"$PARALLAX" -q vdi import-diff inc d/copy --wait 15 7>&- >out 2>err &
waiting=$!
sleep 1
cat other >&7
exec 7>&-
wait "$holder" || die "the import failed"
wait "$waiting" && die "a stream was written over what it does not go on from"
says err "give --force to take that back"
run 0 vdi export d/copy got --force
same got other

step "volumes of two stores are no store, and no copies of one"
run 0 store format first --volume "$DIR/f0" --size 64M
run 0 store format other --volume "$DIR/o0" --size 64M
for words in "store import" "store rebuild-registry"; do
    # shellcheck disable=SC2086 # words
    run 1 $words --volume "$DIR/f0" --volume "$DIR/o0"
    says err "f0 is a volume of store first, and $DIR/o0 of store other, which is another one"
done
run 0 store forget first
run 0 store forget other

step "a copy of a further volume is no volume of the store while the original is there"
run 0 store format p --volume "$DIR/p0" --volume "$DIR/p1" --size 64M --extent-size 1M
run 0 vdi import good p/w
cp p1 q1
run 4 store import --volume "$DIR/p0" --volume "$DIR/q1"
says err "are the same store"
run 4 store rebuild-registry --volume "$DIR/p0" --volume "$DIR/q1"
mv p1 moved
run 0 store import --volume "$DIR/p0" --volume "$DIR/moved"
run 0 vdi export p/w got --force
same got good
echo "all is well"
