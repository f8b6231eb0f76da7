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
run 3 cdp status nothing
run 3 cdp status demo/nothing

step "a load, and its instants"
run 0 vdi bench demo/web --rw randwrite --bs 4k --iodepth 1 --runtime 2 --size 32M
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
run 1 cdp timeline demo/web --svg "$DIR/nowhere/web.svg"

step "each write, each batch"
run 0 vdi bench demo/copy --rw randwrite --iodepth 4 --runtime 1 --size 16M --snapshot-every write --json
[[ $(json snapshots) -ge $(json write ios) ]] || die "fewer instants than writes"
run 0 vdi bench demo/copy --rw randwrite --iodepth 4 --runtime 1 --size 16M --snapshot-every batch --json
(($(json snapshots) > 1)) || die "no instants of batches"
run 2 vdi bench demo/copy --snapshot-every never
run 0 vdi info demo/copy --json
[[ $(json protection) == off ]] || die "the measure left protection behind"
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
if command -v sqlite3 >/dev/null; then
    sqlite3 state/registry.db "UPDATE policies SET value = '5s' WHERE value = '1s'" || die "no such policy"
    run 0 store check demo
    says out "protection is 1s"
fi
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
echo "all is well"
