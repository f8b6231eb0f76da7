#!/bin/bash
# The number that all volumes of a store have (handler/attach/numbers.c): every state that a crash can leave while it
# rises is a whole store, and every volume that went back is one that is told.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# page FROM TO: the pages with the number, of a volume.
page() { dd if="$1" of="$2" bs=4096 skip=2 seek=2 count=2 conv=notrunc status=none || die "no page"; }
# number VOLUME: of a further volume, or of the home page.
number() { "$PEEK" number "$1" || die "$1 has no number"; }
# numbers: of all volumes.
numbers() { "$PEEK" number v0 v1 v2 || die "a volume has no number"; }
# tear VOLUME: the slot of the newer page is half written.
tear() {
    python3 -c '
import sys
with open(sys.argv[1], "r+b") as volume:
    volume.seek(8192)
    blocks = [volume.read(4096) for slot in range(2)]
    newest = max(range(2), key=lambda slot: int.from_bytes(blocks[slot][32:40], "little"))
    volume.seek(8192 + newest * 4096 + 20)
    volume.write(bytes(reversed(blocks[newest][20:512])))' "$1"
}

# forge VOLUME NUMBER: both slots of its page have this number, or that before it in the other slot.
forge() {
    python3 -c '
import sys
def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
number = int(sys.argv[2])
with open(sys.argv[1], "r+b") as volume:
    for slot in range(2):
        volume.seek(8192 + slot * 4096)
        block = bytearray(volume.read(4096))
        if block[:8] == b"PLXHOME.":
            block[168:176] = number.to_bytes(8, "little")
        else:
            block[32:40] = (number - (slot != number % 2)).to_bytes(8, "little")
        block[8:12] = bytes(4)
        block[8:12] = crc32c(block).to_bytes(4, "little")
        volume.seek(8192 + slot * 4096)
        volume.write(block)' "$1" "$2" || die "the number of $1 cannot be forged"
}

step "a store of one volume has none, and further ones have the first volume's"
run 0 store format demo --volume "$DIR/v0" --size 64M --extent-size 1M
run 0 vdi create demo/web --size 16M
[[ $(number v0) == 0 ]] || die "a store of one volume has a number"
run 0 store add-volume demo "$DIR/v1" --size 64M
run 0 store add-volume demo "$DIR/v2" --size 64M
read -r home one two <<<"$(numbers)"
((home && home == one && home == two)) || die "the volumes do not have one number: $(numbers)"
for words in "store info demo" "vdi export demo/web back --force" "store check demo" "vdi list demo"; do
    # shellcheck disable=SC2086 # words
    run 0 $words
done
[[ $(numbers) == "$home $one $two" ]] || die "who only reads raised the number"
run 0 vdi create demo/other --size 1M
[[ $(numbers) == "$((home + 2)) $((home + 2)) $((home + 2))" ]] || die "an opening and a closing do not raise it by two: $(numbers)"

step "beside each other only the first one and the last one raise it"
for n in 0 1 2; do cp --sparse=always v$n before$n; done
home=$(number v0)
"$PARALLAX" vdi bench demo/web --rw randwrite --size 1M --runtime 120 >/dev/null 2>&1 &
bench=$!
for _ in {1..600}; do
    [[ $(number v0) == "$((home + 1))" ]] && break
    sleep 0.1
done
run 0 vdi create demo/beside --size 1M
[[ $(numbers) == "$((home + 1)) $((home + 1)) $((home + 1))" ]] || die "one of two raised it: $(numbers)"
for n in 0 1 2; do cp --sparse=always v$n during$n; done
kill -KILL $bench
wait $bench 2>/dev/null

step "each state in which a crash can leave it: nothing is in doubt, and the next opening sets it right"
states=0
for first in before torn during; do
    for second in before torn during; do
        for first_volume in before torn during; do
            # Volume 0 comes after both.
            [[ $first_volume == before || $first$second == duringduring ]] || continue
            n=0
            for at in $first_volume $first $second; do
                cp --sparse=always before$n v$n
                case $at in
                before) ;;
                during) page during$n v$n ;;
                torn)
                    page during$n v$n
                    tear v$n
                    ;;
                esac
                n=$((n + 1))
            done
            state="$first_volume $first $second, $(numbers)"
            for words in "store info demo" "store list" "store scan v0 v1 v2" "vdi export demo/web back --force" \
                "vdi create demo/late --size 1M" "store info demo"; do
                # shellcheck disable=SC2086 # words
                timeout -k 5 60 "$PARALLAX" $words >out 2>err </dev/null || die "$state: $words"
            done
            read -r home one two <<<"$(numbers)"
            ((home == one && home == two)) || die "$state: then $(numbers)"
            states=$((states + 1))
        done
    done
