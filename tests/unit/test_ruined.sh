#!/bin/bash
# A store whose volumes were written over: what can be listed is, and each command that lists says which volume is
# ruined; a command at work says what is the matter, and not that nothing was found or that there is no room.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# The first blocks of a volume, the spare superblock among them, with something else in their place.
ruin() {
    dd if="$1" of=first bs=4k count=16 status=none
    dd if=/dev/urandom of="$1" bs=4k count="$2" conv=notrunc status=none
}
restore() { dd if=first of="$1" conv=notrunc status=none; }

run 0 store format whole --volume "$DIR/whole" --size 4G --extent-size 1M
run 0 vdi create whole/mail --size 4M
run 0 store format wide --volume "$DIR/wide0" --volume "$DIR/wide1" --size 64M --extent-size 1M
run 0 vdi create wide/web --size 16M

step "a further volume is ruined, or missing: the lists show what the registry knows, and say so"
for blocks in 2 16; do
    ruin wide1 $blocks
    for words in "vdi list" "vdi list wide" tree "tree wide" "store list"; do
        # shellcheck disable=SC2086 # words
        run $([[ $blocks == 2 ]] && echo 5 || echo 6) $words
        says err wide1
        [[ $words == "store list" ]] || says out web
        [[ $words == *wide ]] || grep -Eq 'mail|whole' out || die "$words: the other store is not listed"
    done
    says out "128 MiB"
    restore wide1
    run 0 vdi list
done
mv wide1 elsewhere
run 6 vdi list wide --json
[[ $(json 0 name) == wide/web ]] || die "the disk is not listed"
says err wide1
run 6 store rebuild-registry wide
says err "connect or restore the volume, or 'parallax store import --volume PATH --volume PATH' tells where it lies now"
run 6 store rebuild-registry --volume "$DIR/wide0" --volume "$DIR/wide1"
says err "connect or restore the volume, or give the path where it lies now"
head -c 64M /dev/zero >wide1
run 3 store rebuild-registry --volume "$DIR/wide0" --volume "$DIR/wide1"
mv elsewhere wide1
run 0 tree

step "the first volume is ruined under a command that writes"
for blocks in 1 2 5 16; do
    "$PARALLAX" vdi bench whole/mail --rw randwrite --runtime 2 --snapshot-every 10ms --force >out 2>err </dev/null &
    sleep 0.7
    ruin whole $blocks
    wait $!
    status=$?
    [[ $status == 0 || $status == 1 || $status == 4 || $status == 5 ]] || die "$blocks blocks: exit status $status"
    grep -Eq 'no space|not found' err && die "$blocks blocks: that is not what is the matter"
    restore whole
    run 0 vdi export whole/mail - --quiet # and with the blocks back all goes on
    rm out
done
