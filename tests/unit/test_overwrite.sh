#!/bin/bash
# What exports do not overwrite: a volume that its spare superblock could restore, and, while an entry of the state
# directory cannot be read, whatever may be that store's.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

head -c 1M /dev/urandom >image
run 0 store format demo --volume "$DIR/demo" --size 64M --extent-size 1M
run 0 vdi import image demo/web
run 0 snap create demo/web@one
run 0 store format lost --volume "$DIR/lost" --size 64M --extent-size 1M
run 0 vdi import image lost/web
loop=
if [[ $(id -u) == 0 ]] && loop=$(losetup -f --show "$DIR/lost" 2>/dev/null); then
    trap 'losetup -d "$loop"; rm -rf "$DIR"' EXIT
else
    loop=
    part_skipped "through a loop device: none can be made here"
fi

# refused STATUS TEXT TARGET...: no command that exports overwrites one of these, and says why.
refused() {
    local status=$1 text=$2
    shift 2
    cp lost before
    for target in "$@"; do
        for words in "vdi export demo/web" "vdi export-diff demo/web@one"; do
            # shellcheck disable=SC2086 # words
            run "$status" $words "$target" --force
            says err "$text"
            # shellcheck disable=SC2086 # words
            timeout 60 "$PARALLAX" $words - 1<>"$target" 2>err && die "$words to $target: not refused"
            says err "$text"
        done
    done
    for words in "cdp timeline demo/web --svg" "store export-registry demo"; do
        # shellcheck disable=SC2086 # words
        run "$status" $words "$DIR/lost" --force
        says err "$text"
    done
    same lost before
}

step "a volume of a store that is not known here, which its spare superblock could restore"
run 0 store forget lost
for by in "head -c 20480 /dev/zero" "head -c 20480 /dev/urandom" "head -c 8192 /dev/zero"; do
    head -c 20480 lost >first
    $by | dd of=lost conv=notrunc status=none
    refused 4 "is a volume of a store, or a copy of one; it is not overwritten" "$DIR/lost" ${loop:+"$loop"}
    dd if=first of=lost conv=notrunc status=none
done
name=$(printf 'n%.0s' {1..200})
mkdir -p "$name/$name"
mv lost "$name/$name" && ln -s "$name/$name/lost" lost
refused 4 "is a volume of a store, or a copy of one; it is not overwritten" "$DIR/$name/$name/lost"
rm lost && mv "$name/$name/lost" lost
run 0 store import --volume "$DIR/lost"
run 0 vdi export lost/web -
same out image

step "an entry that cannot be read hides no other one"
echo "no entry" >state/stores/broken.json
head -c 17408 /dev/urandom | dd of=lost conv=notrunc status=none
dd if=/dev/urandom of=lost bs=4k seek=15 count=1 conv=notrunc status=none
refused 4 "is a volume of store lost; it is not overwritten" "$DIR/lost" ${loop:+"$loop"}

step "... and may be that of a volume: what exists is not overwritten, and a new file is written"
mv state/stores/lost.json kept.json
refused 1 "may be a volume of a store whose entry cannot be read" "$DIR/lost" ${loop:+"$loop"}
says err "choose a new name, or mend that: $DIR/state/stores/broken.json cannot be read"
says err "remove it, and enter the store again with 'parallax store import --volume PATH'"
run 0 vdi export demo/web fresh
same fresh image
run 0 vdi export demo/web - # a shell has just made it
same out image
"$PARALLAX" vdi export demo/web - 2>err | cmp -s - image || die "not to a pipe: $(<err)"
run 1 vdi export demo/web fresh --force
rm state/stores/broken.json
run 0 vdi export demo/web fresh --force
mv kept.json state/stores/lost.json
refused 4 "is a volume of store lost; it is not overwritten" "$DIR/lost" ${loop:+"$loop"}
