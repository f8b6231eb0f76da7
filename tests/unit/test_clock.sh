#!/bin/bash
# A wall clock that jumps, and what the parallax command does about it, end to end.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

: "${PLX_SHIFTCLOCK:?the library that shifts the clock}"
export SHIFTCLOCK="$DIR/shift" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
DAY=86400

# shifted SECONDS: from now on the wall clock is off by so many.
shifted() { echo "$1" >"$SHIFTCLOCK"; }
# times: snapshots that are there still have the times that they were written with.
times() {
    run 0 snap list demo/web --all --json
    python3 -c '
import json
rows, times = json.load(open("out")), json.load(open("times"))
kept = [row for row in rows if str(row["seq"]) in times]
assert kept and all(row["time"] == times[str(row["seq"])] for row in kept), rows' || die "a written time has changed"
}
# The machine has restarted.
rebooted() { cat /proc/sys/kernel/random/uuid >"$SHIFTCLOCK.boot"; }
# Snapshots of demo/web, in one number.
count() {
    run 0 snap list demo/web --all --json
    json_count
}
change() {
    head -c 300000 /dev/urandom >part
    run 0 vdi import part demo/web --force
}
doubt() {
    run 0 cdp status demo/web --json
    [[ $(json doubt) == "$1" ]] || die "the doubt is not $1"
}

