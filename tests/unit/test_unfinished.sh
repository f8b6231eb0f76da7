#!/bin/bash
# A disk that holds a part of an import says so until it is whole, and what is made of it says so, too. The labels by which
# the program knows states again are its own.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"
trap 'kill -9 $(jobs -p) 2>/dev/null; rm -rf "$DIR"' EXIT

# is WHAT DISK: "unfinished", or "null".
is() {
    run 0 vdi info "demo/$2" --json
    [[ $(json import) == "$1" ]] || die "demo/$2: the import is $(json import), not $1"
}

# holds DISK FILE
holds() {
    run 0 vdi export "demo/$1" exported --force
    same exported "$2"
}

# unlabelled DISK
unlabelled() {
    run 0 snap list "demo/$1" --labels
    ! grep -q import-unfinished out || die "demo/$1 has the label still"
}

# anew DISK: a copy of demo/web@a.
anew() {
    "$PARALLAX" vdi delete "demo/$1" --yes >/dev/null 2>&1
    run 0 gc demo
    run 0 vdi import-diff full "demo/$1"
}

# half DISK: a copy of demo/web@a, and of demo/web@a..b what came before the stream broke off.
half() {
    anew "$1"
    run 5 vdi import-diff broken "demo/$1"
    is unfinished "$1"
}

# cut DISK: an image that turns out to be too large.
cut() {
    ! cat image image | "$PARALLAX" vdi import - "demo/$1" --force >out 2>err || die "it fits"
    is unfinished "$1"
}

run 0 store format demo --volume "$DIR/demo.plx" --size 2G --extent-size 1M
for name in a b image; do head -c 2M /dev/urandom >$name; done
run 0 vdi import a demo/web
run 0 snap create demo/web@a
run 0 vdi import b demo/web --force
run 0 snap create demo/web@b
run 0 vdi export-diff demo/web@a full
run 0 vdi export-diff demo/web@a..b inc
head -c 1500000 inc >broken

step "a whole image in its place: the disk is whole, and nothing of it is taken back"
half copy
run 0 vdi import image demo/copy --force
is null copy
unlabelled copy
run 4 vdi import-diff inc demo/copy
says err "was changed since"
holds copy image
run 0 vdi import-diff inc demo/copy --force
holds copy b
is null copy

step "a kill amid that: whole, or unfinished"
half copy
PLX_STAGE_COUNT=$DIR/calls "$PARALLAX_STAGED" vdi import image demo/copy --force >out 2>err || die "$(<err)"
calls=$(<calls)
for ((at = 1; at <= calls; at += at < calls - 40 ? 13 : 2)); do
    half copy
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" vdi import image demo/copy --force; } >out 2>&1
    run 0 snap list demo/copy # and recovers
    run 0 vdi info demo/copy --json
    [[ $(json import) == unfinished ]] || holds copy image
done

step "so it is with changes that are taken back"
anew taken
run 0 vdi import image demo/taken --force
PLX_STAGE_COUNT=$DIR/calls "$PARALLAX_STAGED" vdi import-diff inc demo/taken --force >out 2>err || die "$(<err)"
calls=$(<calls)
for ((at = 1; at <= calls; at += 11)); do
    anew taken
    run 0 vdi import image demo/taken --force
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$at "$PARALLAX_STAGED" vdi import-diff inc demo/taken --force; } >out 2>&1
    run 0 snap create demo/taken # and recovers
    run 0 vdi info demo/taken --json
    [[ $(json import) == unfinished ]] && continue
    run 0 vdi export demo/taken exported --force
    cmp -s exported image || cmp -s exported a || cmp -s exported b || die "at $at: a part, and nothing says so"
done

step "a disk that was rewound to what was before is whole, and one that is rewound to a part is none"
half copy
run 0 vdi import-diff full demo/origin # whose stream is broken off likewise, but by a raw image
run 0 snap create demo/origin@kept
cut origin
for pair in copy:import-unfinished origin:kept; do
    disk=${pair%:*}
    run 0 rewind "demo/$disk" --to "${pair#*:}" --json
    before=$(json before)
    is null "$disk"
    unlabelled "$disk"
    holds "$disk" a
    run 0 vdi export "demo/$disk@$before" part --force
    says err "holds a part"
    run 0 rewind "demo/$disk" --to "$before" --json
    whole=$(json before)
    is unfinished "$disk"
    run 0 rewind "demo/$disk" --to 1
    is null "$disk"
    run 0 rewind "demo/$disk" --to "$whole"
    run 0 vdi export "demo/$disk@1" exported --force
    ! grep -q part err || die "the state from before is called a part"
done

step "a stream that is there already does not make another one's part whole"
run 0 vdi import-diff full demo/mixed
cut mixed
run 0 vdi import-diff full demo/mixed
is unfinished mixed
run 0 vdi import-diff full demo/mixed --force
is null mixed
holds mixed a

step "nor one that has begun while the stream was read"
run 0 vdi import-diff full demo/both
mkfifo stream raw
"$PARALLAX" vdi import-diff - demo/both --wait 0 <stream >out 2>err &
reader=$!
exec 7>stream
head -c 1M full >&7
for ((i = 0; i < 300; i++)); do
    ! grep -q already err || break
    sleep 0.1
done
says err "nothing is written"
"$PARALLAX" vdi import - demo/both --force <raw >/dev/null 2>&1 7>&- &
writer=$!
exec 8>raw
head -c 1M image >&8
for ((i = 0; i < 300; i++)); do
    run 0 vdi info demo/both --json
    [[ $(json import) != unfinished ]] || break
    sleep 0.1
done
tail -c +1048577 full >&7
exec 7>&-
wait $reader || die "the stream is refused"
is unfinished both
kill -9 $writer
{ wait $writer; } 2>/dev/null
exec 8>&-
is unfinished both

step "what is made of a part is said to be one"
half copy
for words in "vdi export demo/copy -" "snap create demo/copy@part" "vdi export demo/copy@part -" "vdi export-diff demo/copy@part -" \
    "vdi clone demo/copy@part demo/clone" "cdp on demo/copy"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
    says err "holds a part"
done
is unfinished clone
run 0 vdi clone demo/copy@import-unfinished demo/good
is null good
run 0 vdi export demo/copy@import-unfinished -
! grep -q part err || die "the state from before is called a part"

step "labels that the program gives are given by nobody else"
for label in import-unfinished import-x before-rewind-20261121T062000.010Z before-rewind-x; do
    for words in "snap create demo/web@$label" "snap create demo/web --label $label" "snap label demo/web@1 $label"; do
        # shellcheck disable=SC2086 # words
        run 2 $words
        says err "the label '$label' is reserved"
    done
done
run 0 snap create demo/web@imported
run 0 snap unlabel demo/copy@import-unfinished # those that are there go like any other
