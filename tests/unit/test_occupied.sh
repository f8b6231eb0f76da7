#!/bin/bash
# A volume of a known store is never overwritten before that store is forgotten, whatever is left on the volume: a
# partition table over its first blocks looks like an empty disk, and is the beginning of a repair.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

head -c 90M /dev/urandom >image # more than one of the two volumes holds
run 0 store format wide --volume "$DIR/wide0" --volume "$DIR/wide1" --size 64M --extent-size 1M
run 0 vdi import image wide/web
run 0 store format other --volume "$DIR/other0" --size 64M --extent-size 1M
ln -s wide1 link
ln wide1 second-name
loop=
if [[ $(id -u) == 0 ]] && loop=$(losetup -f --show "$DIR/wide1" 2>/dev/null); then
    trap '[[ ! $loop ]] || losetup -d "$loop"; rm -rf "$DIR"' EXIT
else
    loop=
    part_skipped "through a loop device: none can be made here"
fi

# refused NAME: neither a format nor a growth takes the volume, and nothing on it is changed.
refused() {
    cp wide1 before
    for words in "format new --volume $1" "format new --volume $DIR/blank --volume $1 --size 64M" "add-volume other $1"; do
        for force in "" "--force" "--force --i-checked-nobody-uses-it"; do
            # shellcheck disable=SC2086 # words
            run 4 store $words $force
            says err "is a volume of store wide (with web); to overwrite it, run 'parallax store forget wide' first"
        done
    done
    cmp -s wide1 before || die "$1: refused, and overwritten all the same"
    [[ ! -e blank ]] || die "$1: refused, and a file was left behind"
}

