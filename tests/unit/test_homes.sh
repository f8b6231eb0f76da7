#!/bin/bash
# One host at a time has a store: two machines by two names, each with a state directory of its own.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
# shellcheck source=tests/unit/hosts.sh
. "$SOURCE/tests/unit/hosts.sh"

host alpha
host beta
alpha() { on alpha "$@"; }
beta() { on beta "$@"; }
# listed CODE PROBLEM: how alpha's list shows that it can only read the store.
listed() {
    alpha 0 store list
    grep -q "^demo .* $1\$" out || die "the list does not say $1"
    says err "$2"
    alpha 0 store list --json
    [[ $(json 0 problem_code) == "$1" && $(json 0 problem) == "$2" ]] || die "the JSON does not say it"
}
head -c 1M /dev/urandom >image

step "a store of another host is not formatted, imported, rebuilt or looked into for writing"
alpha 0 store format demo --volume "$DIR/demo.plx" --size 256M
alpha 0 vdi import image demo/web
cp --sparse=always demo.plx before.plx
for words in "format new --volume $DIR/demo.plx --force" "import --volume $DIR/demo.plx" \
    "rebuild-registry --volume $DIR/demo.plx"; do
    # shellcheck disable=SC2086 # words
    beta 4 store $words
    says err "belongs to host alpha"
    same demo.plx before.plx
done
beta 0 store import demo --read-only --volume "$DIR/demo.plx"
for words in "store set demo --warn-at 80%" "vdi set demo/web --warn-at 80%" "vdi create demo/new --size 1M"; do
    # shellcheck disable=SC2086 # words
    beta 4 $words
    says err "belongs to host alpha, which used it last; give it up there ('parallax store release'), or, if that host is off: 'parallax store take-over demo --from alpha --i-checked-it-is-off'"
    same demo.plx before.plx
done
alpha 0 store release demo
for words in "store set demo --warn-at 80%" "vdi set demo/web --warn-at 80%" "vdi create demo/new --size 1M"; do
    # shellcheck disable=SC2086 # words
    alpha 4 $words
    says err "no host has the store: it was released; 'parallax store import --volume $DIR/demo.plx' takes it"
done
alpha 0 store import --volume "$DIR/demo.plx"
alpha 0 store set demo --warn-at 80%
alpha 0 store set demo --warn-at none
beta 0 store forget demo

step "a further volume does not tell whose it is, nor one that cannot be read: --force is not enough"
alpha 0 store format wide --volume "$DIR/wide0.plx" --volume "$DIR/wide1.plx" --size 64M --extent-size 1M
alpha 0 vdi import image wide/web
beta 0 store format near --volume "$DIR/near.plx" --size 64M --extent-size 1M
cp wide1.plx before1.plx
for words in "format new --volume $DIR/wide1.plx" "add-volume near $DIR/wide1.plx"; do
    # shellcheck disable=SC2086 # words
    beta 4 store $words --force
    says err "is volume 1 of store wide, and only its volume 0 tells whose it is"
    same wide1.plx before1.plx
    # shellcheck disable=SC2086 # words
    beta 4 store $words --i-checked-nobody-uses-it
    says err "--force overwrites it"
done
beta 4 store format new --volume "$DIR/wide0.plx" --volume "$DIR/wide1.plx" --force --i-checked-nobody-uses-it
says err "belongs to host alpha"
alpha 0 vdi export wide/web wide.back
same wide.back image
for block in 0 2; do # superblock, home page
    cp wide0.plx damaged.plx
    dd if=/dev/urandom of=damaged.plx bs=4k seek=$block count=2 conv=notrunc 2>/dev/null
    [[ $block == 2 ]] || printf 'PLXSUPER' | tee >(dd of=damaged.plx bs=4k seek=1 conv=notrunc 2>/dev/null) |
        dd of=damaged.plx conv=notrunc 2>/dev/null
    sleep 0.2
    beta 4 store format new --volume "$DIR/damaged.plx" --force
    says err "so nobody knows whether a host uses it"
done
beta 0 store format new --volume "$DIR/damaged.plx" --force --i-checked-nobody-uses-it
cp demo.plx lost.plx
dd if=/dev/zero of=lost.plx bs=4k seek=2 count=2 conv=notrunc 2>/dev/null # not that of a store that was released
cp lost.plx before.plx
for words in "format other --volume $DIR/lost.plx" "add-volume near $DIR/lost.plx"; do
    # shellcheck disable=SC2086 # words
    beta 4 store $words --force
    says err "its home page is lost, so nobody knows whether a host uses it"
