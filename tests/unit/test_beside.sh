#!/bin/bash
# Commands beside each other on one store and one disk: who is in the way is waited for, nobody fails for having
# come second, and nothing of what another has is touched.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

WAIT=(--wait 60) # slow machines, sanitizers
mkdir ran
count=0

# beside WORDS...: the command, in the background. What it did is in ran/NUMBER.{words,out,err}.
beside() {
    local number=$((++count))
    echo "$*" >ran/$number.words
    {
        timeout -k 5 120 "$PARALLAX" "$@" "${WAIT[@]}" >ran/$number.out 2>ran/$number.err </dev/null
        echo $? >ran/$number.status
    } &
}

# until_said FILE: somebody has written into it, or 10 s have passed.
until_said() {
    local i
    for ((i = 0; i < 100; i++)); do
        [[ ! -s $1 ]] || break
        sleep 0.1
    done
}

# all_done WHAT: waits for them; each has ended with 0. A check that was among them has found nothing wrong.
all_done() {
    local number failed=0
    wait
    for ((number = 1; number <= count; number++)); do
        if [[ $(<ran/$number.status) != 0 ]] || grep -q "^error" ran/$number.out; then
            failed=$((failed + 1))
            echo "    $(<ran/$number.status) parallax $(<ran/$number.words): $(tail -n 1 ran/$number.err)" >&2
            grep "^error" ran/$number.out >&2
        fi
    done
    ((failed == 0)) || die "$1: $failed of $count commands failed"
    echo "  $count commands"
    rm -f ran/*
    count=0
}

run 0 store format demo --volume "$DIR/demo.plx" --size 512M --extent-size 1M
head -c 4M /dev/urandom >image
run 0 vdi create demo/web --size 16M
run 0 vdi import image demo/web --force
run 0 snap create demo/web@base
run 0 vdi export demo/web@base raw.base

step "a closed disk, by pairs and by sixes"
made=()
words=("vdi info demo/web" "snap create demo/web" "cdp on demo/web --every 10ms" "vdi export demo/web@base raw.N"
    "vdi resize demo/web --size SIZE" "snap list demo/web" "gc demo" "snap label demo/web@1 label-N" "cdp off demo/web"
    "store check demo" "vdi clone demo/web@base demo/clone-N" "store info demo" "snap create demo/web@made-N"
    "vdi create demo/new-N --size 1M" "tree demo" "cdp apply demo/web" "cdp status demo" "defrag demo/web")
for ((i = 0; i < 24; i++)); do # neighbours, then what lies five apart
    for ((j = 0; j < (i % 3 ? 6 : 2); j++)); do
        command=${words[(i + j * (1 + 4 * (i / 12))) % ${#words[@]}]//N/$i-$j}
        command=${command/SIZE/$((16 + i))M} # each larger than the ones before
        [[ $command != *@made-* ]] || made+=("${command##*@}")
        # shellcheck disable=SC2086 # words
        beside $command
    done
    ((i % 9)) || beside vdi bench demo/web --rw randwrite --runtime 1 --size 1M --force
    wait
done
all_done "beside each other"
run 0 store check demo --data
run 0 snap list demo/web --labels --json
for label in "${made[@]}"; do says out "\"$label\""; done
for file in raw.*; do same "$file" raw.base; done

step "who reads all disks of a store sees none that is half made"
(
    for ((i = 0; i < 20; i++)); do
        "$PARALLAX" -q vdi create demo/half-$i --size 1M >/dev/null 2>&1 </dev/null || echo failed >ran/creating
    done
    touch ran/created
) &
until [[ -e ran/created ]]; do
    for words in "store info demo" "cdp status demo" "vdi list demo" "tree demo"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
    done
done
wait
[[ ! -e ran/creating ]] || die "a disk could not be created"
rm ran/created

step "what killed ones left is recovered once, whoever comes"
for i in 1 2 3; do run 0 vdi create demo/killed-$i --size 16M; done
for ((i = 0; i < 4; i++)); do
    victims=()
    for j in 1 2; do
        "$PARALLAX" vdi bench demo/killed-$j --rw randwrite --runtime 5 --size 4M --force >/dev/null 2>&1 </dev/null &
        victims+=($!)
    done
    sleep 0.3
    beside snap create demo/killed-3
    sleep 0.02
    kill -9 "${victims[@]}"
    beside snap create demo/killed-1
    beside vdi clone demo/web@base demo/after-$i
    beside gc demo
    beside snap create demo/killed-2
    beside store check demo
    beside vdi create demo/beside-$i --size 1M
    wait
done 2>/dev/null
all_done "beside a recovery"
run 0 store check demo --data
run 0 gc demo

step "a state directory that comes out of an archive again proves no death"
run 0 vdi create demo/archived --size 16M
"$PARALLAX" vdi bench demo/archived --rw randwrite --runtime 60 --size 4M --force >bench.out 2>bench.err </dev/null &
living=$!
for _ in {1..100}; do
    run 0 vdi list demo --json
    [[ $(<out) != *"(pid $living)"* && $(<out) != *"$living"* ]] || break
    sleep 0.1
done
tar cf state.tar state
rm -r state
tar xf state.tar
for words in "store rebuild-registry --volume $DIR/demo.plx" "store forget demo" "store release demo" \
    "store format new --volume $DIR/demo.plx --force" "vdi delete demo/archived --yes" \
    "vdi bench demo/archived --rw randwrite --runtime 1 --size 1M --force"; do
    # shellcheck disable=SC2086 # words
    run 4 $words --wait 0
    says err "(pid $living)"
done
kill -0 "$living" || die "who had the store open was ended: $(<bench.err)"
kill -INT "$living"
wait "$living"
run 0 store check demo --data

step "what is made once is made once"
for i in 1 2; do
    beside store rebuild-registry --volume "$DIR/demo.plx"
    beside store rebuild-registry --volume "$DIR/demo.plx"
    beside snap create demo/web
    beside vdi info demo/web
    wait
done
for i in 1 2; do
    beside store add-volume demo "$DIR/more-$i.plx" --size 16M
    beside store add-volume demo "$DIR/even-$i.plx" --size 16M
    beside snap create demo/web
    wait
done
all_done "rebuilding and growing"
run 0 store check demo

# VOLUMES-5: two volumes join behind the back of a command that has read the registry and is opening the others.
joining() { # N COMMAND...
    local command name
    PLX_STAGE_SIGNAL=19 PLX_STAGE_OPEN=$DIR/more-1.plx PLX_STAGE_OPENED=$DIR/opened \
        "$PARALLAX_STAGED" "${@:2}" >joining 2>&1 </dev/null &
    command=$!
    stops $command
    for name in left right; do
        run 0 store add-volume demo "$DIR/$name-$1.plx" --size 16M
    done
    kill -CONT $command
    wait $command || die "${*:2}: $(<joining)"
    grep -q "right-$1" opened || die "${*:2}: it did not open what has joined"
}
joining 1 snap create demo/web
joining 2 vdi info demo/web
run 0 store check demo

# formats: three formats at once; one of them has worked, and its store is there.
formats() {
    local i good=0 name pids=()
    for i in 0 1 2; do
        "$PARALLAX" store format "${names[i]}" --volume "$DIR/${volumes[i]}" --size 64M --extent-size 1M >/dev/null 2>&1 </dev/null &
        pids+=($!)
    done
    for i in 0 1 2; do
        wait "${pids[i]}" || continue
        good=$((good + 1))
        name=${names[i]}
    done
    ((good == 1)) || die "$good of three formats worked: ${names[*]}, ${volumes[*]}"
    run 0 store check "$name"
}
for i in 1 2 3; do
    names=("one$i" "one$i" "one$i") volumes=("same$i.plx" "same$i.plx" "same$i.plx")
    formats
    names=("a$i" "b$i" "c$i") volumes=("other$i.plx" "other$i.plx" "other$i.plx")
    formats
    names=("name$i" "name$i" "name$i") volumes=("x$i.plx" "y$i.plx" "z$i.plx")
    formats
    left=([xyz]"$i".plx)
    ((${#left[@]} == 1)) || die "a format that was refused has left its file"
done

# held: a command that has demo/web open until `free`; its process id is in $holder.
held() {
    local i
    rm -f pipe
    mkfifo pipe
    exec {gate}<>pipe
    "$PARALLAX" vdi import pipe demo/web --force >/dev/null 2>&1 </dev/null &
    holder=$!
    for ((i = 0; i < 200; i++)); do
        run 0 vdi info demo/web --json
        [[ $(<out) != *'"open_by": "admin '$holder* ]] || return 0
        sleep 0.05
    done
    die "nobody has the disk open"
}
free() {
    kill -INT "$holder"
    wait "$holder"
    exec {gate}>&-
}
# timed WORDS...: how many milliseconds that takes, in $took.
timed() {
    local begun=${EPOCHREALTIME/./}
    "$@"
    took=$(((${EPOCHREALTIME/./} - begun) / 1000))
}

step "--wait: not at all, so long, and until it is free"
held
volumes=("$DIR"/{demo,more-1,even-1,more-2,even-2,left-1,right-1,left-2,right-2}.plx)
for words in "store rebuild-registry ${volumes[*]/#/--volume }" "store forget demo" "store release demo" \
    "store format new --volume $DIR/demo.plx --force" "store release demo --dry-run"; do
    # shellcheck disable=SC2086 # words
    run 4 $words --wait 0
    says err "a parallax command (pid $holder) on host "
done
run 0 store format other --volume "$DIR/other.plx" --size 64M
run 4 store add-volume other "$DIR/demo.plx" --force --wait 0
says err "store demo is open in a parallax command (pid $holder) on host "
timed run 4 snap create demo/web --wait 0
says err "in use by a parallax command (pid $holder)"
((took < 3000)) || die "--wait 0 took $took ms"
timed run 4 snap create demo/web --wait 1
((took >= 900)) || die "--wait 1 took $took ms"
"$PARALLAX" snap create demo/web --wait 60 >later.out 2>later.err </dev/null &
later=$!
"$PARALLAX" cdp off demo/web --wait 60 --quiet >quiet.out 2>quiet.err </dev/null &
quiet=$!
until_said later.err
grep -q "waiting up to 60 s (--wait): demo/web is in use by a parallax command (pid $holder)" later.err || die "nobody says who is waited for"
free
wait "$later" || die "what waited has failed: $(<later.err)"
wait "$quiet" || die "what waited has failed: $(<quiet.err)"
[[ $(wc -l <later.err) == 1 && $(<later.out) == demo/web@* && ! -s quiet.err ]] || die "more than one note, or no snapshot"

step "who reads a snapshot that is to go, or has a store that is to be released, is waited for"
# reading NAME: a command that has that snapshot open until `free`.
reading() {
    local i
    rm -f pipe
    mkfifo pipe
    exec {gate}<>pipe
    "$PARALLAX" vdi export "$1" - >pipe 2>/dev/null </dev/null &
    holder=$!
    for ((i = 0; i < 200; i++)); do
        [[ $(registry "SELECT count(*) FROM holds") == 0 ]] || return 0
        sleep 0.05
    done
    die "nobody reads $1"
}
run 0 vdi create demo/read --size 8M
run 0 vdi import image demo/read --force
for label in one two three; do run 0 snap create demo/read --label $label; done
reading demo/read@one
for words in "snap delete demo/read@one" "vdi delete demo/read --yes"; do
    # shellcheck disable=SC2086 # words
    timed run 4 $words --wait 0
    says err "being read"
    says err "a parallax command (pid $holder)"
    ((took < 3000)) || die "$words --wait 0 took $took ms"
    # shellcheck disable=SC2086 # words
    timed run 4 $words --wait 1 --quiet
    ((took >= 900)) || die "$words --wait 1 took $took ms"
done
run 0 snap delete demo/read@..two --force --dry-run --wait 60 # ranges pass over it
registry_edit demo.plx "UPDATE instances SET role = 'handler' WHERE pid = $holder"
for words in "snap delete demo/read@one" "vdi delete demo/read --yes" "store release demo"; do
    # shellcheck disable=SC2086 # words
    timed run 4 $words --wait 60
    says err "handler (pid $holder)"
    ((took < 3000)) || die "$words waited for a handler, $took ms"
done
registry_edit demo.plx "UPDATE instances SET role = 'admin' WHERE pid = $holder"
rm later.err
"$PARALLAX" snap delete demo/read@one --wait 60 >later.out 2>later.err </dev/null &
later=$!
until_said later.err
grep -q "waiting up to 60 s (--wait): demo/read@one: it is being read by a parallax command (pid $holder)" later.err || die "nobody says who is waited for"
free
wait "$later" || die "what waited has failed: $(<later.err)"
run 3 vdi export demo/read@one raw
reading demo/read@two
"$PARALLAX" vdi delete demo/read --yes --wait 60 >later.out 2>later.err </dev/null &
later=$!
sleep 0.5
free
wait "$later" || die "what waited has failed: $(<later.err)"
reading demo/web@base
timed run 4 store release demo --wait 1 --quiet
says err "is open in a parallax command (pid $holder)"
((took >= 900)) || die "store release --wait 1 took $took ms"
"$PARALLAX" store release demo --wait 60 --quiet 2>later.err </dev/null &
later=$!
sleep 0.5
free
wait "$later" || die "what waited has failed: $(<later.err)"
# shellcheck disable=SC2086,SC2048 # words
run 0 store import ${volumes[*]/#/--volume }

step "volumes, the home page, superblocks: what processes lock is waited for as long as is said"
# locked VOLUME BYTE HOW: another process has that lock until `unlocked`.
locked() {
    python3 -c '
import fcntl, os, signal, struct, sys
fd = os.open(sys.argv[1], os.O_RDWR)
how = {"shared": fcntl.F_RDLCK, "exclusive": fcntl.F_WRLCK}[sys.argv[3]]
fcntl.fcntl(fd, 37, struct.pack("hhqqi4x", how, 0, (1 << 62) + int(sys.argv[2]), 1, 0)) # F_OFD_SETLK
print("locked", flush=True)
signal.pause()' "$@" >locked.out </dev/null &
    locker=$!
    for ((i = 0; i < 200; i++)); do
        [[ ! -s locked.out ]] || return 0
        sleep 0.05
    done
    die "byte $2 is not locked"
}
unlocked() {
    kill "$locker"
    wait "$locker"
    rm locked.out
}
run 0 store format lock --volume "$DIR/lock.plx" --size 64M --extent-size 1M
run 0 vdi create lock/web --size 1M
while read -r byte how words; do
    locked lock.plx "$byte" "$how"
    # shellcheck disable=SC2086 # words
    timed run 4 $words --wait 0
    ((took < 3000)) || die "$words --wait 0 took $took ms"
    rm -f later.err
    # shellcheck disable=SC2086 # words
    "$PARALLAX" $words --wait 60 >later.out 2>later.err </dev/null &
    later=$!
    until_said later.err
    grep -q "^waiting up to 60 s (--wait)" later.err || die "$words: nobody says who is waited for"
    kill -INT "$later"
    begun=${EPOCHREALTIME/./}
    wait "$later"
    status=$?
    took=$(((${EPOCHREALTIME/./} - begun) / 1000))
    ((status == 130 && took < 2000)) || die "$words: SIGINT ended it after $took ms with $status: $(<later.err)"
    # shellcheck disable=SC2086 # words
    "$PARALLAX" $words --wait 60 --quiet >later.out 2>later.err </dev/null &
    later=$!
    sleep 0.5
    unlocked
    wait "$later" || die "$words: what waited has failed: $(<later.err)"
done <<END
9 exclusive store grow lock
10 exclusive snap create lock/web
11 exclusive snap create lock/web
11 exclusive store info lock
11 shared store rebuild-registry --volume $DIR/lock.plx
END
run 0 store check lock

step "a signal ends the wait"
held
for signal in INT TERM; do
    "$PARALLAX" vdi resize demo/web --size 1G --wait 60 >later.out 2>later.err </dev/null &
    later=$!
    sleep 0.5
    kill -$signal "$later"
    begun=${EPOCHREALTIME/./}
    wait "$later"
    status=$?
    took=$(((${EPOCHREALTIME/./} - begun) / 1000))
    [[ $status == $((128 + $(kill -l $signal))) ]] || die "SIG$signal: exit status $status"
    ((took < 3000)) || die "SIG$signal took $took ms"
    grep -q interrupted later.err || die "SIG$signal: $(<later.err)"
done

step "a handler is not waited for"
registry_edit demo.plx "UPDATE instances SET role = 'handler' WHERE pid = $holder"
timed run 4 snap create demo/web --wait 60
says err "in use by handler (pid $holder)"
((took < 3000)) || die "a handler was waited for, $took ms"
registry_edit demo.plx "UPDATE instances SET role = 'admin' WHERE pid = $holder"
free
run 0 vdi info demo/web --json
[[ $(json size_bytes) -lt $((1 << 30)) ]] || die "a command that was interrupted has resized it"

step "a disk that its dead holder left damaged says so to who waited for it"
run 0 store format hurt --volume "$DIR/hurt.plx" --size 64M --extent-size 1M
run 0 vdi create hurt/web --size 8M
run 0 vdi create hurt/other --size 8M
mkfifo hurt
exec {gate}<>hurt
"$PARALLAX" vdi import hurt hurt/web --force >/dev/null 2>&1 </dev/null &
holder=$!
for ((i = 0; i < 200; i++)); do
    run 0 vdi info hurt/web --json
    [[ $(<out) != *'"open_by": "admin '$holder* ]] || break
    sleep 0.05
done
"$PARALLAX" snap create hurt/web --wait 60 >later.out 2>later.err </dev/null &
later=$!
until_said later.err
python3 -c '
import sys
with open(sys.argv[1], "r+b") as volume:
    data = volume.read(1 << 20)
    for at in range(0, len(data), 4096):
        if data[at:at + 8] == b"PLXVDREC" and data[at + 128:at + 131] == b"web":
            volume.seek(at + 200)
            volume.write(bytes([255]) * 64)' hurt.plx
{ kill -KILL "$holder" && wait "$holder"; } 2>/dev/null
exec {gate}>&-
wait "$later"
status=$?
[[ $status == 5 ]] || die "exit status $status: $(<later.err)"
grep -q "copies of its record (VDI slot 0) are damaged" later.err || die "it does not say what is wrong: $(<later.err)"
run 0 snap create hurt/other
run 5 snap create hurt/web

step "words"
for value in x -1 1.5 86401; do run 2 vdi info demo/web --wait $value; done
run 2 vdi info demo/web --wait
run 0 --wait 5 vdi info demo/web
run 0 --wait=5 vdi info demo/web
run 0 vdi info --help
says out "--wait SECONDS"
