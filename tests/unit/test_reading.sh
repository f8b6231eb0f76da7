#!/bin/bash
# Who may only read: with a state directory that is not there or cannot be written to, and with volumes that cannot.
# What is read is right, nothing is written, and no snapshot goes while it is read.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

[[ $(id -u) == 0 ]] || { echo "SKIPPED: root is needed to become somebody else, and to mount" && exit 77; }
chmod 755 "$DIR"
cp "$PARALLAX" "$DIR/parallax" || exit 1 # where everybody can run it

# Ways to have less: somebody else, and a name space in which all of it lies on a file system that is read-only.
somebody() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
# shellcheck disable=SC2016 # the inner shell's
nobody_writes() {
    unshare -m sh -c 'mount --bind "$0" "$0" && mount -o remount,bind,ro "$0" && cd "$0" && exec "$@"' "$DIR" "$@"
}
ways=(somebody nobody_writes)
nobody_writes true 2>/dev/null || { echo "without read-only mounts: none can be made here" && ways=(somebody); }

# reads STATUS WORDS...: the command in the way that is tried; out and err lie where they can be written.
reads() {
    local status=$1 got
    shift
    "$way" timeout -k 5 300 "$DIR/parallax" "$@" >"$ELSEWHERE/out" 2>"$ELSEWHERE/err" </dev/null
    got=$?
    cp "$ELSEWHERE/out" "$ELSEWHERE/err" "$DIR/"
    [[ $got == "$status" ]] || die "$way: parallax $*: exit status $got, not $status"
}
ELSEWHERE=$(mktemp -d)
trap '[[ -z ${device:-} ]] || losetup --detach "$device"; rm -rf "$DIR" "$ELSEWHERE"' EXIT

# everything DISK: whatever reads.
everything() {
    reads 0 vdi list demo
    says out demo/a
    reads 0 store list
    reads 0 store info demo
    reads 0 store check demo --data
    says out "Errors:                  0"
    reads 0 snap list demo/a
    says out first
    for instant in "" @first @2; do
        reads 0 vdi export "demo/a$instant" -
        cmp -s out "a$instant" || { rm out; die "demo/a$instant is not what it was"; }
    done
    reads 0 diff demo/a@first demo/a@2
    reads 0 vdi info demo/a
    reads 0 gc demo --dry-run
    reads 0 store rebuild-registry --volume "$DIR/one" --dry-run
    says err "would rebuild the registry of store demo: 1 virtual disk,"
}

step "a store with snapshots"
run 0 store format demo --volume one --size 32M --extent-size 1M
yes first | head -c 3M >a@first
run 0 vdi import a@first demo/a
run 0 snap create demo/a --label first
yes second | head -c 3M >a@2
run 0 vdi import a@2 demo/a --force
run 0 snap create demo/a
cp a@2 a
rm -rf state/run