done
for words in import rebuild-registry; do
    beta 5 store $words --volume "$DIR/lost.plx"
    says err "the home page is lost, so nobody knows which host has the store"
done
same lost.plx before.plx
beta 0 store take-over --volume "$DIR/lost.plx" --any --i-checked-it-is-off
beta 0 vdi export demo/web lost.back
same lost.back image
beta 0 store forget demo
alpha 0 store release wide
alpha 4 vdi create wide/late --size 1M
says err "'parallax store import --volume $DIR/wide0.plx --volume $DIR/wide1.plx' takes it"
alpha 0 store forget wide
beta 0 store format given --volume "$DIR/wide1.plx" --volume "$DIR/wide0.plx" --force
beta 0 store format other --volume "$DIR/other0.plx" --volume "$DIR/other1.plx" --size 64M --extent-size 1M
beta 0 store forget other
beta 0 store add-volume near "$DIR/other1.plx" --force --i-checked-nobody-uses-it
beta 0 store check near

step "the host that has it says so, and the other finds it"
beta 0 store scan "$DIR/demo.plx" --json
[[ $(json 0 host) == alpha && $(json 0 ours) == false ]] || die "scan does not say whose it is"

step "a host's name comes from the store: in a command it is one word, or the host's id stands there"
odd() { PLX_STAGE_HOST=$name PLX_STAGE_BOOT=$DIR/odd/boot PARALLAX_STATE_DIR=$DIR/odd run "$@"; }
# obeyed: what is advised, typed as it is, takes the store.
obeyed() {
    local words
    whole err
    words=$(sed -n "s/.*'parallax \(store take-over [^']*\)'.*/\1/p" err)
    [[ $words == *" --from $from --i-checked-it-is-off" ]] || die "not that host: $words"
    eval "beta 0 $words"
    [[ ! -e pwn ]] || die "a shell obeys the name"
}
long=$(printf 'h%.0s' {1..60})
for name in "web 1" "\$(touch pwn)" "it's" "" any -x $'a\tb' "$long" "$(printf ' %.0s' {1..40})"; do
    rm -rf odd odd.plx
    host odd
    case $name in
        "web 1") from='web\ 1' ;;
        "\$"*) from='\$\(touch\ pwn\)' ;;
        "it's") from="it\\'s" ;;
        "$long") from=$long ;;
        *) from=$(<odd/host-id) ;;
    esac
    odd 0 store format odd --volume "$DIR/odd.plx" --size 64M --extent-size 1M
    cp --sparse=always odd.plx odd.kept
    beta 0 store scan odd.plx --json
    [[ $(json 0 host_uuid) == "$(<odd/host-id)" ]] || die "the host's id is not told"
    beta 0 store scan odd.plx --columns host_uuid -q
    [[ $(<out) == "$(<odd/host-id)" ]] || die "the host's id is no column"
    for words in "--from gamma" --any; do
        # shellcheck disable=SC2086 # words
        beta 4 store take-over --volume "$DIR/odd.plx" $words --dry-run
        says err "is off, say --from $from"
        [[ $(<err) != *"host ,"* && $(<err) != *"host  "* ]] || [[ $name == " "* ]] || die "a host without a name"
    done
    if [[ $name == [$]* || ! $name ]]; then # it takes some seconds
        beta 4 store import --volume "$DIR/odd.plx"
        obeyed
        beta 0 store forget odd
        cp --sparse=always odd.kept odd.plx
    fi
    beta 0 store import --read-only --volume "$DIR/odd.plx"
    beta 0 store info odd
    says err "'parallax store take-over odd --from $from --i-checked-it-is-off' takes it"
    beta 0 store forget odd
done
rm -r odd odd.plx odd.kept

step "paths that are long: what is advised is whole, and in general words where there is no room"
host "$long"
for count in 90 200; do
    folder=$DIR/$(printf 'd%.0s' $(seq $count))
    mkdir "$folder"
    on "$long" 0 store format wide --volume "$folder/wide0.plx" --volume "$folder/wide1.plx" --size 64M --extent-size 1M --state-dir "$DIR/wide"
    beta 4 store import --volume "$folder/wide0.plx" --volume "$folder/wide1.plx"
    whole err
    says err "'parallax store take-over --volume PATH... --from $long --i-checked-it-is-off'"
    beta 0 store import --read-only --volume "$folder/wide0.plx" --volume "$folder/wide1.plx"
    on "$long" 0 store release wide --state-dir "$DIR/wide"
    beta 4 store set wide --warn-at none
    whole err
    says err "'parallax store import --volume PATH...' takes it"
    beta 0 store forget wide
    rm -r "$folder" wide
