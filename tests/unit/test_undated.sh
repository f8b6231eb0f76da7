#!/bin/bash
# What the registry knew of a wall clock that had jumped is lost or out of date, and the registry is rebuilt: no
# snapshot goes by a time that nobody vouches for (REBUILD-15), and what else is lost is told (REBUILD-5).
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

: "${PLX_SHIFTCLOCK:?the library that shifts the clock}"
export SHIFTCLOCK="$DIR/shift" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
DAY=86400

# shifted SECONDS: from now on the wall clock is off by so many.
shifted() { echo "$1" >"$SHIFTCLOCK"; }
cat >shifting <<SH
#!/bin/sh
LD_PRELOAD='$PLX_SHIFTCLOCK' exec '$PARALLAX' "\$@"
SH
chmod +x shifting
PARALLAX="$DIR/shifting"

change() {
    head -c 300000 /dev/urandom >part
    run 0 vdi import part demo/m --force
}
taken() {
    change
    run 0 snap create demo/m
}
# damage_policies: a byte of the page that has the witness.
damage_policies() {
    python3 - demo.plx <<'END_PY' || die "there is no such page"
import struct, sys
with open(sys.argv[1], "r+b") as volume:
    data = volume.read()
    spans = [struct.unpack_from("<QQ", data, 2048 + 32 * n + 8) for n in range(struct.unpack_from("<I", data, 196)[0])]
    pages = [at for first, count in spans for at in range(first << 20, (first + count) << 20, 4096)
             if data[at] == 0x0a and b"clock" in data[at:at + 4096]]
    for at in pages:
        volume.seek(at + 4000)
        volume.write(bytes([data[at + 4000] ^ 1]))
sys.exit(not pages)
END_PY
}
# registry_of FILE: the registry as it is there; no file: something else in its place.
registry_of() {
    python3 - demo.plx "$@" <<'END_PY'
import os, struct, sys
old = open(sys.argv[2], "rb").read() if len(sys.argv) > 2 else None
with open(sys.argv[1], "r+b") as volume:
    head = volume.read(1 << 20)
    for n in range(struct.unpack_from("<I", head, 196)[0]):
        first, count = struct.unpack_from("<QQ", head, 2048 + 32 * n + 8)
        volume.seek(first << 20)
        volume.write(old[first << 20:(first + count) << 20] if old else os.urandom(count << 20))
END_PY
}
# made TIERS [SECONDS]: a store with a disk that has snapshots; the clock is off by so many.
made() {
    rm -rf demo.plx state
    shifted "${2:-0}"
    run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
    run 0 vdi create demo/m --size 4M
    run 0 cdp on demo/m --every 1d --keep "$1" --on-full keep
    taken
    taken
}
# rebuilt STATUS: it says that no time is believed any more.
rebuilt() {
    cp demo.plx aside.plx
    "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" >out 2>told
    cp aside.plx demo.plx
    "$PARALLAX" store rebuild-registry --volume "$DIR/demo.plx" --json >out 2>err
    [[ $? == "$1" ]] || die "the rebuild did not end with $1"
    [[ $(json undated_vdis) == '["m"]' ]] || die "the disk is not named"
    says told "no snapshot of 1 virtual disk from before now is deleted by its time"
}
# stays: all snapshots are there, and none goes by time.
stays() {
    run 0 cdp apply demo/m --json
    [[ $(json snapshots) == 0 ]] || die "snapshots have gone"
    run 4 snap delete "demo/m@..$middle" --force
    says err "was taken while the wall clock was in doubt"
    run 0 snap list demo/m --all --json
    [[ $(json_count) == "$count" ]] || die "snapshots are missing"
}
# counted: how many there are, and the time of one in the middle.
counted() {
    run 0 snap list demo/m --all --json
    count=$(json_count)
    middle=$(json $((count / 2)) time)
}

step "a registry that was read whole, and is not older: nothing is undated"
made all:1h
run 0 store rebuild-registry demo --json
[[ $(json undated_vdis) == "[]" && $(json unread) == "[]" ]] || die "something counts as undated"
run 0 cdp status demo/m --json
[[ $(json undated) == "[]" ]] || die "a stretch without dates"
run 0 snap delete demo/m@.."$(date -u +%Y-%m-%dT%H:%M:%SZ)" --force --dry-run

