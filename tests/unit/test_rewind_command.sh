#!/bin/bash
# parallax rewind, end to end, on a store in a file.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

run 0 store format demo --volume "$DIR/demo.plx" --size 1G
head -c 8M /dev/urandom >first.raw
head -c 8M /dev/urandom >second.raw
run 0 vdi import first.raw demo/web
run 0 snap create demo/web@first
run 0 vdi import second.raw demo/web --force
run 0 vdi export demo/web second.out
same second.raw second.out

step "words"
run 2 rewind demo/web
says err "--to is missing"
run 2 rewind demo --to first
run 2 rewind demo/web@first --to first
run 2 rewind demo/web --to ""
run 3 rewind demo/web --to nothing
says err "snap list"
run 3 rewind demo/web --to 99
run 3 rewind demo/web --to 2001-01-01T00:00:00Z
run 3 rewind demo/nothing --to first
run 3 rewind nothing/web --to first
run 0 rewind --help
says out "before-rewind-"
run 0 __complete
says out rewind
run 0 __complete rewind
says out "--to="
says out "--live"

step "a dry run changes nothing"
run 0 rewind demo/web --to first --dry-run --json
[[ $(json seq) == 1 && $(json changed_bytes) == 8388608 ]] || die "not 8 MiB to snapshot 1"
run 0 vdi export demo/web second.out --force
same second.raw second.out
run 0 snap list demo/web -q
[[ $(wc -l <out) == 1 ]] || die "it took a snapshot"

step "back, and forth again"
run 0 rewind demo/web --to first --json
before=$(json before)
[[ $before == before-rewind-20??????T??????.???Z && $(json before_seq) == 2 ]] || die "no label: $before"
[[ $(json seq) == 1 ]] || die "not to snapshot 1"
run 0 vdi export demo/web first.out
same first.raw first.out
run 0 vdi export "demo/web@$before" second.out --force
same second.raw second.out
run 0 snap list demo/web --labels
says out "$before"
run 0 rewind demo/web --to "$before"
says err "the way back: parallax rewind demo/web --to before-rewind-"
run 0 vdi export demo/web second.out --force
same second.raw second.out
run 0 diff "demo/web@$before..3" --summary --json
[[ $(json changed_bytes) == 8388608 ]] || die "the state before the second is not the first"
run 0 vdi clone "demo/web@$before" demo/copy
run 0 vdi export demo/copy copy.out
same second.raw copy.out

step "after a time, and what changed when"
sleep 0.1
run 0 rewind demo/web --to -50ms
run 0 snap create demo/web
run 0 find demo/web --block 5 --limit 1 --json
[[ $(json 0 certain) == true ]] || die "the rewind is no change"

step "a disk that grew keeps its size"
run 0 vdi resize demo/web --size 16M
run 0 rewind demo/web --to first
run 0 vdi info demo/web --json
[[ $(json size_bytes) == 16777216 ]] || die "it lost its size"
run 0 vdi export demo/web grown.out
same first.raw <(head -c 8M grown.out)
cmp -s -n 8388608 -i 8388608:0 grown.out /dev/zero || die "its end is not empty"

step "a signal ends a rewind while nothing has changed; later it is finished, and that is said"
run 0 vdi create demo/cut --size 16M
run 0 vdi bench demo/cut --rw randwrite --runtime 1 --size 8M --snapshot-every 10ms
run 0 snap create demo/cut@last
run 0 vdi export demo/cut last.raw
run 0 vdi export demo/cut@5 fifth.raw
run 0 snap list demo/cut --all -q
snapshots=$(wc -l <out)
cp demo.plx kept.plx
PARALLAX=$PARALLAX_STAGED PLX_STAGE_COUNT=$DIR/calls run 0 rewind demo/cut --to 5
calls=$(<calls)
ended=0 finished=0
for number in 2 15; do # few at first, where a disk is opened; then all
    for ((at = number; at <= calls; at += at < calls - 24 ? calls / 12 : 1)); do
        cp kept.plx demo.plx
        PLX_STAGE_SIGNAL=$number PLX_STAGE_AT=$at timeout -k 5 60 "$PARALLAX_STAGED" rewind demo/cut --to 5 >out 2>err </dev/null
        status=$?
        cp err said
        "$PARALLAX" snap list demo/cut --all -q >out 2>err || die "signal $number at $at: its snapshots cannot be listed"
        now=$(wc -l <out)
        if ((status == 128 + number)); then
            ((++ended))
            grep -q "^parallax: interrupted" said || die "signal $number at $at: $(<said)"
            [[ $now == "$snapshots" ]] || die "signal $number at $at: it ended, and took a snapshot: $(<said)"
            wanted=last.raw
        else
            ((status == 0)) || die "signal $number at $at: exit status $status: $(<said)"
            [[ $now == $((snapshots + 2)) ]] || die "signal $number at $at: it is rewound without its snapshots"
            ! grep -q "the signal came when the rewind was under way, so it was finished" said || ((++finished))
            wanted=fifth.raw
        fi
        run 0 vdi export demo/cut cut.raw --force
        same $wanted cut.raw
    done
