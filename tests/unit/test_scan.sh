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