done
((states == 11)) || die "only $states states"

step "each volume that went back while the others did not is told"
for n in 0 1 2; do cp --sparse=always v$n after$n; done
for n in 1 2; do
    for old in before during; do
        page $old$n v$n
        for words in "vdi export demo/web back --force" "vdi create demo/never --size 1M" "store list" "vdi list" "tree" \
            "store scan $DIR/v0 $DIR/v1 $DIR/v2"; do
            # shellcheck disable=SC2086 # words
            run 5 $words
            says err "$DIR/v$n went back to an older state"
        done
        page after$n v$n
    done
done
run 0 vdi export demo/web back --force

step "a volume that another one took the place of while the store was open"
"$PARALLAX" vdi bench demo/web --rw randwrite --size 1M --runtime 120 >/dev/null 2>&1 &
bench=$!
home=$(number v0)
for _ in {1..600}; do
    [[ $(number v2) != "$(number after2)" ]] && break
    sleep 0.1
done
mv v2 real2
cp --sparse=always after2 v2
run 5 vdi create demo/never --size 1M
says err "$DIR/v2 went back to an older state"
mv real2 v2
kill -KILL $bench
wait $bench 2>/dev/null
run 0 store check demo

step "one damaged slot of the home page: nothing is in doubt, and both have the number again"
for slot in 0 1; do
    printf damaged | dd of=v0 bs=1 seek=$((8192 + slot * 4096 + 20)) conv=notrunc status=none
    for words in "vdi export demo/web back --force" "vdi create demo/slot$slot --size 1M" "vdi create demo/then$slot --size 1M"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
    done
    read -r home one two <<<"$(numbers)"
    ((home && home == one && home == two)) || die "after a damaged slot $slot: $(numbers)"
done
run 0 store check demo

# restore: the store as it was before a volume joined; in the inodes that it had, so that nobody has to take it over.
restore() {
    rm -rf v3 "$PARALLAX_STATE_DIR"
    cp --sparse=always joined/v? .
    cp -a joined/state "$PARALLAX_STATE_DIR"
}

# beside_at CALL COMMAND...: the command stops before its I/O number CALL; the command in `beside` runs to its end, or
# waits for it; then it goes on.
beside_at() {
    local call=$1 stopped
    restore
    PLX_STAGE_SIGNAL=19 PLX_STAGE_AT=$call "$PARALLAX_STAGED" "${@:2}" >stopped 2>&1 </dev/null &
    stopped=$!
    stops $stopped
    timeout -k 5 0.5 "$PARALLAX" "${beside[@]}" >out 2>err </dev/null # it may have to wait, which is no matter
    kill -CONT $stopped
    wait $stopped || die "${*:2}, stopped before its I/O $call: $(<stopped)"
    run 0 snap create demo/web
    run 0 store check demo
}