done
rm -r "$long"

# unchanged HOST WORDS...: succeeds, and nothing of the store is another one afterwards.
unchanged() {
    cp demo.plx before.plx
    "$1" 0 "${@:2}"
    says err "nothing was changed"
    same demo.plx before.plx
}

step "given up there, taken here; what was there goes on"
unchanged alpha store release demo --dry-run
alpha 0 store release demo
alpha 4 vdi create demo/late --size 1M
says err "no host has the store"
released="no host has store demo, it was released: here it can only be read until 'parallax store import --volume $DIR/demo.plx' takes it"
alpha 0 store info demo
says err "$released"
listed RELEASED "$released"
alpha 4 store release demo --dry-run
says err "no host has the store: it was released"
unchanged beta store take-over --volume "$DIR/demo.plx" --from gamma --dry-run
says err "no host has store demo, so nothing would be taken from host gamma; this host would have it"
unchanged alpha store take-over demo --any --dry-run
says err "no host has store demo, so nothing would be taken from another; this host would have it"
beta 0 store import --volume "$DIR/demo.plx"
beta 0 vdi export demo/web back
same back image
alpha 4 vdi create demo/late --size 1M
says err "belongs to host beta"
alpha 0 store info demo
elsewhere="host beta has store demo: here it can only be read; if that host is off, 'parallax store take-over demo --from beta --i-checked-it-is-off' takes it"
says err "$elsewhere"
listed ELSEWHERE "$elsewhere"
alpha 0 store forget demo
says err "host beta has it, so only 'parallax store import --read-only --volume $DIR/demo.plx' makes it known here again"
alpha 0 store import --read-only --volume "$DIR/demo.plx"
listed ELSEWHERE "$elsewhere"
beta 0 store list
grep -Eq 'ELSEWHERE|RELEASED' out && die "this host's own store is listed as another's"
alpha 0 store info demo --json
[[ $(json host) == beta && $(json ours) == false ]] || die "who has the store is not told"
beta 0 store info demo
[[ ! -s err ]] || die "a note on a store of this host"
beta 0 store info demo --json
[[ $(json host) == beta && $(json ours) == true ]] || die "who has the store is not told"
alpha 4 store release demo --dry-run
says err "belongs to host beta"

step "the operator's word: a host by its right name, that is off"
alpha 4 store take-over demo --from gamma --i-checked-it-is-off
says err "if host beta is off, say --from beta"
says err "to host beta, not to gamma"
alpha 4 store take-over demo --from gamma --dry-run
says err "to host beta, not to gamma"
unchanged alpha store take-over demo --from beta --dry-run
alpha 4 vdi create demo/late --size 1M
alpha 0 store take-over demo --from beta --i-checked-it-is-off
unchanged alpha store take-over demo --from beta --dry-run
says err "this host has store demo already, so nothing would be taken from host beta"
alpha 0 store take-over demo --from gamma --i-checked-it-is-off
says err "this host has store demo already, so nothing was taken from host gamma"
alpha 0 store take-over --volume "$DIR/demo.plx" --from gamma --i-checked-it-is-off
says err "this host has store demo already, so nothing was taken from host gamma"
for which in demo "--volume $DIR/demo.plx"; do # no word is asked for: nobody loses anything
    # shellcheck disable=SC2086 # words
    alpha 0 store take-over $which --from beta
    says err "this host has store demo already, so nothing was taken from host beta"
    # shellcheck disable=SC2086 # words
    beta 4 store take-over $which --from alpha
    says err "if host alpha still runs"
done
alpha 0 store take-over demo --any --i-checked-it-is-off --json
[[ $(json already) == true ]] || die "the JSON does not say that this host has it already"
alpha 0 vdi export demo/web back --force
same back image
beta 4 vdi create demo/late --size 1M

step "whichever host has it: only where the store cannot tell which one that is"
cp --sparse=always demo.plx before.plx
for words in "--dry-run" "--i-checked-it-is-off"; do
    beta 4 store take-over --volume "$DIR/demo.plx" --any $words
    says err "the store belongs to host alpha, and --any is for one that cannot tell; if host alpha is off, say --from alpha"
    same demo.plx before.plx