for lost in "GPT:head -c 20480 /dev/urandom" "zeroes:head -c 20480 /dev/zero" \
    "another store:head -c 20480 $DIR/other0" "damaged superblocks:sed s/./x/2000 $DIR/first"; do
    step "the first blocks of a volume are lost: ${lost%%:*}"
    head -c 20480 wide1 >first
    # shellcheck disable=SC2086 # words
    ${lost#*:} | dd of=wide1 conv=notrunc status=none
    for name in "$DIR/wide1" "$DIR/link" "$DIR/second-name" ${loop:+"$loop"}; do
        refused "$name"
    done
    dd if=first of=wide1 conv=notrunc status=none
done
run 0 vdi export wide/web -
cmp -s out image || die "wide/web is not what was imported"

step "a volume whose first blocks were overwritten is made one again, by the operator's word"
for volume in wide1 wide0; do
    head -c 17408 /dev/urandom | dd of=$volume conv=notrunc status=none # a partition table
    cp --sparse=always $volume before
    run 5 vdi export wide/web -
    says err "the superblocks of store wide were overwritten"
    says err "'parallax store restore-superblock $DIR/$volume' writes them again"
    run 5 store scan "$DIR/$volume"
    run 4 store restore-superblock "$DIR/$volume"
    says err "look what the device holds now"
    run 0 store restore-superblock "$DIR/$volume" --dry-run
    says err "was volume ${volume#wide} of store wide; nothing was changed"
    same $volume before
    run 0 store restore-superblock "$DIR/$volume" --i-checked-nobody-uses-it --json
    [[ $(json store) == wide && $(json index) == "${volume#wide}" ]] || die "the JSON does not say which volume it is"
    run 4 store restore-superblock "$DIR/$volume" --i-checked-nobody-uses-it
    says err "its superblock can be read"
    for copy in 1 0; do # as if it had been cut off between the two
        dd if=before of=$volume bs=4k seek=$copy skip=$copy count=1 conv=notrunc status=none
        run 0 store restore-superblock "$DIR/$volume" --dry-run
        run 0 store restore-superblock "$DIR/$volume" --i-checked-nobody-uses-it
        says err "next: 'parallax store"
        run 4 store restore-superblock "$DIR/$volume" --i-checked-nobody-uses-it
    done
    [[ $volume == wide1 ]] || run 0 store take-over wide --any --i-checked-it-is-off # the home page went, too
    run 0 vdi export wide/web -
    cmp -s out image || die "wide/web is not what was imported"
    run 0 store check wide --data
done
run 3 store restore-superblock "$DIR/image" --i-checked-nobody-uses-it
says err "no Parallax superblock here"
dd if=/dev/urandom of=wide1 bs=4k seek=15 count=1 conv=notrunc status=none
run 5 store check wide
says out "the spare superblock is damaged; 'parallax store grow wide' writes it again"
run 4 store restore-superblock "$DIR/wide1" --i-checked-nobody-uses-it
says err "its superblock can be read: it is volume 1 of store wide; 'parallax store grow wide' writes the copies"
run 0 store grow wide
run 0 store check wide

step "an entry that cannot be read may mean any volume"
echo "no entry" >state/stores/broken.json
run 1 store format new --volume "$DIR/new" --size 64M
says err "stores/broken.json cannot be read"
[[ ! -e new ]] || die "a file was left behind"
run 4 store format new --volume "$DIR/wide1" --force
says err "is a volume of store wide (with web)"
rm state/stores/broken.json

step "forgotten, it is overwritten by the operator's word"
run 0 store forget wide
[[ ! $loop ]] || losetup -d "$loop"; loop=
run 0 store format new --volume "$DIR/wide0" --volume "$DIR/wide1" --force

step "a format that was killed before the store had its row: what is advised helps"
run 0 store format cut --volume "$DIR/cut" --size 64M --extent-size 1M
run 0 store forget cut
dd if=/dev/zero of=cut bs=1M seek=1 count=8 conv=notrunc status=none
run 4 store format cut --volume "$DIR/cut"
says err "holds store cut with a registry that cannot be read: if its format was not finished, --force formats it again"
says err "'parallax store rebuild-registry' brings it back"
cp --sparse=always cut unfinished
run 0 store format cut --volume "$DIR/cut" --force
run 0 vdi create cut/a --size 1M
run 0 store forget cut
run 4 store format cut --volume "$DIR/cut"
says err "'parallax store import' makes it known here"
run 0 store import --volume "$DIR/cut"
run 0 store forget cut
cp --sparse=always unfinished cut
run 5 -q store rebuild-registry --volume "$DIR/cut"

step "a store's own volume that lost its superblocks is none that it can be given anew"
run 0 store format own --volume "$DIR/own0" --volume "$DIR/own1" --size 64M --extent-size 1M
dd if=/dev/zero of=own1 bs=4k count=5 conv=notrunc status=none
cp own1 before
"$PARALLAX" store add-volume own "$DIR/own1" --force >out 2>err && die "a lost volume was added"
same own1 before

step "a volume that the entry of its store does not name, for it came later, is the store's by its spare superblock"
run 0 store format passing --volume "$DIR/passing" --size 64M --extent-size 1M
run 0 store forget passing
run 0 store format grown --volume "$DIR/grown0" --size 64M --extent-size 1M
cp state/stores/grown.json older
run 0 store add-volume grown "$DIR/grown1" --size 64M
head -c 90M /dev/urandom >image
run 0 vdi import image grown/web
cp older state/stores/grown.json
for lost in "head -c 20480 /dev/zero" "head -c 20480 /dev/urandom" "head -c 20480 passing"; do
    head -c 20480 grown1 >first
    $lost | dd of=grown1 conv=notrunc status=none
    cp grown1 before
    for words in "format late --volume $DIR/grown1" "add-volume other $DIR/grown1"; do
        # shellcheck disable=SC2086 # words
        run 4 store $words --force --i-checked-nobody-uses-it
        says err "was a volume of store grown (with web), as its spare superblock says"
        says err "'parallax store restore-superblock' makes it one again; to overwrite it, run 'parallax store forget grown' first"
    done
    same grown1 before
    dd if=first of=grown1 conv=notrunc status=none
done
run 0 vdi export grown/web back
same back image
dd if=/dev/zero of=grown1 bs=4k count=5 conv=notrunc status=none
run 0 store forget grown
run 0 store format late --volume "$DIR/grown1" --force --i-checked-nobody-uses-it

step "... nor is it overwritten without that one, once the store was open here"
run 0 store format again --volume "$DIR/again0" --size 64M --extent-size 1M
cp state/stores/again.json older
run 0 store add-volume again "$DIR/again1" --size 64M
cp older state/stores/again.json
run 0 vdi create again/web --size 1M
dd if=/dev/zero of=again1 bs=4k count=16 conv=notrunc status=none
cp again1 before
run 4 store format never --volume "$DIR/again1" --force --i-checked-nobody-uses-it
says err "again1 is a volume of store again"
same again1 before
run 0 store forget again

step "a further volume of a copy is none that an interrupted growth of the original has left"
run 0 store format orig --volume "$DIR/orig0" --size 64M --extent-size 1M
cp orig0 copy0
run 0 store import copy --new-identity --volume "$DIR/copy0"
cp state/stores/copy.json older
run 0 store add-volume copy "$DIR/copy1" --size 64M
run 0 vdi import image copy/web
cp copy1 before
cp older state/stores/copy.json
for force in "" "--force" "--force --i-checked-nobody-uses-it"; do
    # shellcheck disable=SC2086 # words
    run 4 store add-volume orig "$DIR/copy1" $force
    says err "is a volume of store copy (with web); to overwrite it, run 'parallax store forget copy' first"
done
run 0 store forget copy
run 4 store add-volume orig "$DIR/copy1"
says err "is volume 1 of store orig, and only its volume 0 tells whose it is"
run 4 store add-volume orig "$DIR/copy1" --i-checked-nobody-uses-it
says err "--force overwrites it"
same copy1 before
run 0 store add-volume orig "$DIR/copy1" --force --i-checked-nobody-uses-it
run 0 store check orig

step "a volume is known by a name that lasts, and a descriptor's is none"
truncate -s 64M described further
exec 8<>described 7<>further
run 0 store format described --volume /proc/self/fd/8 --extent-size 1M
run 0 store add-volume described /dev/fd/7
exec 8<&- 7<&-
[[ $(<state/stores/described.json) != */fd/* ]] || die "that is no path: $(<state/stores/described.json)"
run 0 vdi create described/a --size 1M
run 0 store info described --json
[[ $(<out) == *"$DIR/described"*"$DIR/further"* && $(<out) != *fd/* ]] || die "that is no path"
run 0 store forget described
exec 8<>described
run 0 store import --volume "/proc/$$/fd/8" --volume further
[[ $(<state/stores/described.json) == *"$DIR/described"* ]] || die "that is no path: $(<state/stores/described.json)"
rm further && truncate -s 64M gone
exec 8<>gone
rm gone
run 1 store format gone --volume /proc/self/fd/8
says err "a volume needs a name that lasts, and what this one leads to has none"
exec 8<&-
truncate -s 64M lasting
exec 8<>lasting
ln -s /proc/self/fd/8 fleeting
for name in /dev/fd/../fd/8 "/proc/$$/cwd/lasting" "/proc/self/root$DIR/lasting" /proc/self/task/../cwd/lasting \
    //proc/self/fd/8 "$DIR/fleeting" /dev/stdin /proc/self/cwd/fleeting; do
    "$PARALLAX" store format lasting --volume "$name" --force --extent-size 1M <&8 >out 2>err || die "$name: $(<err)"
    grep -qF "\"$DIR/lasting\"" state/stores/lasting.json || die "$name is no path: $(<state/stores/lasting.json)"
    run 0 store forget lasting
done
exec 8<&-
run 0 store format recent --volume "/proc/$$/cwd/recent" --size 64M
grep -qF "\"$DIR/recent\"" state/stores/recent.json || die "that is no path: $(<state/stores/recent.json)"
run 0 store forget recent
run 3 store format gone --volume /proc/self/fd/8
run 0 store format here --volume /proc/self/cwd/here --size 64M # this one is meant as it is written
grep -q /proc/self/cwd/here state/stores/here.json || die "the path is another one"

step "data that begins far behind the beginning is data"
run 0 store format far --volume "$DIR/far0" --size 64M --extent-size 1M
run 0 vdi create far/a --size 16M
head -c 16M /dev/urandom >image
run 0 vdi import image far/a --force
run 0 store forget far
dd if=/dev/zero of=far0 bs=1M count=1 conv=notrunc status=none # all that says whose it is
cp far0 before
run 4 store format behind --volume "$DIR/far0"
says err "holds data already (at byte"
run 0 store format healthy --volume "$DIR/healthy" --size 64M --extent-size 1M
run 4 store add-volume healthy "$DIR/far0"
says err "holds data already (at byte"
same far0 before
truncate -s 64M plain
printf x | dd of=plain bs=1M seek=40 conv=notrunc status=none
run 4 store format behind --volume "$DIR/plain"
run 0 store format behind --volume "$DIR/plain" --force
