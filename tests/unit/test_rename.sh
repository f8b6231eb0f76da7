#!/bin/bash
# vdi rename: everything but the name stays, at whatever moment the command is killed.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"

names() { registry "SELECT group_concat(name) FROM (SELECT name FROM vdis WHERE state = 'live' ORDER BY name)"; }

# What its record says: a rebuild that cannot read the old registry believes nothing else.
names_on_store() {
    cp --sparse=always demo.plx copy.plx
    no_registry copy.plx
    "$PARALLAX" --state-dir "$DIR/other" store rebuild-registry --volume "$DIR/copy.plx" >out 2>err # 5: what only the old one knew is gone
    run 0 --state-dir "$DIR/other" vdi list --json
    "$PEEK" column out vdi || die "no disks in the JSON"
    rm -r other copy.plx
}

step "a world"
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
head -c 4M /dev/urandom >image
run 0 vdi import image demo/web
run 0 snap create demo/web@clean
run 0 vdi clone demo/web@clean demo/test
run 0 cdp on demo/web --every 1s --keep all:1h
run 0 vdi set demo/web --warn-at 80%
run 0 vdi info demo/web --json
id=$(json uuid)

step "it gets the name, and keeps the rest"
run 0 vdi rename demo/web shop
says err "demo/web is called demo/shop now"
run 0 vdi info demo/shop --json
[[ $(json uuid) == "$id" && $(json labels) == '["clean"]' && $(json warn_at) == 80%* && $(json retention) == *1h* ]] ||
    die "it has not kept what it had"
run 0 vdi export demo/shop@clean back
same image back
run 3 vdi info demo/web
run 0 vdi info demo/test --json
[[ $(json parent) == demo/shop@1 && $(json parent_deleted) == false ]] || die "a clone does not know where it comes from"
run 0 tree demo
says out shop
run 0 store check demo
[[ $(names_on_store) == shop,test ]] || die "the record has another name"
run 0 vdi rename demo/shop demo/web --json
[[ $(json name) == demo/web ]] || die "not the disk by its new name"
[[ $(registry "SELECT detail FROM events WHERE what = 'vdi rename' ORDER BY id DESC") == "shop becomes web" ]] || die "no event"

step "refused"
run 4 vdi rename demo/web test
says err "demo/test exists already"
run 4 vdi rename demo/web web
says err "demo/web is called so already; give a new name"
run 3 vdi rename demo/none other
run 3 vdi rename demo/none test
says err "demo/none"
run 2 vdi rename demo/web other/web
says err "stays in its store: demo"
run 2 vdi rename demo/web 'a@b'
run 2 vdi rename demo/web "$(printf 'x%.0s' {1..300})"
run 2 vdi rename demo/web ''
run 2 vdi rename demo/web
[[ $(names) == test,web ]] || die "something was renamed"

step "a name that was given up is free, also for a chain of names"
run 0 vdi rename demo/web a
run 0 vdi rename demo/test web
run 0 vdi rename demo/a test
run 0 vdi info demo/web --json
[[ $(json parent) == demo/test@1 ]] || die "the names were not exchanged"
run 0 vdi rename demo/web a
run 0 vdi rename demo/test web
run 0 vdi rename demo/a test
run 0 store check demo

step "not while a snapshot is read, or the disk is open"
mkfifo pipe
"$PARALLAX" -q vdi export demo/web@clean - >pipe 2>/dev/null &
reader=$!
exec 7<pipe
head -c 64k <&7 >/dev/null
run 4 vdi rename demo/web shop --wait 0
says err "demo/web@1 is being read or cloned by a parallax command (pid $reader)"
exec 7<&-
wait "$reader"
"$PARALLAX" -q vdi bench demo/web --rw randread --runtime 3 >/dev/null 2>&1 &
writer=$!
sleep 1
run 4 vdi rename demo/web shop --wait 0
says err "demo/web is in use by a parallax command"
run 0 vdi rename demo/web shop --wait 30
wait "$writer"
[[ $(names) == shop,test ]] || die "it was not renamed when it was free"

step "who waited for a disk does not get it by a name that it has no more"
PLX_STAGE_SIGNAL=19 PLX_STAGE_LOCK=1 "$PARALLAX_STAGED" vdi delete demo/shop --yes >out 2>err &
waiting=$!
stops "$waiting"
"$PARALLAX" -q vdi rename demo/shop web || die "the lock is nobody's, and yet it cannot be renamed"
"$PARALLAX" -q vdi rename demo/test shop || die "the name is free"
kill -CONT "$waiting"
wait "$waiting"
[[ $? == 3 ]] || die "a disk was deleted by the name that it had"
says err "demo/shop has just been renamed; it is called demo/web now"
[[ $(names) == shop,web ]] || die "a disk is missing"
run 0 vdi rename demo/shop test
run 0 store check demo

# killed_at WRITE: a rename of demo/web to shop is killed there, or ends before. Its status is in status.
killed_at() {
    cp --sparse=always kept.plx demo.plx
    (PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$1 exec "$PARALLAX_STAGED" vdi rename demo/web shop) >out 2>err
    status=$?
    ((status == 0 || status == 137)) || die "write $1: exit status $status"
}

