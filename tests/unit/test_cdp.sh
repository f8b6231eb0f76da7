#!/bin/bash
# Continuous protection by the parallax command, end to end, on a store in a file.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

run 0 store format demo --volume "$DIR/demo.plx" --size 8G # sparse: loads may be fast
run 0 vdi create demo/web --size 64M
run 0 vdi create demo/idle --size 64M

step "on: words"
run 2 cdp on demo/web --every 10us
says err "from 1ms to 1d"
run 2 cdp on demo/web --every off
run 2 cdp on demo/web --every 2d
run 2 cdp on demo/web --every 10ms --every-write
run 2 cdp on demo/web --keep 1s
says err "all:1h,1s:1d"
run 2 cdp on demo/web --keep 1s:1d,1m:1h
says err "coarser and kept longer"
run 2 cdp on demo/web --keep all:1h,all:2h
run 2 cdp on demo/web --keep 1ms:1s,2ms:2s,3ms:3s,4ms:4s,5ms:5s,6ms:6s,7ms:7s,8ms:8s,9ms:9s
run 2 cdp on demo/web@first
run 3 cdp on demo/nothing
run 3 cdp on nothing/web
run 0 vdi info demo/web --json
[[ $(json protection) == off ]] || die "it is on"
run 3 cdp timeline demo/web
says err "cdp on"

step "on, status"
run 0 cdp on demo/web
says err "every 10ms; kept: all:1h,1s:1d,1m:7d,1h:30d"
run 0 cdp status demo/web --json
[[ $(json protection) == "every 10ms" && $(json interval_ns) == 10000000 ]] || die "not every 10 ms"
[[ $(json newest_seq) == 1 && $(json oldest_seq) == 1 ]] || die "turning it on is no instant"
[[ $(json newest) == 20??-??-??T??:??:??.*+0[12]:00 ]] || die "no RFC 3339 time of this zone"
run 0 cdp status
says out "demo/web"
grep -q demo/idle out && die "what is off is listed"
run 0 cdp status demo --json
[[ $(json 0 name) == demo/web ]] || die "the store's list is wrong"
run 0 vdi create demo/unseen --size 16M
run 0 cdp status demo/unseen --json
for key in newest newest_seq oldest oldest_seq window_ns snapshots_taken snapshots_skipped; do
    [[ $(json $key) == null ]] || die "$key of a disk without snapshots is $(json $key)"
done
run 0 vdi delete demo/unseen --yes
run 3 cdp status nothing
run 3 cdp status demo/nothing

step "on: what is left out stays as it was"
run 0 cdp on demo/web --every-write --keep all:2h,1s:2d --on-full keep
run 0 cdp on demo/web --keep all:3h
says err "demo/web: a snapshot every write; kept: all:3h"
run 0 cdp on demo/web --on-full shorten
says err "demo/web: a snapshot every write; kept: all:3h"
run 0 cdp on demo/web --every 20ms
run 0 cdp on demo/web
run 0 cdp status demo/web --json
[[ $(json protection) == "every 20ms" && $(json retention) == all:3h && $(json on_full) == shorten ]] ||
    die "what was left out has changed"
run 0 cdp on --help
says out "What you leave out stays as it is"
run 0 cdp off demo/web
run 0 cdp on demo/web --keep all:1h,1s:1d,1m:7d,1h:30d
says err "demo/web: a snapshot every 10ms; kept: all:1h,1s:1d,1m:7d,1h:30d"

step "a load, and its instants"
run 0 vdi bench demo/web --rw randwrite --force --bs 4k --iodepth 1 --runtime 2 --size 32M
run 0 cdp status demo/web --json
taken=$(json newest_seq)
((taken >= 10 && taken <= 250)) || die "$taken snapshots in 2 seconds"
run 0 vdi export demo/web@1 first
cmp -n 1M first /dev/zero || die "the first instant is not empty"
run 0 vdi export demo/web@-1s back
run 3 vdi export demo/web@-1h back --force
says err "at or before -1h"
run 0 snap label demo/web@-1s early
run 0 snap list demo/web --labels --json
(($(json 0 seq) > 1 && $(json 0 seq) <= taken)) || die "one second ago is elsewhere"
run 0 vdi clone demo/web@-500ms demo/copy
run 0 vdi info demo/copy --json
[[ $(json protection) == off ]] || die "a clone is protected"