# snapshots_beyond COUNT: waits until demo/manual has more snapshots than that; $newest is the newest one.
snapshots_beyond() {
    for _ in {1..600}; do
        run 0 snap list demo/manual --limit 1 --json
        newest=$(json 0 seq)
        ((newest <= $1)) || return 0
        kill -0 $rewriting 2>/dev/null || die "the process has ended: $(<bench.out)"
        sleep 0.1
    done
    die "there are $newest snapshots only"
}
# killed_in_doubt RIGHT WORDS...: a process has snapshots of demo/manual taken by WORDS, and is killed after the clock has jumped:
# RIGHT 1: when it is right again and further ones are taken; 0: before. The clock is right then.
killed_in_doubt() {
    local right=$1 rewriting
    shift
    "$PARALLAX" vdi bench demo/manual --rw randwrite --iodepth 1 --runtime 100 --size 1M --force "$@" >bench.out 2>&1 &
    rewriting=$!
    run 0 snap list demo/manual --limit 1 --json
    snapshots_beyond $(($(json 0 seq) + 20))
    shifted $((10 * DAY))
    sleep 0.2
    snapshots_beyond $((newest + 20))
    if ((right)); then
        shifted 0
        sleep 0.2
        snapshots_beyond $((newest + 20))
    fi
    kill -KILL $rewriting
    wait $rewriting 2>/dev/null
    shifted 0
}
# remembered AFTER RIGHT: of the snapshots behind AFTER, just those that were taken in doubt are known as such; the file
# middle has the time of one of them.
remembered() {
    run 0 snap create demo/manual # this recovers
    run 0 cdp status demo/manual --json
    [[ $(json doubt) == none ]] || die "the clock is right"
    run 0 snap list demo/manual --all --json
    python3 - out "$1" "$2" <<'PY' >middle || die "nobody knows which were taken in doubt"
import json, sys
rows = json.load(open(sys.argv[1]))
after, right = int(sys.argv[2]), int(sys.argv[3])
doubt = {b["seq"]: b for a, b in zip(rows, rows[1:]) if b["seq"] > after and b["time_ns"] == a["time_ns"] + 1}
assert len(doubt) >= 15, len(doubt)
new = [row for row in rows if row["seq"] > after]
lost = [seq for seq in doubt if not doubt[seq]["undated"]]
assert not lost, lost
more = [row["seq"] for row in new if row["undated"] and row["seq"] not in doubt]
assert len(more) <= 5, more # one more where the clock has jumped back, and what another look saw
assert not new[0]["undated"] and not rows[-1]["undated"]
assert not right or not any(row["undated"] for row in rows[-10:])
print(doubt[sorted(doubt)[len(doubt) // 2]]["time"])
PY
}
# may_not_go: one of them lets nothing go by what is written in it.
may_not_go() {
    run 4 snap delete "demo/manual@..$(<middle)" --force
    says err "was taken while the wall clock was in doubt"
}

cat >shifting <<SH
#!/bin/sh
LD_PRELOAD='$PLX_SHIFTCLOCK' exec '$PARALLAX' "\$@"
SH
chmod +x shifting
PARALLAX="$DIR/shifting"
shifted 0
run 0 store format demo --volume "$DIR/demo.plx" --size 1G
run 0 vdi create demo/web --size 16M
run 0 vdi create demo/other --size 16M
run 0 cdp on demo/web --every 1d --keep all:1h
for _ in 1 2 3; do
    change
    run 0 snap create demo/web
done
before=$(count)
newest=$(json $((before - 1)) seq)

step "a rewind to the future"
run 3 rewind demo/web --to 2199-01-01T00:00:00Z
says err "lies in the future; its newest snapshot is $newest"
run 3 rewind demo/web --to 2199-01-01T00:00:00Z --dry-run
run 3 vdi clone demo/web@2199-01-01T00:00:00Z demo/copy
run 3 snap delete demo/web@..2199-01-01T00:00:00Z
[[ $(count) == "$before" ]] || die "something has changed"
run 0 rewind demo/web --to "$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" --dry-run # now is no future

step "a clock that jumps ahead lets nothing go"
run 0 cdp resume demo/web
says err "not in doubt"
shifted $((10 * DAY))
run 4 cdp apply demo/web
says err "it is 10d 0h ahead of where it was"
run 4 cdp apply demo/web --dry-run
says err "it is 10d 0h ahead of where it was"
says err "cdp resume"
[[ $(count) == "$before" ]] || die "it has let snapshots go"
doubt stepped
(($(json clock_off_ns) / 1000000000 == 10 * DAY)) || (($(json clock_off_ns) / 1000000000 == 10 * DAY - 1)) ||
    die "off by something else"
run 0 cdp status demo
says out "has jumped"
run 0 snap list demo/web
says err "has jumped"

step "nor does a range of times that are relative to it" # DELETION_CLOCK-1
for which in @..-1d @-30d.. @-30d..-1d @1..-1d "@-30d..$newest" @-1d; do
    for option in --force --dry-run --quiet; do
        run 4 snap delete "demo/web$which" "$option"
        says err "it is 10d 0h ahead of where it was"
        says err "cdp resume demo/web"
        says err "numbers or labels"
    done
done
run 4 snap delete demo/web@1 demo/web@..-1d # none of it
run 4 du demo/web@..-1d
[[ $(count) == "$before" ]] || die "a range has let snapshots go"
run 0 snap delete demo/web@..2 --dry-run --json # DELETION_CLOCK-3
(($(json snapshots) == 2)) || die "numbers are refused"
run 0 snap list demo/web --all --json
second=$(json 1 time)
run 0 snap delete "demo/web@..$second" --dry-run --json # no clock is asked for that time
(($(json snapshots) == 2)) || die "a time is refused that everybody is certain of"

step "what can be undone is done, with a warning" # CMD_CLOCK-3
run 0 vdi clone demo/web@-1d demo/copy --quiet
says err "demo/web@-1d means snapshot $newest by a clock in doubt"
run 0 vdi delete demo/copy --yes
run 0 rewind demo/web --to -1d --dry-run
says err "it is 10d 0h ahead of where it was"
run 0 rewind demo/web --to "$second" --dry-run
grep -q doubt err && die "a warning of what is certain"

step "snapshots in doubt: a nanosecond apart"
change
run 0 snap create demo/web
change
run 0 snap create demo/web
run 0 snap list demo/web --all --json
python3 - out "$newest" <<'PY' || die "their times are not those"
import json, sys
rows = json.load(open(sys.argv[1]))
newest = int(sys.argv[2])
assert len(rows) >= newest + 2
for a, b in zip(rows, rows[1:]):
    assert a["time_ns"] < b["time_ns"], b
    assert b["seq"] <= newest or a["time_ns"] + 1 == b["time_ns"], b
json.dump({row["seq"]: row["time"] for row in rows}, open("times", "w"))
for row in rows:
    assert row["undated"] == (row["seq"] > newest) and row["future"] is False, row
PY
before=$(count)
undated=$(json -1 time) # DELETION_CLOCK-2
for which in "@..$undated" "@$(json -2 time).." "@1..$(date -u +%Y-%m-%dT%H:%M:%SZ)"; do
    run 4 snap delete "demo/web$which" --force
    says err "was taken while the wall clock was in doubt"
done
run 0 snap list demo/web --all --json
run 4 snap delete "demo/web@$(json -2 time)" --force
says err "was taken while the wall clock was in doubt"
run 0 rewind demo/web --to "$undated" --dry-run
says err "whose time is not certain"
run 0 snap delete "demo/web@..$((newest + 1))" --dry-run
[[ $(count) == "$before" ]] || die "a time in doubt has let snapshots go"

step "resume: what it would let go"
run 0 cdp resume demo/web --dry-run --json
[[ $(json 0 doubt) == stepped && $(json 0 dry_run) == true ]] || die "not that doubt"
(($(json 0 snapshots) > 0)) || die "it would let nothing go"
run 0 cdp resume demo --dry-run
says err "if you say that the clock is right"
grep -q other out && die "another disk is in doubt"
doubt stepped

step "right again"
shifted 0
doubt none
[[ $(json undated 0 first_seq) == $((newest + 1)) ]] || die "nobody knows which have no dates"
run 0 cdp apply demo/web
[[ $(count) == "$before" ]] || die "some are gone"
run 0 snap list demo/web
says err "later than their times say"
times
run 4 snap delete "demo/web@..$undated" --force # they may be later than that,
says err "was taken while the wall clock was in doubt"
run 0 snap delete "demo/web@..$(date -u +%Y-%m-%dT%H:%M:%S.%NZ)" --dry-run --json # but not later than now
(($(json snapshots) == before - 1)) || die "some were not taken yet"
run 0 snap delete demo/web@..-1h --dry-run
says err "nothing to do"

step "a clock that jumps back"
shifted $((-2 * 3600))
run 4 cdp apply demo/web
says err "behind of where it was"
doubt stepped
shifted 0
doubt none

step "a machine that starts anew"
run 0 cdp apply demo/web
rebooted
doubt none
shifted $((-2 * 3600))
run 4 cdp apply demo/web
says err "behind the time that was last seen here"
doubt behind
shifted $((100 * DAY))
run 4 cdp apply demo/web
says err "nobody has seen the last 100d 0h pass"
doubt gap
[[ $(count) == "$before" ]] || die "some are gone"
shifted 0
doubt none

step "without room the oldest go by number, whatever the clock says"
run 0 store format full --volume "$DIR/full.plx" --size 64M
run 0 vdi create full/a --size 40M
run 0 cdp on full/a --on-full keep
run 6 vdi bench full/a --rw randwrite --runtime 20 --size 30M
run 0 cdp on full/a --on-full shorten
run 0 snap list full/a --all --json
oldest=$(json 0 seq)
shifted $((10 * DAY))
"$PARALLAX" cdp apply full/a --json >out 2>err
[[ $? == 4 ]] || die "the doubt is not told"
(($(json early) > 0 && $(json snapshots) == $(json early))) || die "something went by time, or nothing by number"
run 0 snap list full/a --all --json
(($(json 0 seq) > oldest)) || die "others than the oldest went"
shifted 0
run 0 store forget full

step "resume: the clock is right"
shifted $((10 * DAY))
run 0 cdp resume demo/web
says err "you say that the clock is right"
doubt none
run 0 snap delete demo/web@..-1d --dry-run --json
(($(json snapshots) > 0)) || die "the word is not taken for a range of times"
run 0 cdp apply demo/web --json
(($(json snapshots) > 0)) || die "nothing has gone by time"
after=$(count)
((after < before)) || die "all are still there"
run 0 cdp apply demo/web
doubt none

step "snapshots in the future"
change
run 0 snap create demo/web
shifted 0
doubt stepped
run 0 cdp resume demo/web
doubt none # the operator's word is on all of it
run 0 snap list demo/web --all --json
[[ $(json -1 future) == true ]] || die "none lies in the future"
last=$(json -1 time)
run 0 rewind demo/web --to "$last" --dry-run # it is there
run 3 rewind demo/web --to "$(date -u -d "+20 days" +%Y-%m-%dT%H:%M:%SZ)"
says err "lies in the future"
run 0 snap create demo/web
run 4 snap delete "demo/web@$last.." --force # it was taken before that time
says err "was taken while the wall clock was in doubt"
run 0 snap delete demo/web@..-1d --dry-run

step "a disk that is not protected has a witness, too"
run 0 vdi create demo/manual --size 16M
for _ in 1 2 3; do
    run 0 vdi bench demo/manual --rw randwrite --runtime 1 --size 1M --force
    run 0 snap create demo/manual
done
shifted $((10 * DAY))
run 4 snap delete demo/manual@..-1d
says err "it is 10d 0h ahead of where it was"
run 0 store rebuild-registry demo # REBUILD-5
run 4 snap delete demo/manual@..-1d
says err "it is 10d 0h ahead of where it was"
run 4 cdp apply demo/web
shifted 0
run 0 snap delete demo/manual@..-1d
says err "nothing to do"

step "a process that is killed forgets no doubt" # WITNESS-9
for right in 1 0; do
    run 0 snap list demo/manual --limit 1 --json
    last=$(json 0 seq)
    killed_in_doubt $right --snapshot-every 10ms
    remembered "$last" $right
    may_not_go
done
run 0 cdp on demo/manual --every 10ms
run 0 snap list demo/manual --limit 1 --json
last=$(json 0 seq)
killed_in_doubt 1
remembered "$last" 1
may_not_go
run 0 cdp off demo/manual

step "snapshots in the future, and nothing else to go by"
run 0 vdi create demo/late --size 16M
shifted $((5 * DAY))
run 0 snap create demo/late
shifted 0
registry_edit demo.plx "DELETE FROM policies WHERE key = 'clock' AND vdi = (SELECT id FROM vdis WHERE name = 'late')"
run 0 cdp on demo/late --every 1d --keep all:1h
run 4 cdp apply demo/late
says err "the newest snapshot lies"
run 0 cdp status demo/late --json
[[ $(json doubt) == future ]] || die "it is not in doubt"
run 3 rewind demo/late --to "$(date -u -d "+4 days" +%Y-%m-%dT%H:%M:%SZ)"
says err "at or before"
run 0 cdp resume demo/late
run 0 cdp apply demo/late
run 0 cdp status demo/late --json
[[ $(json doubt) == none ]] || die "it is still in doubt"
run 0 store check demo --data
echo "all is well"