done
echo "  $calls calls; $ended ended, $finished finished all the same"
((ended > 3)) || die "no signal has ended a rewind"
((finished > 1)) || die "no signal came while the rewind was under way"
cp kept.plx demo.plx
run 0 vdi delete demo/cut --yes

step "the registry knows, also from the store alone"
[[ $(registry "SELECT count(*) FROM events WHERE what = 'vdi rewind'") == 4 ]] || die "the rewinds are not among the events"
[[ $(registry "SELECT detail FROM events WHERE what = 'vdi rewind'") == "to snapshot 1; before: 2, before-rewind-"* ]] ||
    die "the events do not say where the rewinds went"
run 0 store forget demo
run 0 store rebuild-registry --volume "$DIR/demo.plx"
run 0 snap list demo/web --labels
says out "$before"
run 0 store check demo --data

step "all from before a rewind goes together, and what it went to with it"
run 0 vdi import first.raw demo/db
run 0 snap create demo/db@first
run 0 vdi import second.raw demo/db --force
run 0 rewind demo/db --to first
run 0 snap create demo/db
run 4 snap delete demo/db@1 --force
says err "goes with all others before that rewind"
grep -q "try again" err && die "waiting does not help"
run 0 snap delete demo/db@1..2 --force
run 0 snap list demo/db -q
[[ $(wc -l <out) == 2 ]] || die "what the rewind went to is still there" # behind the rewind, and by hand
run 0 gc demo
run 0 vdi export demo/db first.out --force
same first.raw first.out
run 0 store check demo --data

step "a second ago, after a rewind, is what the rewind went to"
run 0 vdi create demo/ago --size 2M
head -c 2M /dev/urandom >good.raw
head -c 2M /dev/urandom >bad.raw
run 0 vdi import good.raw demo/ago --force
run 0 snap create demo/ago@good
run 0 vdi import bad.raw demo/ago --force
run 0 snap create demo/ago
run 0 rewind demo/ago --to good
sleep 1.1
run 0 rewind demo/ago --to -1s
run 0 vdi export demo/ago ago.out
same good.raw ago.out
run 0 vdi clone demo/ago@-0s demo/clone
run 0 vdi export demo/clone ago.out --force
same good.raw ago.out

step "a disk that was rewound as often as its record can hold: what is advised helps, as it is printed"
run 0 vdi create demo/often --size 4M
head -c 1M /dev/urandom >often.raw
run 0 vdi import often.raw demo/often --force
run 0 snap create demo/often@start
for _ in {1..60}; do run 0 rewind demo/often --to start; done
run 1 rewind demo/often --to start
says err "demo/often was rewound 60 times, as often as its record can hold"
cp err advised
run 1 rewind demo/often --to start --dry-run
same err advised
run 0 snap delete demo/often@..5 --force # but what rewinds hold: a later one went to the same
run 0 snap delete demo/often@..60 --force
run 1 rewind demo/often --to start
mapfile -t commands < <(grep -o "'parallax [^']*'" advised | tr -d "'")
[[ ${#commands[@]} == 3 ]] || die "other commands are advised: ${commands[*]}"
for command in "${commands[@]}"; do
    # shellcheck disable=SC2086 # words
    run 0 ${command#parallax }
    [[ $command != *" clone "* ]] || run 0 vdi delete demo/NEW --yes
done
run 0 snap list demo/often -q --json
[[ $(json 0 seq) == 122 ]] || die "not all of its history is given up"
run 0 rewind demo/often --to 122
run 0 vdi export demo/often often.out
cmp -n 1M often.raw often.out || die "it is not what it was"
run 0 store check demo --data
echo "rewind: all is well"
