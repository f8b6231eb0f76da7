#!/bin/bash
# The registry's place grows with its store: parallax store grow and store add-volume on a store that outgrew it,
# beside processes that have had it open since before.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# SQL that puts rows $1 to $2, of 600 bytes each, into the registry, where they are in nobody's way.
rows() {
    echo "WITH RECURSIVE n (i) AS (SELECT $1 UNION ALL SELECT i + 1 FROM n WHERE i < $2)
        INSERT INTO policies SELECT id, 'row' || i, hex(zeroblob(300)) FROM n, vdis WHERE name = 'v'"
}

step "a small store, and rows until its registry is full"
run 0 store format demo --volume one --size 16M --extent-size 1M
run 0 vdi create demo/v --size 4M
run 0 snap create demo/v --label first
head -c 12M /dev/urandom >data
"$PARALLAX" vdi import data demo/full >out 2>err # so the registry's further space lies behind its present end
says err "no space left"
run 0 store info demo --json
small=$(json registry_bytes)
((small < 600 << 10)) || die "the registry of a small store is large"
"$REGISTRY_SQL" one "$(rows 1 1000)" 2>err && die "a small registry holds 1000 rows"
for ((i = 1; $(json registry_used_bytes) * 5 <= small * 4; i += 20)); do
    registry_edit one "$(rows "$i" $((i + 19)))"
    run 0 store info demo --json
done
"$PARALLAX" snap create demo/v --label more >out 2>err && die "a crowded registry took a label"
says err "store grow"
"$PARALLAX" vdi create demo/more --size 1M >out 2>err && die "a crowded registry took a disk"

step "it cannot grow where the store does not"
run 0 store grow demo
run 0 store info demo --json
[[ $(json registry_bytes) == "$small" ]] || die "it grew"

step "64 times as large, while others have it open, whatever has got its name since"
"$REGISTRY_SQL" --wait one "SELECT 1 FROM policies WHERE key = 'row2500'" >watched 2>&1 &
watcher=$!
until grep -qs watching watched; do sleep 0.1; done
mv one real
head -c 64k /dev/urandom >one
sed -i 's#/one"#/real"#' state/stores/demo.json
truncate -s 1G real
run 0 store grow demo
run 0 store info demo --json
large=$(json registry_bytes)
((large > 3 * small)) || die "the registry has not grown"
[[ $(json extents) == 1024 ]] || die "the store has not grown"
registry_edit real "$(rows 1001 2500)"
wait $watcher || die "who had the registry open has not seen what came: $(cat watched)"
mv real one
sed -i 's#/real"#/one"#' state/stores/demo.json
run 0 store check demo --json
[[ $(json errors) == 0 ]] || die "damage"
for i in {1..20}; do
    run 0 vdi create "demo/d$i" --size 1M
    run 0 snap create demo/v --label "label-$i"
done
run 0 store info demo --json
(($(json registry_used_bytes) > 2 * small)) || die "it holds no more than before"
run 0 store grow demo
run 0 store info demo --json
[[ $(json registry_bytes) == "$large" ]] || die "it grew without need"
registry_edit one "DELETE FROM policies WHERE key LIKE 'row%'"

step "what the registry took is nobody else's, also of one made anew"
system=$(registry "SELECT count(*) FROM extents WHERE type = 'system'")
[[ $system == 5 ]] || die "$system extents are the system's"
rm -rf state
run 0 store rebuild-registry --volume one
[[ $(registry "SELECT count(*) FROM extents WHERE type = 'system'") == 5 ]] || die "a rebuild forgot the registry's extents"
run 0 store info demo --json
[[ $(json registry_bytes) == "$large" ]] || die "a rebuild forgot the registry's space"
head -c 40M /dev/urandom >data
run 0 vdi import data demo/w
run 0 store check demo --data --json
[[ $(json errors) == 0 ]] || die "damage after the registry was rebuilt"

step "extents that an interrupted call has left are taken first"
registry_edit one "INSERT INTO extents (store, no, type) SELECT store, touched, 'system' FROM volumes;
    UPDATE volumes SET touched = touched + 1;
    INSERT INTO extents (store, no, type) SELECT store, touched, 'system' FROM volumes;
    UPDATE volumes SET touched = touched + 1"
run 0 store check demo
says out "kept for the registry"
run 0 store add-volume demo two --size 9G
run 0 store info demo --json
(($(json registry_bytes) * 5 > large * 7)) || die "it has not grown with a further volume"
run 0 store check demo
grep -q "kept for the registry" out && die "what was left is left still"

step "a registry that has lost a write gets nothing that is in use"
run 0 store format lost --volume five --size 16M --extent-size 1M
head -c 6M data >part
run 0 vdi import part lost/w
cp five five.kept
for change in "DELETE FROM extents WHERE no >= 5; UPDATE volumes SET touched = 5" \
    "UPDATE extents SET type = 'system', sealed = 0 WHERE type = 'data'"; do
    cp five.kept five
    registry_edit five "$change"
    truncate -s 1G five
    run 4 store grow lost
    says err "the registry lost a write"
    run 0 store info lost
    says out "In doubt"
    run 4 store grow lost
    "$REGISTRY_SQL" five "$(rows 1 800 | sed "s/'v'/'w'/")" 2>err && die "the registry has got more room"
    run 0 store rebuild-registry --volume five
    run 0 store grow lost
    run 0 store info lost --json
    (($(json registry_bytes) > 3 * small)) || die "it has not grown after a rebuild"
    registry_edit five "$(rows 1 800 | sed "s/'v'/'w'/")"
    run 0 vdi export lost/w back --force
    same part back
    run 0 store check lost --data --json
    [[ $(json errors) == 0 ]] || die "damage"
    rm five back