step "nothing is taken while nothing changes"
for _ in 1 2 3; do run 0 snap label "demo/web@$taken" "mark$RANDOM"; done
run 0 cdp status demo/web --json
[[ $(json newest_seq) == "$taken" ]] || die "opening it took a snapshot"

step "timeline"
run 0 cdp timeline demo/web
says out "written"
says out "^early"
run 0 cdp timeline demo/web --json
[[ $(json snapshots) == "$taken" && $(json columns 0 first_seq) == 1 ]] || die "the timeline has lost some"
(($(json new_bytes) >= taken / 2 << 12)) || die "the timeline has lost writes"
run 0 cdp timeline demo/web --last 1s --json
(($(json snapshots) < taken)) || die "the last second is not a part"
run 2 cdp timeline demo/web --last soon
run 0 cdp timeline demo/web --svg web.svg
python3 -c 'import sys, xml.dom.minidom; xml.dom.minidom.parse("web.svg")' || die "the drawing is no XML"
grep -E '<title>1 (snapshots|blocks)' web.svg && die "one is not many"
run 3 cdp timeline demo/web --svg "$DIR/nowhere/web.svg"

step "deleting snapshots: words"
run 0 vdi create demo/hist --size 16M
for i in 1 2 3 4 5 6 7 8; do
    head -c 300000 /dev/urandom >"part$i"
    run 0 vdi import "part$i" demo/hist --force
    run 0 snap create demo/hist
done
run 0 snap label demo/hist@4 four
run 2 snap delete demo/hist
run 2 snap delete demo/hist@1 demo/web@1
says err "one virtual disk at a time"
run 3 snap delete demo/hist@99
run 3 snap delete demo/nothing@1
run 2 snap delete demo/hist@3..2
says err "the range ends before it begins"
run 4 snap delete demo/hist@8
says err "newest snapshot, which always stays"
run 4 snap delete demo/hist@2..5
says err "the label four at snapshot 4"
run 4 snap delete demo/hist@4
says err "'parallax snap delete demo/hist@four'"
run 0 snap label demo/hist@4 quattro
for one in four quattro; do
    run 4 snap delete demo/hist@$one
    says err "'parallax snap delete demo/hist@four demo/hist@quattro'"
done
run 0 snap delete demo/hist@four demo/hist@quattro --dry-run --json
[[ $(json labels) == '["four", "quattro"]' ]] || die "not with both labels"
run 0 snap unlabel demo/hist@quattro

step "deleting snapshots: dry runs"
run 0 snap delete demo/hist@1..2 --dry-run --json
[[ $(json snapshots) == 2 && $(json dry_run) == true ]] || die "it would not delete two"
run 0 snap delete demo/hist@1..2 -n
says err "2 snapshots would go"
run 0 snap list demo/hist --json
[[ $(json 0 seq) == 1 && $(json 7 seq) == 8 ]] || die "a dry run has deleted something"

typed "" snap delete demo/hist@1..2 -n || die "no dry run on a terminal"
says out "looking at snapshots: 0 %"