done
for slot in 0 1; do # the one that is damaged may have named another host
    cp --sparse=always demo.plx torn.plx
    printf damaged | dd of=torn.plx bs=1 seek=$((8192 + slot * 4096 + 20)) conv=notrunc status=none
    on beta 4 store take-over --volume "$DIR/torn.plx" --any --state-dir "$DIR/torn$slot"
    says err "if the host that has it still runs"
    on beta 0 store take-over --volume "$DIR/torn.plx" --any --i-checked-it-is-off --state-dir "$DIR/torn$slot"
    says err "store demo is known here"
done
rm torn.plx

step "a volume is looked at once for what it is: a take-over opens it no more often than an import"
alpha 0 store format twin --volume "$DIR/twin0.plx" --volume "$DIR/twin1.plx" --size 64M --extent-size 1M
alpha 0 store forget twin
for words in "import" "take-over --any --i-checked-it-is-off"; do
    rm -f opened
    # shellcheck disable=SC2086 # words
    PLX_STAGE_OPENED=$DIR/opened alpha 0 store $words --volume "$DIR/twin0.plx" --volume "$DIR/twin1.plx"
    grep -c twin1 opened >>counted
    alpha 0 store forget twin
done
(($(sed -n 2p counted) <= $(sed -n 1p counted))) || die "volume 1 is opened so often: $(xargs <counted)"

step "what a host had open when it was lost: told as gone, and recovered by the first that writes"
alpha 0 vdi create demo/late --size 1M # or its creation, too, would have it open for a moment
mkfifo pipe
exec {held}<>pipe
PLX_STAGE_HOST=alpha PLX_STAGE_BOOT=$DIR/alpha/boot PARALLAX_STATE_DIR=$DIR/alpha "$PARALLAX" vdi import pipe demo/late --force >/dev/null 2>&1 &
lost=$!
for _ in {1..100}; do
    alpha 0 vdi list demo --json
    [[ $(<out) != *'"open_by": "'* ]] || break
    sleep 0.1
