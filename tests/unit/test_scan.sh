#!/bin/bash
# What 'store scan' calls a volume that is not where the known store has it, and who has a store that nobody has. And in
# all lists: no cell is empty.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "a store of two volumes"
run 0 store format demo --volume "$DIR/one" --volume "$DIR/two" --size 64M
run 0 vdi create demo/web --size 1M
run 0 snap create demo/web

step "a volume beside the one that is known is a copy"
cp --sparse=always one copy
run 0 store scan one copy --json
[[ $(json 0 known_as) == demo && $(json 0 moved) == null && $(json 0 copy_of) == null ]] || die "not itself"
[[ $(json 1 known_as) == "copy of demo" && $(json 1 copy_of) == demo && $(json 1 moved) == null ]] || die "no copy"
rm copy

step "one whose place is empty, or has something else, was moved"
mkdir new
mv one two new
cp new/two two # another volume than that of this number would be, under its own name
cp new/two one
run 0 store scan new/one new/two --json
[[ $(json 0 known_as) == "demo, moved" && $(json 0 moved) == demo && $(json 0 copy_of) == null ]] || die "not moved"
[[ $(json 1 known_as) == "copy of demo" ]] || die "where it was it still is"
rm one two
run 0 store scan new/one new/two
says out "demo, moved"
says err "new/one: store demo is known at another place, which does not hold it any more; 'parallax store import'"
run 0 store import --volume new/one --volume new/two
run 0 store scan new/one new/two
[[ $(grep -c ' demo$' out) == 2 && ! -s err ]] || die "it is not known there"

step "a place that cannot be read may still hold it"
if ((UID)); then
    cp new/one copy
    chmod 0 new/one
    run 0 store scan copy --json
    [[ $(json 0 known_as) == "copy of demo" ]] || die "that is not known"
    chmod 600 new/one
    rm copy
fi

step "nobody has it"
run 0 store release demo
run 0 store scan new/one
says out " (released) "
run 0 store scan new/one --json
[[ $(json 0 host) == null ]] || die "JSON has a host"
run 0 store scan new/two # whose first volume is known here
says out " (released) "
run 0 store import --volume new/one --volume new/two

step "whose it is already"
run 0 store import --read-only --volume new/one --volume new/two
says err "store demo is known here, and this host has it already: nothing was written to it"

step "one that was cut off"
size=$(stat -c %s new/two)
truncate -s $((size / 2)) new/two
run 5 store scan new/one new/two
says out demo
says err "new/two has $((size / 2)) bytes, and the store uses $size of it: it was cut off"
run 5 store scan new/two --json
[[ $(json 0 store) == demo && $(json 0 problem) == *"'truncate -s $size'"* ]] || die "JSON does not say so"
truncate -s "$size" new/two
run 0 store scan new/one new/two

step "all superblocks are damaged: what helps"
cp --sparse=always new/two whole
for block in 0 1 15; do # the last one is the spare
    printf damaged | dd of=new/two bs=1 seek=$((block * 4096 + 64)) conv=notrunc status=none
done
run 5 store check demo
says err "only a backup of the volume helps"
grep -q "run 'parallax store check'" err && die "a check advises a check"
cp whole new/two
for block in 0 1; do
    printf damaged | dd of=new/two bs=1 seek=$((block * 4096 + 64)) conv=notrunc status=none
done
run 5 store check demo
says err "'parallax store restore-superblock"
cp whole new/two

step "a volume that is missing: import names each"
mv new/two away
run 6 store check demo
says err "'parallax store import --volume PATH --volume PATH' tells where it lies now"
mv away new/two

step "a volume that exists beside one that does not: what is advised can be done"
truncate -s 32M there
run 3 store format both --volume there --volume fresh
says err "fresh does not exist; give --size to make a file of that size, or make it beforehand ('truncate -s SIZE PATH') and leave --size out"
run 4 store format both --volume there --volume fresh --size 64M
says err "--size is for a file that is created; leave it out, and the others have to be made beforehand"
truncate -s 64M fresh
run 0 store format both --volume there --volume fresh
run 0 store forget both

step "no cell is empty"
run 0 store forget demo
run 0 store scan new/two # nobody knows its host
[[ $(awk 'NR == 2 { print NF, $7, $8 }' out) == "8 - -" ]] || die "a cell is empty"
run 0 store import --volume new/one --volume new/two
run 0 vdi list --columns name,parent,open_by -q
[[ $(<out) == "demo/web"*"-"*"-" ]] || die "vdi list has an empty cell"
run 0 snap list demo/web --columns labels,name -q
[[ $(<out) == "-"*"demo/web@1" ]] || die "snap list has an empty cell"
run 0 store list --columns name,problem_code -q
[[ $(<out) == "demo"*"-" ]] || die "store list has an empty cell"
run 0 vdi list --json
[[ $(<out) != *'"-"'* ]] || die "JSON has it, too"
echo "all is well"