step "deleting snapshots: a range that begins with a time begins with the first that is not older"
run 0 snap list demo/hist --json
between=$(python3 -c '
import json
times = [row["time_ns"] for row in json.load(open("out"))]
print((times[3] + times[4]) // 2)')
for since in -1y 2020-01-01T00:00:00Z; do
    run 0 snap delete "demo/hist@$since.." --force --dry-run --json
    [[ $(json snapshots) == 7 ]] || die "$since.. is not from the oldest on"
done
run 0 snap delete "demo/hist@$(date -u -d "@${between:0:-9}.${between: -9}" +%FT%T.%NZ).." --dry-run --json
[[ $(json snapshots) == 3 ]] || die "one that is older would go"

step "a time says which snapshot it chose"
since=-$((($(date +%s%N) - between) / 1000000))ms
for command in "vdi clone demo/hist@$since demo/chosen" "vdi export demo/hist@$since chosen.raw" "diff demo/hist@$since.." \
    "rewind demo/hist --to $since --dry-run" "vdi export-diff demo/hist@$since chosen.diff"; do
    # shellcheck disable=SC2086 # words
    run 0 $command
    grep -qE "^demo/hist@$since was snapshot [4-8], of 2" err || die "$command does not say which snapshot it chose"
    singular
done
run 0 vdi export "demo/hist@$since" chosen.raw --force --json
[[ $(json name) =~ ^demo/hist@[4-8]$ ]] || die "what was exported is not told"
run 0 vdi delete demo/chosen --yes

step "deleting snapshots: what is read stays"
mkfifo pipe
"$PARALLAX" vdi export demo/hist@1 - >pipe 2>/dev/null &
exporting=$!
exec 9<pipe
for _ in $(seq 100); do
    run 0 cdp status demo/hist --json
    [[ $(json holds) == "[]" ]] || break
    sleep 0.1
done
[[ $(json holds 0 seq) == 1 && $(json holds 0 pid) == "$exporting" ]] || die "nobody reads"
run 0 cdp status demo/hist
says out "1 by a parallax command (pid $exporting)"
run 4 snap delete demo/hist@1 --wait 0
says err "it is being read by a parallax command (pid $exporting)"
kill -9 "$exporting"
wait "$exporting" 2>/dev/null
exec 9<&-

step "deleting snapshots"
run 0 snap delete demo/hist@1..2 --json # whoever read is dead, and holds nothing
[[ $(json snapshots) == 2 && $(json freed_bytes) -gt 0 ]] || die "two did not go"
run 3 vdi export demo/hist@2 back --force
run 0 vdi clone demo/hist@3 demo/third
run 4 snap delete demo/hist@3
says err "demo/third was cloned from it"
run 0 vdi delete demo/third --yes
run 0 snap delete demo/hist@3 demo/hist@four
says err "2 snapshots gone"
run 3 vdi export demo/hist@four back --force
run 0 snap delete demo/hist@6 # in the middle
run 3 vdi export demo/hist@6 back --force
for i in 5 7 8; do
    run 0 vdi export demo/hist@$i back --force
    cmp -n 300000 "part$i" back || die "snapshot $i has changed"
done
run 0 snap list demo/hist --json
[[ $(json 0 seq) == 5 && $(json 1 seq) == 7 && $(json 2 seq) == 8 ]] || die "not those are left"
time=$(json 0 time)
run 0 snap delete "demo/hist@..$time"
says err "1 snapshot gone"
run 0 snap list demo/hist --json
[[ $(json 0 seq) == 7 ]] || die "not the oldest went"
run 0 snap delete demo/hist@.. --quiet
run 0 snap list demo/hist --json
[[ $(json 0 seq) == 8 ]] || die "the newest went"
run 0 vdi export demo/hist@8 back --force
cmp -n 300000 part8 back || die "what is left has changed"

step "applying a policy"
run 4 cdp apply demo/hist
says err "keeps all its snapshots, even if the store is full; 'parallax snap delete demo/hist@..-1d'"
run 0 cdp on demo/hist --every 1d --keep all:2s --on-full keep
run 2 cdp on demo/hist --on-full explode
for _ in {1..50}; do # a fast machine has not come that far
    run 0 cdp status demo/hist --json
    (($(json window_ns) <= 2000000000)) || break
    sleep 0.1
done
[[ $(json on_full) == keep && $(json window_asked_ns) == 2000000000 ]] || die "not asked for"
[[ $(json window_ns) -gt 2000000000 && $(json window) == *", asked for 2 s" ]] || die "$(json window): more than was asked for"
run 0 cdp on demo/hist --every 1d --keep all:2s --on-full shorten
run 0 cdp status demo/hist --json
[[ $(json on_full) == shorten ]] || die "not the default any more"
for i in 1 2 3; do
    run 0 vdi import "part$i" demo/hist --force
    run 0 snap create demo/hist
done
run 0 snap create demo/hist --json
newest=$(json seq)
sleep 5
run 0 cdp apply demo/hist --dry-run --json
would=$(json snapshots)
[[ $(json dry_run) == true ]] || die "that is no dry run"
run 0 cdp apply demo/hist --dry-run
says err "$would snapshots would go, "
run 0 cdp apply demo/hist --json
[[ $(json snapshots) == "$would" ]] || die "$would were to go"
(($(json snapshots) >= 3)) || die "what is older than two seconds is still there"
run 0 snap list demo/hist --all --json
[[ $(json 0 seq) == "$newest" ]] || die "more than the newest is there"

step "a full store: without a handler 'cdp apply' lets the oldest go, as the message says"
run 0 store format full --volume "$DIR/full.plx" --size 64M
run 0 vdi create full/a --size 40M
run 0 cdp on full/a --on-full keep
run 0 store rebuild-registry full # REBUILD-5
run 6 vdi bench full/a --rw randwrite --runtime 20 --size 30M
says err "'parallax cdp apply' lets them go"
run 0 snap label full/a@2 held
run 0 cdp apply full/a --json
[[ $(json snapshots) == 0 && $(json early) == 0 ]] || die "with --on-full keep something went"
run 0 cdp on full/a --on-full shorten
run 0 cdp off full/a
run 0 cdp apply full/a --json
[[ $(json snapshots) == 0 ]] || die "of a disk that is not protected something went"
run 0 cdp on full/a
run 0 cdp status full/a --json
[[ $(json warning) == null ]] || die "it warns of what has not happened"
run 0 cdp apply full/a --dry-run
says err "0 snapshots would go"
says err "the store is nearly full: "
run 0 cdp apply full/a
says err "the store was nearly full: "
run 0 cdp status full/a --json
[[ $(json warning) == "window shortened at "* ]] || die "the status does not say so"
warning=$(json warning)
run 0 store rebuild-registry full # REBUILD-5
run 0 cdp status full/a --json
[[ $(json warning) == "$warning" ]] || die "a rebuild forgets that the window was shortened"
run 0 vdi export full/a@held back --force
run 0 store info full --json
(($(json available_bytes) >= 4 << 20)) || die "there is no room"
run 0 snap list full/a --json --all
left=$(grep -o '"seq"' out | wc -l)
((left > 3)) || die "more went than there had to"
run 0 cdp apply full/a --json
[[ $(json snapshots) == 0 ]] || die "with room something went"
head -c 1M /dev/urandom >small
run 0 vdi import small full/a --force
run 0 store check full --data
run 0 store forget full

step "deleting snapshots: what a rewind went to stays"
head -c 300000 /dev/urandom >part9
run 0 vdi import part9 demo/hist --force
run 0 snap create demo/hist@nine
run 0 rewind demo/hist --to "$newest"
run 4 snap delete "demo/hist@$newest"
says err "by a rewind"
run 0 snap label "demo/hist@$newest" eight
run 4 snap delete demo/hist@eight
run 0 vdi export demo/hist@eight back --force # it has kept its label
run 0 snap unlabel demo/hist@eight
run 0 snap delete demo/hist@nine
run 0 store check demo --data
run 0 vdi delete demo/hist --yes

step "deleting snapshots: what stays keeps its labels, and a dry run says what the real one does"
run 0 vdi create demo/kin --size 16M
for i in 1 2 3 4 5; do
    run 0 vdi import "part$i" demo/kin --force
    run 0 snap create demo/kin
done
run 0 snap label demo/kin@2 origin
run 0 snap label demo/kin@2 again
run 0 snap label demo/kin@3 free
run 0 vdi clone demo/kin@origin demo/kid
# both WHICH: a dry run, and then the real one; they agree, and out has what they say.
both() {
    run 0 snap delete "$@" --force --dry-run --json
    cp out told
    run 0 snap delete "$@" --force --json
    python3 -c '
import json
told, done = json.load(open("told")), json.load(open("out"))
keys = ["snapshots", "labels", "stays", "data_bytes"] + ["freed_bytes"] * told["exact"]
assert [told[k] for k in keys] == [done[k] for k in keys], (told, done)' || die "the dry run said something else"
}
run 0 snap delete demo/kin@1..4 --force -n
says err "3 snapshots would go"
says err "demo/kin@2 stays, with its label again and others: demo/kid was cloned from it"
both demo/kin@1..4
[[ $(json snapshots) == 3 && $(json labels) == '["free"]' ]] || die "not these went"
[[ $(json stays 0 seq) == 2 && $(json stays 0 labels) == '["again", "origin"]' ]] || die "what stays is not told"
run 0 vdi export demo/kin@origin back --force
cmp -n 300000 part2 back || die "what stays is not what it was"
run 3 vdi export demo/kin@free back --force
run 0 snap list demo/kin --labels --json
[[ $(json 0 labels) == '["again", "origin"]' ]] || die "a label is lost"
grep -q free out && die "a label is left"
for dry in "" -n; do # nothing goes, and something stands in the way: as it is for a single one
    # shellcheck disable=SC2086 # words
    run 4 snap delete demo/kin@1..4 --force $dry
    says err "demo/kin@1..4: nothing can be deleted: snapshot 2 is needed: demo/kid was cloned from it; it can go when that is deleted"
done
both demo/kin@3..4 # where nothing is left, nothing stands in the way
[[ $(json snapshots) == 0 && $(json labels) == "[]" && $(json stays) == "[]" ]] || die "there was nothing left to go"
run 4 snap delete demo/kin@origin --force
says err "demo/kin@origin stays: demo/kid was cloned from it; it can go when that is deleted"
grep -q "try again" err && die "waiting does not help"
run 4 snap delete demo/kin@origin --force -n
run 0 vdi delete demo/kid --yes
both demo/kin@1..4
[[ $(json snapshots) == 1 && $(json labels) == '["again", "origin"]' ]] || die "nothing keeps it any more"

step "deleting snapshots: ranges that overlap count once, and nothing goes beside what is refused"
for i in 6 7 8 1 2; do
    run 0 vdi import "part$i" demo/kin --force
    run 0 snap create demo/kin
done
both demo/kin@5..7 demo/kin@6..8
[[ $(json snapshots) == 4 ]] || die "some were counted twice"
run 0 snap list demo/kin --json
[[ $(json 0 seq) == 9 ]] || die "not these are left"
run 0 rewind demo/kin --to 9
run 0 vdi import part3 demo/kin --force
run 0 snap create demo/kin
run 0 snap create demo/kin --json
newest=$(json seq)
run 4 snap delete demo/kin@10 demo/kin@9 --force
says err "demo/kin@9 stays"
run 0 snap list demo/kin --json
[[ $(json 0 seq) == 9 && $(json 1 seq) == 10 ]] || die "one went beside the one that was refused"

step "deleting snapshots: before a rewind, told by a dry run"
run 0 snap list demo/kin --json --all
run 0 snap delete "demo/kin@10..$newest" --force -n --json
(($(json snapshots) <= newest - 10)) || die "more than there are"
both demo/kin@..
[[ $(json snapshots) -ge 2 && $(json stays 0 seq) == "$newest" ]] || die "all but the newest go"
run 0 snap list demo/kin --all --json
[[ $(json 0 seq) == "$newest" ]] || die "more than the newest is there"
run 0 store check demo --data
run 0 vdi delete demo/kin --yes

step "each write, each batch"
run 0 vdi bench demo/copy --rw randwrite --force --iodepth 4 --runtime 1 --size 16M --snapshot-every write --json
[[ $(json snapshots) -ge $(json write ios) ]] || die "fewer instants than writes"
run 0 vdi bench demo/copy --rw randwrite --force --iodepth 4 --runtime 1 --size 16M --snapshot-every batch --json
(($(json snapshots) > 1)) || die "no instants of batches"
run 2 vdi bench demo/copy --snapshot-every never
run 0 vdi info demo/copy --json
[[ $(json protection) == off ]] || die "the measure left protection behind"
"$PARALLAX" vdi bench demo/copy --rw randwrite --force --runtime 60 --size 16M --snapshot-every 10ms >out 2>err &
measuring=$!
for _ in {1..100}; do
    run 0 snap list demo/copy --json
    [[ $(json -1 seq) -le $((newest + 20)) ]] || break
    sleep 0.1
done
run 0 store check demo
grep "protection is" out && die "the check takes what is only tried for a difference"
kill -9 "$measuring"
wait "$measuring" 2>/dev/null
run 0 vdi info demo/copy --json
[[ $(json protection) == off ]] || die "a measure that was killed left protection behind"
run 0 snap create demo/copy
run 0 vdi info demo/copy --json
[[ $(json protection) == off ]] || die "the recovery took what was only tried"
run 0 cdp on demo/copy --every-batch --keep all
run 0 cdp on demo/copy --every-write
run 0 cdp status demo/copy --json
[[ $(json protection) == "every write" && $(json retention) == all ]] || die "not each write, or not all kept"
run 0 cdp on demo/web --every 1s
run 0 vdi info demo/web
says out "every 1s"
says out "all:1h,1s:1d"

step "the registry is the copy, the store the truth"
run 0 store check demo
grep -q protection out && die "they differ"
registry_edit demo.plx "UPDATE policies SET value = '5s' WHERE value = '1s'"
run 0 store check demo
says out "protection is 1s"
rm -rf state
run 0 store rebuild-registry --volume "$DIR/demo.plx"
run 0 store check demo --data
grep -q protection out && die "the registry was rebuilt without it"
run 0 cdp status demo --json
[[ $(json 0 protection) == "every write" && $(json 1 protection) == "every 1s" ]] || die "protection was lost"

step "off"
run 0 cdp off demo/web
run 0 cdp off demo/web
run 0 cdp off demo/copy --json
[[ $(json protection) == off ]] || die "it is still on"
run 0 cdp status
[[ $(wc -l <out) -le 1 ]] || die "something is still protected"
run 0 vdi export demo/web@early back --force
run 0 store check demo --data --json
[[ $(json errors) == 0 ]] || die "the check found something"
step "no snapshot goes before its time while garbage could make the room"
run 0 store format crowded --volume "$DIR/crowded" --size 120M --extent-size 1M
run 0 vdi create crowded/c --size 16M
run 0 cdp on crowded/c --every 10ms
head -c 8M /dev/urandom >part
for _ in 1 2 3; do run 0 vdi import part crowded/c --force; done
run 0 snap list crowded/c --json
cp out before
head -c 150M /dev/urandom | "$PARALLAX" -q vdi import - crowded/x --size 150M 2>err && die "it cannot fit"
says err "'parallax gc crowded' frees what it took"
for words in "" "--dry-run"; do
    # shellcheck disable=SC2086 # words
    run 0 cdp apply crowded/c $words
    says err "'parallax gc crowded' first; no snapshot goes before its time until then"
done
run 0 snap list crowded/c --json
same out before
run 0 gc crowded
run 0 cdp apply crowded/c
run 0 snap list crowded/c --json
same out before

echo "all is well"