# moments VOLUME COMMAND...: at every I/O of it the one in `beside` runs, from the opening of the volume on.
moments() {
    local call first
    restore
    rm -f opened
    PLX_STAGE_OPENED=$DIR/opened "$PARALLAX_STAGED" "${@:2}" >out 2>err </dev/null || die "$*: $(<err)"
    first=$(grep -m 1 "^$DIR/$1 " opened)
    first=$((${first##* } + 1))
    for ((call = first; call < first + 25; call++)); do
        beside_at $call "${@:2}"
    done
}

step "a volume joins while a store is opened, and the store is opened and closed while a volume joins"
mkdir joined
cp --sparse=always v? joined
cp -a "$PARALLAX_STATE_DIR" joined/state
beside=(store add-volume demo "$DIR/v3" --size 16M)
moments v2 snap create demo/web
beside=(snap create demo/web)
moments v3 store add-volume demo "$DIR/v3" --size 16M

# opens: the store opens, twice, and all volumes have one number.
opens() {
    local home one two
    for _ in 1 2; do
        run 0 snap create demo/web
        read -r home one two <<<"$(numbers)"
        ((home && home == one && home == two)) || die "${1:-then}: $(numbers)"
    done
    run 0 store check demo
}
WORD=--i-checked-nobody-uses-it

step "a volume whose number was overwritten together with its superblocks: restoring these says so, and the store opens"
for bytes in 12288 16384 17408; do # one slot of the number, both, and more
    restore
    cp --sparse=always v1 v1.whole
    dd if=/dev/zero of=v1 bs=$bytes count=1 conv=notrunc status=none
    run 5 vdi export demo/web back --force
    says err "the superblocks of store demo were overwritten"
    run 0 store restore-superblock "$DIR/v1" --dry-run -q
    says err "nobody can tell whether its content is the newest"
    run 0 store restore-superblock "$DIR/v1" $WORD --json
    [[ $(json number_lost) == true ]] || die "the JSON does not say that the number is lost"
    for words in "store info demo" "vdi export demo/web back --force" "store list" "store scan $DIR/v0 $DIR/v1 $DIR/v2"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
    done
    opens "after $bytes bytes"
    page v1.whole v1 # from now on it has a number again
    run 5 snap create demo/web
    says err "$DIR/v1 went back to an older state"
done

step "... while zeroes alone, or a number that is left, still tell a volume that went back"
restore
dd if=/dev/zero of=v1 bs=4096 seek=2 count=2 conv=notrunc status=none
run 5 vdi export demo/web back --force
says err "$DIR/v1 went back to an older state"
restore
cp --sparse=always v1 v1.older
opens
cp --sparse=always v1.older v1
dd if=/dev/zero of=v1 bs=8192 count=1 conv=notrunc status=none
run 0 store restore-superblock "$DIR/v1" $WORD --json
[[ $(json number_lost) == false ]] || die "the JSON says that the number is lost"
for words in "vdi export demo/web back --force" "snap create demo/web"; do
    # shellcheck disable=SC2086 # words
    run 5 $words
    says err "$DIR/v1 went back to an older state"
done
restore
dd if=/dev/zero of=v0 bs=8192 count=1 conv=notrunc status=none
run 0 store restore-superblock "$DIR/v0" $WORD --json
[[ $(json number_lost) == false ]] || die "the first volume's number is on its home page"
opens

LAST=$((1 << 59)) # beyond this a number is none

step "a number that leaves no room for the next one: all begin anew"
restore
for n in 0 1 2; do forge v$n $LAST; done
opens "all forged"
(($(number v0) < 100)) || die "the numbers did not begin anew: $(numbers)"
restore
for n in 0 1 2; do forge v$n $((LAST - 1)); done # the next opening, or its closing, is the last one
opens "nearly the last"
restore
forge v0 $((LAST - 1))
forge v1 $LAST
forge v2 $((LAST - 1))
opens "one volume ahead, as after a crash"
restore
forge v1 $LAST
printf damaged | dd of=v0 bs=1 seek=$((8192 + 20)) conv=notrunc status=none
opens "a damaged home page, and a forged volume"
restore
forge v2 $LAST
run 5 snap create demo/web
says err "$DIR/v0 went back to an older state, for $DIR/v2 is newer"
"$PARALLAX" store rebuild-registry demo --i-checked-there-is-no-newer-one >out 2>err </dev/null
says err "rebuilt the registry of store demo"
run 0 vdi forget demo --lost --yes
opens "rebuilt"
restore
for n in 0 1 2; do forge v$n $((LAST + 2)); done
run 5 snap create demo/web
says err "the home page has a number that nothing can be counted on from"
says err "'parallax store take-over demo --any --i-checked-it-is-off' rewrites it"
run 0 store take-over demo --any --i-checked-it-is-off
opens "taken over"

step "... and wherever that is cut off, the next opening begins anew again"
rm -f opened
restore
for n in 0 1 2; do
    forge v$n $LAST
    cp --sparse=always v$n forged$n
done
PLX_STAGE_OPENED=$DIR/opened "$PARALLAX_STAGED" snap create demo/web >out 2>err </dev/null || die "$(<err)"
first=$(grep -m 1 "^$DIR/v2 " opened)
first=${first##* }
for ((call = first + 1; call < first + 40; call++)); do
    for n in 0 1 2; do cp --sparse=always forged$n v$n; done
    { PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$call "$PARALLAX_STAGED" snap create demo/web; } >out 2>&1 </dev/null
    for words in "store info demo" "snap create demo/web" "snap create demo/web"; do
        # shellcheck disable=SC2086 # words
        run 0 $words
    done
    read -r home one two <<<"$(numbers)"
    ((home && home == one && home == two && home < 100)) || die "cut off before its I/O $call: $(numbers)"
done
echo "all is well"