done

step "no room in volume 0"
run 0 store format full --volume three --size 128M --extent-size 1M
registry_full() { "$REGISTRY_SQL" three "UPDATE volumes SET touched = extents WHERE idx = 0;
    WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 127)
    INSERT OR IGNORE INTO extents (store, no) SELECT store, i FROM volumes, n WHERE idx = 0" || die "cannot fill"; }
registry_full
run 0 store add-volume full four --size 9G
says err "less room"
says err "make that one larger"
run 0 store info full --json
(($(json registry_bytes) < 3 << 20)) || die "it grew without room"
truncate -s 192M three
run 0 store grow full
grep -q "less room" err && die "it has what it needs"
run 0 store info full --json
(($(json registry_bytes) > 3 << 20)) || die "it has not grown with volume 0"
run 0 store check full

step "a volume 0 that is too small for so large a store"
run 0 store format tiny --volume six --size 16M --extent-size 1M
run 0 store add-volume tiny seven --size 9G
says err "six has no more for it"

step "no span left in the superblock"
run 0 store format often --volume ten --size 1G --extent-size 1M
registry_edit ten "WITH RECURSIVE n (i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 39)
    INSERT INTO extents (store, no, type) SELECT store, touched + i, iif(i % 2, 'system', 'unused') FROM volumes, n;
    UPDATE volumes SET touched = touched + 40"
run 0 store add-volume often eleven --size 120G
says err "as often as it can be"
says err "make a further store"
run 0 store check often

# damage VOLUME EXTENT...: neither zero nor valid, in both copies of the first header page
damage() {
    local volume=$1 no
    shift
    for no in "$@"; do dd if=/dev/urandom of="$volume" bs=4k seek=$((no * 256)) count=2 conv=notrunc status=none; done
}

step "headers of extents that were never used, and are damaged"
for damaged in "0" "1 2" "0 2 3"; do
    rm -f twelve
    run 0 store format worn --volume twelve --size 16M --extent-size 1M
    run 0 vdi import part worn/w
    run 0 store info worn --json
    before=$(json registry_bytes)
    truncate -s 1G twelve
    cp twelve twelve.kept
    run 0 store grow worn --json
    [[ $(json sealed_extents) == "[]" ]] || die "what is whole was sealed"
    PARALLAX_STATE_DIR=$DIR/state "$PARALLAX" store export-registry worn grown >out 2>err || die "no export"
    mv twelve.kept twelve
    first=$(python3 -c '
import sqlite3
print(sqlite3.connect("grown").execute("SELECT max(no) FROM extents WHERE type = ?", ("system",)).fetchone()[0] - 2)')
    rm grown
    for d in $damaged; do damage twelve $((first + d)); done
    cp twelve twelve.kept
    run 0 store grow worn
    for d in $damaged; do says err "extent $((first + d)) was to be the registry's"; done
    mv twelve.kept twelve
    run 0 store grow worn --json
    [[ $(json sealed_extents | tr -d '[],' | wc -w) == $(wc -w <<<"$damaged") ]] || die "$(json sealed_extents) were sealed"
    run 5 store info worn --json # as for any extent that cannot be read
    (($(json registry_bytes) > 3 * before)) || die "it has not grown"
    registry_edit twelve "$(rows 1 800 | sed "s/'v'/'w'/")"
    run 0 vdi export worn/w back --force
    same part back
    "$PARALLAX" store check worn --data >out 2>err
    for d in $damaged; do says out "extent $((first + d))"; done
    grep -q "kept for the registry" out && die "something is left over"
    "$PARALLAX" -q store rebuild-registry --volume twelve >out 2>err; [[ $? == 5 ]] || die "a rebuild reads them"
    run 0 store grow worn --json
    [[ $(json sealed_extents) == "[]" ]] || die "a rebuild forgot what was sealed"
    run 0 store forget worn
done

step "too many of them"
rm -f twelve
run 0 store format worn --volume twelve --size 16M --extent-size 1M
truncate -s 1G twelve
run 0 store info worn --json
before=$(json registry_bytes)
damage twelve {2..15}
"$PARALLAX" store grow worn >out 2>err && die "it grew"
[[ $(grep -c "nobody uses it from now on" err) == 3 ]] || die "not three were sealed"
says err "the registry's space stays as it was"
run 5 store info worn --json
[[ $(json registry_bytes) == "$before" ]] || die "it grew"

step "a volume that was added is known, though the registry has lost a write"
run 0 store format lost2 --volume eight --size 128M --extent-size 1M
run 0 vdi import part lost2/w
registry_edit eight "DELETE FROM extents WHERE no >= 8; UPDATE volumes SET touched = 8"
run 4 store add-volume lost2 nine --size 9G
grep -q nine state/stores/lost2.json || die "the list of known stores lacks the new volume"

echo "all good"