done
says out "\"admin $lost on alpha\""
{ kill -KILL "$lost" && wait "$lost"; } 2>err
exec {held}>&-
alpha 0 vdi list demo --json
says out "\"admin $lost on alpha, gone\""
rm beta/stores/*
beta 4 store import --volume "$DIR/demo.plx"
says err "'parallax store take-over --volume $DIR/demo.plx --from alpha --i-checked-it-is-off'"
unchanged beta store take-over --volume "$DIR/demo.plx" --from alpha --dry-run
says err "demo/late was open there: it would be recovered"
beta 3 vdi list demo
beta 0 store take-over --volume "$DIR/demo.plx" --from alpha --i-checked-it-is-off
beta 0 vdi list demo --json
says out "\"admin $lost on alpha, gone\""
beta 0 vdi create demo/later --size 1M
beta 0 vdi list demo --json
[[ $(<out) != *'"open_by": "'* ]] || die "a disk is open though nobody lives who had it"

# An import on alpha that waits for the rest of its data: $running, and the pipe's end as $held.
begin_on_alpha() { # DISK
    mkfifo "pipe-$1"
    exec {held}<>"pipe-$1"
    PLX_STAGE_HOST=alpha PLX_STAGE_BOOT=$DIR/alpha/boot PARALLAX_STATE_DIR=$DIR/alpha "$PARALLAX" \
        vdi import "pipe-$1" "demo/$1" --size 1M >"$1.out" 2>"$1.err" {held}>&- &
    running=$!
    for _ in {1..100}; do
        alpha 0 vdi list demo --json
        [[ $(<out) != *"\"admin $running on alpha\""* ]] || return 0
        sleep 0.1
    done
    die "the import of $1 does not begin"
}
# Stops the import between two transactions. Real machines do not see each other's locks, but these two
# are one machine: beta would wait for a lock that the stopped import holds. Looked for are the locks of
# bytes up to PLX_BYTE_HOME, which lie from 1 << 62 on (BYTELOCK-1).
pause_alpha() {
    local inode
    inode=$(stat -c %i demo.plx)
    for _ in {1..100}; do
        kill -STOP "$running"
        sleep 0.02
        awk -v end=":$inode" '
            substr($6, length($6) - length(end) + 1) == end && $7 ~ /^46116860184273879(0[4-9]|1[0-4])$/ { held = 1 }
            END { exit held }' /proc/locks && return 0
        kill -CONT "$running"
        sleep 0.05
    done
    die "the import always holds a lock of a transaction"
}
# Its data, and the exit code it ends with.
end_on_alpha() { # DISK STATUS
    local status=0 feeder

    # Beside it: when the import has ended, nobody reads the rest.
    cat image >&"$held" {held}>&- &
    feeder=$!
    exec {held}>&-
    for _ in {1..300}; do
        kill -0 "$running" 2>/dev/null || break
        sleep 0.1
    done
    kill -0 "$running" 2>/dev/null && kill -KILL "$running"
    wait "$running" || status=$?
    kill "$feeder" 2>/dev/null
    [[ $status == "$2" ]] || die "the import of $1 ends with $status, not $2: $(<"$1.err")"
}

step "the operator's word against what lives: a machine that is not off keeps its store"
beta 0 store release demo
alpha 0 store import --volume "$DIR/demo.plx"
begin_on_alpha alive
beta 4 store take-over demo --from alpha --i-checked-it-is-off
says err "the store is in use by host alpha, which is running"
end_on_alpha alive 0

step "a machine that was paused for so long that another one took its store writes nothing more"
begin_on_alpha paused
pause_alpha
beta 0 store take-over demo --from alpha --i-checked-it-is-off
beta 0 vdi import image demo/taken
beta 0 gc demo
cp --sparse=always demo.plx before.plx
kill -CONT "$running"
end_on_alpha paused 4
[[ $(<paused.err) == *"host beta has taken the store over"* ]] || die "it does not say who took it: $(<paused.err)"
same demo.plx before.plx
beta 0 store check demo --data
beta 0 vdi export demo/taken back --force
same back image

step "a volume that went back to what it was while it was in use"
beta 0 store release demo
alpha 0 store import --volume "$DIR/demo.plx"
begin_on_alpha older
pause_alpha
cp --sparse=always demo.plx before.plx
kill -CONT "$running"
sleep 2.5
pause_alpha
dd if=before.plx of=demo.plx bs=1M conv=notrunc status=none
kill -CONT "$running"
end_on_alpha older 4
[[ $(<older.err) == *"went back to an older state"* ]] || die "it does not say that it went back: $(<older.err)"

step "a path that leads to another disk by now: nothing is written there, and it is not called damaged"
mkdir gamma
cp alpha/boot gamma/boot
cp alpha/host-id gamma/host-id
gamma() { on alpha "$@" --state-dir "$DIR/gamma"; }
gamma 0 store format moved --volume "$DIR/moved.plx" --size 64M --extent-size 1M
beta 0 store format pair --volume "$DIR/pair0.plx" --volume "$DIR/pair1.plx" --size 64M --extent-size 1M
beta 0 vdi import image pair/web
truncate -s 64M blank.plx
for other in pair0 pair1 blank; do
    status=1 why="holds another store now"
    [[ $other != blank ]] || status=6 why="no Parallax superblock here"
    cp --sparse=always $other.plx moved.plx
    cp --sparse=always moved.plx before.plx
    for words in "vdi create moved/new --size 1M" "store grow moved" "store release moved" \
        "store take-over moved --any --i-checked-it-is-off" "store take-over moved --any --dry-run" \
        "store take-over moved --from beta --i-checked-it-is-off"; do
        # shellcheck disable=SC2086 # words
        gamma $status $words
        says err "$why"
        same moved.plx before.plx
    done
done

step "the same machine through another name of the volume: a container, say"
mkdir box
cp alpha/boot box/boot
cat /proc/sys/kernel/random/uuid >box/host-id
if loop=$(losetup --find --show demo.plx 2>losetup.err); then
    trap 'losetup --detach "$loop"; rm -rf "$DIR"' EXIT
    begin_on_alpha named
    on box 4 store import --volume "$loop"
    says err "through another name of the volume"
    end_on_alpha named 0
    on box 0 store import --volume "$loop"
    on box 0 vdi export demo/named back --force
    same back image
else
    part_skipped "through another name: no loop device: $(<losetup.err)"
fi

step "a home page that is lost is not taken for that of a store that was released"
run 0 store format page --volume "$DIR/page.plx" --size 64M --extent-size 1M
run 0 vdi import image page/web
run 0 snap create page/web@one
dd if=/dev/zero of=page.plx bs=4k seek=2 count=2 conv=notrunc status=none
run 0 store list
says out UNTOLD
says err "the home page of store page is lost, so nobody knows which host has it"
run 0 store scan "$DIR/page.plx"
[[ $(<out) != *"(released)"* ]] || die "it was not released"
run 5 vdi create page/new --size 1M
says err "when no other host has the store, 'parallax store take-over page --any --i-checked-it-is-off' rewrites it"
run 0 vdi export page/web back --force
same back image
run 0 vdi export page/web@one back --force
same back image
run 5 store check page
says out "error: the home page of store page is lost"
run 0 store take-over page --any --i-checked-it-is-off
run 0 vdi create page/new --size 1M

step "nor is one that is damaged in both slots: all is read, nothing is written"
printf x | dd of=page.plx bs=1 seek=$((2 * 4096 + 100)) conv=notrunc status=none
run 5 store check page # the other slot is there: read and written on, and said
says out "copy 0 of the home page, block 2, is damaged or cannot be read; the other one is whole"
run 0 vdi delete page/new --yes
cp page.plx whole.plx
for slot in 2 3; do printf x | dd of=page.plx bs=1 seek=$((slot * 4096 + 100)) conv=notrunc status=none; done
cp page.plx damaged.plx
run 0 store list
says out UNTOLD
says err "the home page of store page is damaged, so nobody knows which host has it"
for name in web web@one; do # an instant is held as where nobody has the store
    run 0 vdi export page/$name back --force
    same back image
done
run 5 store check page
says out "error: the home page of store page is damaged"
for words in "vdi create page/other --size 1M" "snap create page/web@two" "vdi delete page/web --yes" "gc page" \
    "store import --volume $DIR/page.plx"; do
    # shellcheck disable=SC2086 # words
    run 5 $words
    says err "the home page is damaged"
    says err "--any --i-checked-it-is-off' rewrites it"
done
run 4 store format other --volume "$DIR/page.plx" --size 64M --force
same damaged.plx page.plx
run 0 store take-over page --any --i-checked-it-is-off
run 0 store check page
run 0 vdi export page/web back --force
same back image
cp whole.plx page.plx

step "snapshots of a store that no host has are read, and none of them is let go meanwhile"
run 0 snap create page/web@two
run 0 store release page
for words in "vdi export page/web@one back --force" "diff page/web@one..two" "vdi export-diff page/web@one stream --force"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
done
same back image
mkfifo slow
"$PARALLAX" -q vdi export page/web@one - >slow 2>reader.err &
reader=$!
exec 6<slow
head -c 4096 <&6 >back
run 0 store import --volume "$DIR/page.plx"
run 4 snap delete page/web@one --wait 0
says err "reads snapshots, and none goes until it has ended"
cat <&6 >>back
exec 6<&-
wait "$reader" || die "the reader failed: $(<reader.err)"
same back image
run 0 snap delete page/web@one

step "another file in the place of the first volume, while who opened the store writes to the other one"
run 0 store format both --volume "$DIR/both0.plx" --size 32M --extent-size 1M
head -c 24M /dev/urandom >most
run 0 vdi import most both/full
run 0 store add-volume both "$DIR/both1.plx" --size 64M
head -c 8M /dev/urandom >eight
run 0 vdi import eight both/web
mkfifo rest
exec {held}<>rest
"$PARALLAX" vdi import rest both/web --force >living.out 2>&1 {held}>&- </dev/null &
living=$!
for _ in {1..100}; do
    run 0 vdi list both --json
    [[ $(<out) != *'"open_by": "admin '$living* ]] || break
    sleep 0.1
done
mv both0.plx away.plx
cp --sparse=always away.plx both0.plx
cp --sparse=always both1.plx before.plx
for words in "snap create both/web" "vdi import eight both/new" "gc both" "store release both" \
    "store take-over both --any --i-checked-it-is-off" "store import --volume $DIR/both0.plx --volume $DIR/both1.plx"; do
    # shellcheck disable=SC2086 # words
    run 4 $words --wait 1
    says err "both1.plx: who opened store both before another file was put in the place of"
    same both1.plx before.plx
done
mv away.plx both0.plx
cat eight >&"$held"
exec {held}>&-
wait "$living" || die "the import that was under way has failed: $(<living.out)"
run 0 vdi export both/web back --force
same back eight
cp --sparse=always both0.plx away.plx
mv away.plx both0.plx # nobody has it open: it is taken
run 0 vdi import most both/more
run 0 store check both --data