step "a state directory that cannot be written to, and volumes that can"
chmod 755 state state/stores && chmod 644 state/stores/* && chmod 666 one
for way in "${ways[@]}"; do everything; done
[[ ! -e state/run ]] || die "a folder was made for nothing"

step "a state directory that is not there"
way=somebody
PARALLAX_STATE_DIR=$DIR/none/such reads 0 store list
PARALLAX_STATE_DIR=$DIR/none/such reads 0 store scan "$DIR/one"
says out demo
PARALLAX_STATE_DIR=$DIR/none/such reads 0 store rebuild-registry --volume "$DIR/one" --dry-run
PARALLAX_STATE_DIR=$DIR/none/such reads 3 vdi list demo
says err "there is no store 'demo'"
PARALLAX_STATE_DIR=$DIR/none reads 1 store import --volume "$DIR/one"
says err "cannot make"

step "volumes that cannot be written to"
chmod 444 one
for way in "${ways[@]}"; do everything; done
for way in "${ways[@]}"; do
    for command in "vdi create demo/b --size 1M" "snap create demo/a" "gc demo" "snap delete demo/a@first"; do
        # shellcheck disable=SC2086 # words
        "$way" "$DIR/parallax" $command >"$ELSEWHERE/out" 2>&1 && die "$way wrote: $command"
    done
done

step "no snapshot goes while somebody reads it who cannot say so in the registry"
# A reader that has begun, and goes on when it is told to.
begin_reading() {
    mkfifo "$ELSEWHERE/pipe"
    "$way" "$DIR/parallax" vdi export demo/a@first - 2>"$ELSEWHERE/err" >"$ELSEWHERE/pipe" &
    reader=$!
    exec 9<"$ELSEWHERE/pipe"
    head -c 4096 <&9 >"$ELSEWHERE/read"
}
end_reading() {
    cat <&9 >>"$ELSEWHERE/read"
    exec 9<&-
    rm "$ELSEWHERE/pipe"
    wait "$reader" || die "$way: the reader failed: $(cat "$ELSEWHERE/err")"
    cmp -s "$ELSEWHERE/read" a@first || die "$way: what was read is not what it was"
}
for way in "${ways[@]}"; do
    begin_reading
    run 4 snap delete demo/a@first --wait 0
    says err "a process that cannot write to its volume reads snapshots"
    run 4 vdi delete demo/a --yes --wait 0
    says err "a process that cannot write to its volume reads snapshots"
    run 0 snap create demo/a
    end_reading
done

step "nobody begins to read while snapshots go"
mkfifo image
"$PARALLAX" vdi import - demo/held --size 1M <image >/dev/null 2>&1 &
importer=$!
exec 8>image
echo held >&8
for ((i = 0; i < 300; i++)); do
    run 0 vdi list demo --json
    grep -q '"held"' out && [[ $(registry "SELECT owner > 0 FROM vdis WHERE name = 'held'") == 1 ]] && break
    sleep 0.1
done
registry_edit one "INSERT INTO intents (vdi, instance, epoch) SELECT a.id, h.owner, a.epoch FROM vdis a, vdis h WHERE a.name = 'a'
    AND h.name = 'held'; UPDATE vdis SET owner = (SELECT owner FROM vdis WHERE name = 'held') WHERE name = 'a'"
for way in "${ways[@]}"; do
    reads 4 vdi export demo/a@first - --wait 0
    says err "is letting snapshots of demo/a go"
    reads 4 vdi export demo/a - --wait 0
    says err "demo/a is open in a parallax command"
done

step "nor through a name of the volume whose locks nobody sees, while the store is open"
mkdir copy
cp one copy/one
if device=$(losetup --read-only --show --find one 2>/dev/null); then
    way="env"
    export PARALLAX_STATE_DIR=$DIR/second
    mkdir -p second/stores
    sed "s|$DIR/one|$device|" state/stores/demo.json >second/stores/demo.json
    reads 4 vdi export demo/a@first -
    says err "is open on host"
    reads 4 vdi export demo/a -
    says err "is open on host"
    kill -9 "$importer"
    wait "$importer" 2>/dev/null
    reads 0 vdi export demo/a@first - # nothing moves any more, and the intent is the dead one's
    cmp -s out a@first || die "the snapshot is not what it was"

    step "what was read by such a name is not called right if the store was opened meanwhile"
    # meanwhile COMMAND...: done while an export of $instant is over but for its file's name.
    meanwhile() {
        PLX_STAGE_SIGNAL=19 PLX_STAGE_SYNC=1 "$PARALLAX_STAGED" vdi export "$instant" exported >out 2>err &
        reader=$!
        stops "$reader"
        PARALLAX_STATE_DIR=$DIR/state "$@" >said 2>&1
        kill -CONT "$reader"
        wait "$reader"
        [[ $? == "$expected" ]] || die "while '$*': the export does not end with exit status $expected: $(cat err)"
    }
    killed() { ! { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=40 "$PARALLAX_STAGED" "$@"; } || die "it was not killed"; }
    expected=4
    for instant in demo/a@first demo/a; do # the newest state, too (NEWEST-2)
        for change in "killed snap create demo/a" "$PARALLAX snap create demo/a"; do
            # shellcheck disable=SC2086 # words
            meanwhile $change
            says err "was opened on host"
            [[ ! -e exported ]] || die "$instant, while '$change': the export got its name"
        done
    done
    expected=0
    for instant in demo/a@first demo/a; do
        meanwhile "$PARALLAX" snap list demo/a
        same exported "${instant#demo/}"
        rm exported
    done
    losetup --detach "$device"
    device=
    export PARALLAX_STATE_DIR=$DIR/state
else
    echo "without a loop device: there is none to be had here"
fi
exec 8>&-