step "a damaged page of the policies"
made all:1h
run 0 store set demo --warn-at 80%
run 0 vdi set demo/m --warn-at 2M
shifted $((-5 * DAY))
taken
taken
shifted 0
taken
counted
damage_policies
run 5 snap create demo/m # ATTACH-23; a handler: test_commits.c
says err "'parallax store rebuild-registry --volume $DIR/demo.plx' rebuilds it from the store"
rebuilt 5
says told "lost: what the old registry knew of virtual disk m (--warn-at, --ring, --on-full, its shortened window, its clock) cannot"
says told "1 part of the old registry could not be read"
[[ $(json unread) == '["virtual disk m ('* ]] || die "that is not counted"
stays
run 0 vdi info demo/m --json
[[ $(json warn_at) == null && $(json protection) == "every 1d" ]] || die "something else is lost"
run 0 store info demo --json
[[ $(json warn_at) == 80%* ]] || die "the store has lost its limit"
run 0 store rebuild-registry demo --json # once it is known, it stays known
[[ $(json undated_vdis) == "[]" ]] || die "it is told again"
stays

step "a clock that has jumped, and a damaged page: nothing goes, as the rebuild is advised"
made all:1h
taken
shifted $((30 * DAY))
run 4 cdp apply demo/m
counted
damage_policies
rebuilt 5
run 0 cdp apply demo/m
stays
shifted 0
run 4 cdp apply demo/m
says err "30d 0h behind of where it was"

step "no registry, or an older one"
made all:1h
counted
seen=$count
cp demo.plx early.plx
shifted $((-10 * DAY))
taken
taken
shifted 0
taken
counted
cp demo.plx good.plx
for how in none older; do
    cp good.plx demo.plx
    if [[ $how == none ]]; then
        registry_of
    else
        registry_of early.plx
        run 4 snap delete "demo/m@..$middle" --dry-run --force
    fi
    rebuilt "$([[ $how == none ]] && echo 5 || echo 0)"
    [[ $(json unread) == "$([[ $how == none ]] && echo '["the whole"]' || echo "[]")" ]] || die "what is lost is not told"
    run 0 cdp status demo/m --json
    [[ $(json undated 0 first_seq) == $([[ $how == none ]] && echo 1 || echo $((seen + 1))) ]] || die "the stretch begins elsewhere"
    [[ $(json undated 0 last_seq) == $(json newest_seq) ]] || die "the stretch ends elsewhere"
    stays
    run 0 cdp on demo/m --keep all:1s
    for _ in {1..20}; do # until the window has passed since the rebuild
        sleep 0.5
        run 0 cdp apply demo/m --json
        (($(json snapshots) == 0)) || break
    done
    (($(json snapshots) > 0)) || die "snapshots stay for ever"
    run 0 store check demo
done

step "a registry that is older, and has not heard that the disk was closed last"
made all:1h
witness=$(registry "SELECT value FROM policies WHERE key = 'clock'")
taken
counted
middle=$(json $((count - 2)) time)
registry_edit demo.plx "INSERT INTO instances (id, store, role, started_ns) SELECT 5, id, 'admin', 1 FROM store"
registry_edit demo.plx "UPDATE policies SET value = '$witness' WHERE key = 'clock'"
registry_edit demo.plx "UPDATE vdis SET owner = 5, written_epoch = 1"
rebuilt 0
stays

step "snapshots in the future stay in doubt"
made all:1h $((10 * DAY))
shifted 0
counted
registry_of
rebuilt 5
run 0 store rebuild-registry demo --json # what it found is known
[[ $(json undated_vdis) == "[]" ]] || die "it is told again"
run 4 cdp apply demo/m
says err "the newest snapshot lies"
run 0 snap list demo/m --all --json
[[ $(json_count) == "$count" ]] || die "snapshots are missing"

step "a disk that waits for recovery"
made all:1h
counted
"$PARALLAX" vdi bench demo/m --rw randwrite --iodepth 1 --runtime 100 --size 1M --force --snapshot-every 100ms >bench.out 2>&1 &
sleep 1
kill -KILL $!
wait $! 2>/dev/null
registry_of
rebuilt 5
run 0 snap create demo/m # this recovers
counted
stays
echo "all is well"