step "killed with a write of the command, it is called one or the other, and everywhere the same"
# With each of them: unit/test_attach_crash.
cp --sparse=always demo.plx kept.plx
killed=0 renamed=0
for ((at = 1 + RANDOM % 41; ; at += 41)); do
    killed_at "$at" 2>/dev/null
    ((status)) || break
    ((++killed))
    run 0 store check demo # beside a dead owner
    before=$(names)
    [[ $before == test,web || $before == shop,test ]] || die "write $at: the disks are $before"
    run 0 vdi create demo/next --size 1M # whoever opens the store recovers it
    run 0 vdi delete demo/next --yes
    run 0 store check demo
    [[ $(names) == "$before" ]] || die "write $at: another name after the recovery, $(names), was $before"
    [[ $(names_on_store) == "$before" ]] || die "write $at: on the store it is $(names_on_store), not $before"
    name=${before/test/} name=${name/,/}
    [[ $name == web ]] || ((++renamed))
    run 0 vdi export "demo/$name@clean" back --force
    same image back
    [[ $name == shop ]] || run 0 vdi rename demo/web shop
    run 0 vdi info demo/test --json
    [[ $(json parent) == demo/shop@1 ]] || die "write $at: a clone does not know where it comes from"
done
((killed > 4 && renamed && renamed < killed)) || die "killed $killed times, renamed $renamed of them: that shows little"
echo "    killed $killed times, $renamed of them with the new name"

step "a rebuild after a kill: the registry's name, with everything else"
for _ in 1 2 3 4 5; do # on a busy machine a look at the home page may come between, and shift the numbers
    low=1 high=$at # the first write behind which the registry has the name
    while ((low < high)); do
        middle=$(((low + high) / 2))
        killed_at "$middle" 2>/dev/null
        if [[ $(names) == shop,test ]]; then high=$middle; else low=$((middle + 1)); fi
    done
    killed_at "$low" 2>/dev/null
    [[ $(names) != shop,test ]] || break
done
run 0 vdi info demo/shop # by the name that the registry has, before any recovery
run 0 store rebuild-registry --volume "$DIR/demo.plx"
[[ $(names) == shop,test ]] || die "the rebuild calls them $(names)"
run 0 snap create demo/shop
run 0 store check demo

step "a record that has not the registry's name gets it when the disk is opened"
registry_edit demo.plx "UPDATE vdis SET name = 'other' WHERE name = 'shop'"
"$PARALLAX" store check demo >out 2>err
says out "virtual disk other is called shop by its record; opening it for writing sets it right, as 'parallax snap create' does"
run 0 snap create demo/other
run 0 store check demo
[[ $(names_on_store) == other,test ]] || die "its record has kept the old name"

for whose in nobody new chain; do
    step "a record from before a rename: the disk keeps its name in a rebuild, and the old one is that of: $whose"
    rm -rf demo.plx state
    run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M
    run 0 vdi import image demo/web
    run 0 vdi import image demo/old
    run 0 snap create demo/web
    cp --sparse=always demo.plx older.plx
    run 0 vdi rename demo/web web-2025
    case $whose in
        new) run 0 vdi import image demo/web ;;
        chain) run 0 vdi rename demo/old web ;;
    esac
    names=$(names)
    record_back older.plx demo.plx 0
    "$PARALLAX" store rebuild-registry demo >out 2>err
    [[ $? == 5 && $(names) == "$names" ]] || die "they were $names, and the rebuild calls them $(names)"
    says err "lost: virtual disk web-2025: its record is older than what was written last"
    run 5 vdi info demo/web-2025
    "$PARALLAX" store check demo --data >out 2>err
    [[ $whose == new || $(grep -c "virtual disk web-2025" out) -ge 3 ]] || die "its damage is not told by the name that it has"
    grep "virtual disk" out | grep -v web-2025 && die "another disk is damaged"
    run 0 vdi accept-older demo/web-2025 --yes
    "$PARALLAX" store rebuild-registry demo >out 2>err # nobody has opened it since
    [[ $(names) == "$names" ]] || die "they were $names, and the next rebuild calls them $(names)"
    run 0 vdi export demo/web-2025 back --force
    same image back
done

step "a registry that lost writes, as it is known: the record's name counts"
run 0 snap create demo/web-2025
run 0 vdi rename demo/web-2025 web-2026
registry_edit demo.plx "UPDATE store SET doubt = 'it went back'; UPDATE vdis SET name = 'web-2024' WHERE name = 'web-2026'"
"$PARALLAX" store rebuild-registry demo >out 2>err
[[ $(names) == *web-2026 ]] || die "the rebuild calls them $(names)"
rm -rf demo.plx state
run 0 store format demo --volume "$DIR/demo.plx" --size 64M --extent-size 1M

step "a clone of a disk that was deleted is none of the new disk with its name"
run 0 vdi create demo/db --size 1M
run 0 snap create demo/db
run 0 vdi clone demo/db@1 demo/of-db
run 0 vdi list demo --columns name,parent -q
says out "demo/db@1"
grep -q "(deleted)" out && die "it is not deleted"
run 0 vdi delete demo/db --yes
for _ in without with; do
    run 0 vdi list demo --columns name,parent
    says out "demo/db@1 (deleted)"
    run 0 vdi info demo/of-db
    says out "demo/db@1 (deleted)"
    run 0 vdi info demo/of-db --json
    [[ $(json parent) == demo/db@1 && $(json parent_deleted) == true ]] || die "the JSON is another"
    "$PARALLAX" -q vdi create demo/db --size 1M 2>/dev/null
done
echo "all is well"
