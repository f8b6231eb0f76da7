#!/bin/bash
# Every example of --help, the manual and README.md, as it is printed. Each runs in a world that has what it
# speaks of, in which it is half an hour after 2026-11-21T06:20:00Z. Paths under /srv and /dev/disk lie in the test's
# folder (/dev/sdb is /srv/demo.plx), `ssh backup` is a second state directory. What cannot be run is named, with the reason.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"

LIVE=$DIR/live
export TMPDIR=$DIR HOME=$LIVE/home PARALLAX_STATE_DIR=$LIVE/state PATH=$DIR/bin:$PATH:/usr/sbin:/sbin
shift_to() { echo $(($(date -d "$1" +%s) - $(date +%s))); }

ran=0
left_out() { echo "  left out: $1 ($2)"; }

step "programs"
mkdir bin
cat >bin/parallax <<SCRIPT
#!/bin/sh
exec "$PARALLAX_STAGED" "\$@"
SCRIPT
cat >bin/ssh <<SCRIPT
#!/bin/sh
shift
PARALLAX_STATE_DIR="$LIVE/backup" exec "\$@"
SCRIPT
command -v dot >/dev/null || cat >bin/dot <<'SCRIPT'
#!/bin/sh
grep -q '^digraph ' && echo '<svg/>'
SCRIPT
chmod +x bin/*

step "a world"
mkdir -p live/srv live/home live/dev/disk/by-id
cd live/home || exit 1
PLX_STAGE_SHIFT=$(shift_to 2026-11-21T06:05:00Z)
export PLX_STAGE_SHIFT
for name in aa bb cc; do truncate -s 256M "../dev/disk/by-id/wwn-0x6001405$name"; done
run 0 store format demo --volume "$LIVE/srv/demo.plx" --size 4G
run 0 store format safe --volume "$LIVE/srv/safe.plx" --size 1G
run 0 store format san --volume "$LIVE/dev/disk/by-id/wwn-0x6001405aa" --volume "$LIVE/dev/disk/by-id/wwn-0x6001405bb"
PARALLAX=$PARALLAX_STAGED
run 0 vdi create demo/scratch --size 256M
run 0 vdi create demo/web --size 64M
for _ in {1..50}; do # 4711 is an ordinary number
    run 0 vdi bench demo/web --rw randwrite --size 4M --runtime 1 --iodepth 1 --snapshot-every write --force
    run 0 snap create demo/web --json
    (($(json seq) <= 4720)) || break
done
mke2fs -q -t ext4 debian.raw 64M >/dev/null 2>&1 || die "no mke2fs"
run 0 vdi create demo/db --size 64M
for _ in {1..20}; do
    head -c 8k /dev/urandom >bytes
    run 0 vdi import bytes demo/db --force
    run 0 snap create demo/db
done
head -c 64k /dev/zero | tr '\0' x >broken.raw # little, for this world is copied for each example
truncate -s 64M broken.raw
run 0 vdi import broken.raw demo/db --force
run 0 snap create demo/db
for words in "cdp resume demo" "rewind demo/web --to 1"; do # the label has that time
    # shellcheck disable=SC2086 # words
    PLX_STAGE_NOW=$(date -u -d 2026-11-21T06:20:00Z +%s)010 run 0 $words
done
PLX_STAGE_SHIFT=$(shift_to 2026-11-21T06:25:00Z)
run 0 cdp resume demo # nobody has seen these minutes pass
run 0 vdi import debian.raw demo/web --force
for label in nightly before-upgrade monday tuesday wednesday friday good newest; do
    head -c 4k /dev/urandom | dd of=debian.raw bs=4k seek=8000 conv=notrunc status=none
    if [[ $label == friday ]]; then head -c 64k /dev/zero | dd of=debian.raw conv=notrunc status=none; fi
    run 0 vdi import debian.raw demo/web --force
    run 0 snap create "demo/web@$label"
done
run 0 vdi clone demo/web@nightly demo/web-test
run 0 vdi export-diff demo/web@monday web.full
run 0 vdi export-diff demo/web@monday..tuesday web.tuesday
run 0 --state-dir "$LIVE/backup" store format safe --volume "$LIVE/srv/backup.plx" --size 1G
run 0 --state-dir "$LIVE/backup" vdi import-diff web.full safe/web
zstd -q web.tuesday
zstd -q broken.raw -o db.raw.zst
! command -v qemu-img >/dev/null || qemu-img convert -O qcow2 broken.raw old.qcow2
rm bytes broken.raw
PLX_STAGE_SHIFT=$(shift_to 2026-11-21T06:50:00Z)
run 0 cdp resume demo
run 0 --state-dir "$LIVE/backup" cdp resume safe
cat >db-is-intact <<'SCRIPT'
#!/bin/sh
# --verbose IMAGE
! head -c 16 "$2" | grep -q xxxxxxxxxxxxxxxx
SCRIPT
chmod +x db-is-intact
touch "$DIR/kept.stamp"
cp -a --sparse=always "$LIVE" "$DIR/kept"
cp -al "$LIVE" "$DIR/world"
(($(du -sm "$DIR/kept" | cut -f 1) < 1024)) || die "it takes $(du -sh "$DIR/kept")"

# The world has second names for its files, of which those that an example changed get back what they held. So a volume keeps
# its inode: of one that has another inode each command would watch the home page for seconds (registry/tenancy.h).
anew() {
    rm -rf "${LIVE:?}"/*
    (
        cd "$DIR/world" || exit 1
        find . -type f -newer "$DIR/kept.stamp" -exec cp --sparse=always --preserve=timestamps "$DIR/kept/{}" {} \;
    ) || die "the world cannot be put back"
    cp -al "$DIR/world/." "$LIVE" || die "the world cannot be put back"
    cd "$LIVE/home" || exit 1
}

# What an example takes for granted and the world is not like.
prepare() {
    case $1 in
    "parallax store format "*) rm -rf "${LIVE:?}"/{state,srv/*} && truncate -s 0 ../dev/disk/by-id/* && truncate -s 256M ../dev/disk/by-id/* ;;
    *" --new-identity "*) cp --sparse=always ../srv/demo.plx ../srv/copy.plx ;;
    "parallax store restore-superblock "*) dd if=/dev/urandom of=../srv/demo.plx bs=17k count=1 conv=notrunc status=none ;;
    "parallax store import "*) run 0 store release demo && run 0 store forget demo ;;
    "parallax store take-over "*)
        run 0 store release demo
        PLX_STAGE_HOST=web1 run 0 --state-dir "$LIVE/web1" store import --volume "$LIVE/srv/demo.plx"
        [[ $1 == *" demo "* ]] || run 0 store forget demo
        ;;
    "parallax vdi create "* | *" vdi import "*) run 0 vdi delete demo/web --yes && run 0 vdi delete demo/db --yes ;;
    "parallax vdi delete "*" --lost")
        python3 - ../srv/demo.plx "$(registry "SELECT slot FROM vdis WHERE name = 'web'")" <<'END'
import sys
with open(sys.argv[1], "r+b") as volume:
    volume.seek(volume.read(1 << 20).index(b"PLXVDREC") // 8192 * 8192 + int(sys.argv[2]) * 8192)
    volume.write(bytes(8192))
END
        ;;
    "parallax vdi clone "*) run 0 vdi delete demo/web-test --yes ;;
    "parallax vdi export-diff "*) rm -f web.full web.tuesday ;;
    "parallax snap create demo/web@before-upgrade") run 0 snap unlabel demo/web@before-upgrade ;;
    "parallax snap label demo/web@4711 good") run 0 snap unlabel demo/web@good ;;
    "parallax cdp apply "*) run 0 cdp on demo/web ;;
    "parallax ring create demo "*" --from web1 "*)
        truncate -s 64M ../dev/disk/by-id/nvme-aa
        run 0 store release demo
        mkdir -p "$LIVE/web1"
        cat /proc/sys/kernel/random/uuid >"$LIVE/web1/host-id"
        for words in "store import --volume $LIVE/srv/demo.plx" "ring create demo $LIVE/dev/disk/by-id/nvme-aa --force" "store release demo"; do
            # shellcheck disable=SC2086 # words
            PLX_STAGE_HOST=web1 run 0 --state-dir "$LIVE/web1" $words
        done
        run 0 store import --volume "$LIVE/srv/demo.plx"
        ;;
    "parallax ring create san "*) for name in aa bb; do truncate -s 64M "../dev/disk/by-id/nvme-$name"; done ;;
    "parallax ring repair "*)
        for name in aa bb cc; do truncate -s 64M "../dev/disk/by-id/nvme-$name"; done
        run 0 ring create san "$LIVE/dev/disk/by-id/nvme-aa" "$LIVE/dev/disk/by-id/nvme-bb" --force
        rm ../dev/disk/by-id/nvme-bb
        [[ $1 != *--with* ]] || run 0 ring repair san --i-checked-the-other-is-lost
        ;;
    "parallax ring "[^c]* | "parallax ring check "* | "parallax vdi set "*"--ring "*) run 0 ring create demo "$LIVE/srv/demo.ring" --size 64M ;;
    esac
}

# example LINE: it works; or does what the reason says.
example() {
    local line=$1 status=0 expected=0 answer=""
    case $line in
    *"parallax cluster "*) left_out "$line" "needs rqlite nodes: tests/unit/test_cluster.sh runs it" && : >"$DIR/out" && return ;;
    *"parallax lun "*) left_out "$line" "needs root and the kernel's target; see tests/lab" && : >"$DIR/out" && return ;;
    qemu-img*) command -v qemu-img >/dev/null || { part_skipped "$line: qemu-img is missing" && return; } ;;
    "parallax store stats "* | "parallax vdi stats "*) expected=3 ;; # no handler runs here
    "parallax vdi delete demo/web" | "parallax vdi delete demo/web --lost") answer=yes ;;
    esac
    line=${line//\/srv\//$LIVE/srv/}
    line=${line//\/dev\/disk\//$LIVE/dev/disk/}
    line=${line//\/dev\/sdb/$LIVE/srv/demo.plx}
    line=${line//\/dev\/sdc/$LIVE/srv/copy.plx}
    ((++ran))
    if [[ $answer ]]; then
        PARALLAX=bash typed "$answer" -c "$line" || status=$?
    else
        timeout -k 5 300 bash -o pipefail -c "$line" >"$DIR/out" 2>"$DIR/err" </dev/null || status=$?
    fi
    # It looks at the loop devices of other tests, too, of which some are damaged on purpose.
    [[ $1 != "parallax store scan" || $status != 5 ]] || status=0
    ((status == expected)) || die "$1: exit status $status, not $expected"
    ((expected != 3)) || says err "so "
}

step "the examples of --help"
for noun in $("$PARALLAX" __complete); do
    verbs=$("$PARALLAX" __complete "$noun" | grep -v '^--')
    for verb in ${verbs:-""}; do
        # shellcheck disable=SC2086 # no verb: no word
        mapfile -t lines < <("$PARALLAX" help $noun $verb | sed -n '/^Examples:/,/^$/s/^  //p')
        ((${#lines[@]})) || die "'$noun $verb' has no examples"
        for line in "${lines[@]}"; do
            [[ $line == *"parallax $noun${verb:+ $verb}"* ]] || die "'$noun $verb' has a foreign example: $line"
            # A stream goes on from the one before it.
            [[ $verb == import-diff && $line != "${lines[0]}" ]] || anew
            prepare "$line"
            example "$line"
        done
    done
done

step "the examples of the manual"
anew
run 0 --state-dir "$LIVE/backup" vdi delete safe/web --yes
cp -a debian.raw "$DIR"
fenced=0 printed=""
while IFS= read -r line; do
    case $fenced$line in
    [01]'```') fenced=$((1 - fenced)) alone=1 ;;
    1'$ export '*) # the last block begins with nothing
        rm -rf "${LIVE:?}"/* && mkdir -p "$LIVE/home" && cd "$LIVE/home" && cp -a "$DIR/debian.raw" .
        eval "${line#\$ }"
        ;;
    1'$ '* | 1'# '*)
        alone=0
        [[ -z $printed ]] || die "the manual prints '$printed'"
        if [[ $line == *" take-over "* ]]; then anew && prepare "${line#[\$#] }"; fi
        example "${line#[\$#] }"
        printed=$(<"$DIR/out")
        [[ $line != *" tree "* && $line != *import-diff* && $line != *"store scan" && $line != *"vdi list" ]] || printed=""
        ;;
    1*)
        ((alone == 0)) || continue # what a message looks like
        [[ $line == iscsi://* || $printed == "$line" ]] || die "the manual prints '$line'"
        printed=""
        ;;
    esac
done <"$SOURCE/packaging/man/parallax.8.scd"

# readme FROM TO: the indented lines of README.md between two of its titles.
readme() { sed -n "/^## $1/,/^## $2/s/^    //p" "$SOURCE/README.md"; }

step "README.md's first and last parts"
export PARALLAX_STATE_DIR=$LIVE/state # the manual ends with one of its own
while IFS= read -r line; do
    left_out "$line" "tests/unit/test_install_deps.sh, and every build, run what it is made of"
done < <(readme Install "The first five minutes")
mapfile -t lines < <(readme "Moving to another machine" Limits)
((${#lines[@]} >= 8)) || die "README.md has no commands for a move or a disaster"
for line in "${lines[@]}"; do
    [[ $line == "parallax "* ]] || die "README.md has a line that is not run: $line"
    anew
    prepare "$line"
    example "$line"
done

step "README.md's tour"
mkdir -p "$DIR/tour/build"
cd "$DIR/tour" || exit 1
ln -s "$PARALLAX" build/parallax
unset PLX_STAGE_SHIFT PARALLAX_STATE_DIR
{
    echo 'set -euo pipefail; PS4=; set -x'
    readme "The first five minutes" "Moving to another machine" | grep -Ev '^(parallax lun |/backstores/|iqn\.|192\.)'
} >tour
left_out "the LUNs of the tour" "need root and the kernel's target; see tests/lab"
(($(wc -l <tour) > 30)) || die "there is no tour"
timeout -k 5 600 bash tour >"$DIR/out" 2>"$DIR/err" </dev/null || die "the tour ends early"
[[ $(grep -c '^parallax: ' "$DIR/err") == 0 ]] || die "the tour meets an error"
says out "$(sha256sum <disk.raw | cut -d ' ' -f 1)"
said() { sed -n "s/^$1: *//p" "$DIR/out"; }
[[ $(said Moved) && $(said Moved) != "0 B" && $(said Saved) && $(said Saved) != "0 B" ]] || die "defrag or dedup has nothing to show"
run 0 --state-dir "$DIR/tour/state" vdi list demo --json
[[ $(<"$DIR/out") == *demo/copy* && $(<"$DIR/out") == *demo/web-then* ]] || die "the tour does not end where it should"
echo "all is well ($ran examples, and README.md's tour)"
