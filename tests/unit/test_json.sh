#!/bin/bash
# With --json every command that changes something, or writes a file, prints one object that says what was done, and
# nothing on standard error. All objects of one kind have the same keys. No command is left out: each is in the list below, or is said to show something only.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# Shows something; cdp resume: a list, of the disks that were in doubt; lun: of the kernel's target (tests/lab).
shows=" store list, store info, store stats, store check, store scan, vdi list, vdi info, vdi stats, vdi bench, \
snap list, diff, find, bisect, cdp status, cdp resume, tree, du, ring list, ring info, ring repair, lun create, lun list, lun delete, cluster init, \
cluster leave, cluster status, help, version, " # cluster: test_cluster.sh

# In this order. Then what is in the object.
list="
store format demo --volume $DIR/demo.plx --size 256M --extent-size 4M: name demo
store set demo --warn-at 80%: warn_at_bytes 214748364
store set demo --warn-at none: name demo
store add-volume demo $DIR/more.plx --size 64M: store demo
store grow demo: added_bytes 0
store export-registry demo $DIR/registry.db: file $DIR/registry.db
vdi create demo/web --size 16M: name demo/web
vdi import $DIR/image demo/db: name demo/db
vdi set demo/db --warn-at 80%: name demo/db
vdi resize demo/db --size 32M: size_bytes $((32 << 20))
vdi rename demo/db data: name demo/data
vdi rename demo/data demo/db: vdi db
snap create demo/db@clean: seq 1
snap label demo/db@1 first: label first
snap label demo/db@1 second: name demo/db@1
snap unlabel demo/db@second: unlabelled second
vdi clone demo/db@clean demo/copy: name demo/copy
vdi export demo/db@clean $DIR/image.back: file $DIR/image.back
vdi export-diff demo/db@clean $DIR/stream: to demo/db@1
vdi import-diff $DIR/stream demo/backup: name demo/backup
vdi accept-older demo/db: accepted false
vdi forget demo --lost: forgotten 0
cdp on demo/db: name demo/db
cdp off demo/db: name demo/db
cdp apply demo/db: snapshots 0
cdp timeline demo/db --svg $DIR/db.svg: name demo/db
rewind demo/db --to clean: seq 1
snap delete demo/copy-one@1: snapshots 1
defrag demo/db: name demo/db
vdi delete demo/web --dry-run: deleted false
vdi delete demo/web --yes: deleted true
gc demo: dry_run false
dedup demo: dry_run false
ring create demo $DIR/ring --size 64M: store demo
vdi set demo/db --ring on: ring_setting on
vdi set demo/db --ring auto: ring_setting auto
vdi set demo/db --ring off: ring_setting off
ring check demo: errors 0
ring discard demo/db: discarded false
ring discard demo/db --yes: discarded false
ring delete demo --dry-run: deleted false
ring delete demo: deleted true
ring create demo $DIR/left $DIR/lost --size 64M: taken_up false
ring create demo $DIR/left --i-checked-the-other-is-lost: taken_up true
ring delete demo --force: deleted true
store restore-superblock $DIR/more.plx --dry-run: dry_run true
store restore-superblock $DIR/more.plx --i-checked-nobody-uses-it: index 1
store release demo --dry-run: released false
store release demo: released true
store import --volume $DIR/demo.plx --volume $DIR/more.plx: name demo
store take-over demo --any --dry-run: dry_run true
store take-over demo --any --i-checked-it-is-off: name demo
store forget demo: forgotten true
store rebuild-registry --volume $DIR/demo.plx --volume $DIR/more.plx: name demo
"
head -c 1M /dev/urandom >image

step "each says what it has done"
while IFS= read -r line; do
    [[ $line ]] || continue
    words=${line%:*} key=${line##*: }
    [[ $words != *the-other-is-lost ]] || rm lost state/rings/*.json
    case $words in *demo/copy-one*)
        run 0 vdi create demo/copy-one --size 16M
        run 0 snap create demo/copy-one
        run 0 snap create demo/copy-one
        ;;
    "store restore-superblock "*--dry-run) dd if=/dev/urandom of=more.plx bs=17k count=1 conv=notrunc status=none ;;
    esac
    # shellcheck disable=SC2086 # words
    run 0 $words --json
    [[ ! -s err ]] || die "$words --json: something on standard error"
    [[ $(json "${key% *}") == "${key##* }" ]] || die "$words --json: ${key% *} is not ${key##* }"
    [[ $(<out) == "{"* ]] || die "$words --json: that is no object"
done <<<"$list"

step "help: the table of commands"
for words in help "vdi create --help" "help vdi create" "help vdi"; do
    # shellcheck disable=SC2086 # words
    run 0 $words --json
    [[ $(json everywhere 0 name) == state-dir ]] || die "$words --json: no options"
done
[[ $(json commands 0 noun) == vdi && $(json commands 1 verb) == list ]] || die "not the commands of vdi"
run 0 help vdi create --json
[[ $(json commands 0 verb) == create && $(json commands 0 options 0 name) == size ]] || die "not that of vdi create"
run 2 help nothing --json

# keys: those of the object in out, in the order of the alphabet. In every list below, all objects have the same.
keys() {
    python3 -c '
import json, sys
def look(value, where):
    if isinstance(value, list):
        kinds = {tuple(sorted(item)) for item in value if isinstance(item, dict)}
        if len(kinds) > 1:
            sys.exit(f"{where}: not the same in all: {set.union(*map(set, kinds)) - set.intersection(*map(set, kinds))}")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        look(item, f"{where}/{key}")
value = json.load(open(sys.argv[1]))
look(value, "")
print(*sorted(value[0] if isinstance(value, list) else value))' "$DIR/out" || die "$*"
}

step "one kind, the same keys: a fresh object beside one with everything"
run 0 store format full --volume "$DIR/full.plx" --size 64M --extent-size 1M
run 0 store format fresh --volume "$DIR/fresh.plx" --size 64M --extent-size 1M
fresh_store=$(run 0 store info fresh --json && keys store info fresh) || exit 1
run 0 store set full --warn-at 1%
run 0 vdi create full/fresh --size 1M
run 0 vdi import image full/full
run 0 vdi set full/full --warn-at 1%
run 0 snap create full/full@one
run 0 snap create full/full
run 0 cdp on full/full --every 1s --keep all:1h
head -c 1M /dev/urandom >image
run 0 vdi import image full/full --force
run 0 snap create full/full --json
with_label=$(keys snap create)
run 0 snap create full/full@two --json
[[ $(keys snap create) == "$with_label" ]] || die "snap create: not the same keys with a label"
run 0 vdi clone full/full@2 full/clone
run 0 vdi clone full/full@one full/other
run 0 vdi delete full/other --yes
# A process that has it open, and one that reads a snapshot; both have died.
PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=60 "$PARALLAX_STAGED" vdi bench full/full --runtime 5 --force >/dev/null 2>&1
run 0 store info full --json
[[ $(keys store info) == "$fresh_store" ]] || die "store info: not the same keys"
for words in "vdi info" "cdp status"; do
    # shellcheck disable=SC2086 # words
    run 0 $words full/fresh --json
    fresh=$(keys "$words")
    for disk in full clone; do
        # shellcheck disable=SC2086 # words
        run 0 $words full/$disk --json
        [[ $(keys "$words") == "$fresh" ]] || die "$words: not the same keys for $disk"
    done
done
run 0 diff full/full@one..two --summary --json
keys diff >kept
run 0 diff full/full@one --summary --json
[[ $(keys diff) == "$(<kept)" ]] || die "diff --summary: not the same keys"
run 0 rewind full/full --to one --dry-run --json
keys rewind >kept
run 0 rewind full/full --to one --json
[[ $(keys rewind) == "$(<kept)" ]] || die "rewind: not the same keys"
run 0 vdi export-diff full/full@one full.one --json
keys export-diff >kept
run 0 vdi export-diff full/full@one..two full.two --json
[[ $(keys export-diff) == "$(<kept)" ]] || die "export-diff: not the same keys"
run 0 vdi import-diff full.one fresh/copy --json
keys import-diff >kept
for stream in one two two; do
    run 0 vdi import-diff full.$stream fresh/copy --json
    [[ $(keys import-diff) == "$(<kept)" ]] || die "import-diff: not the same keys"
done
for pattern in randread randwrite; do
    run 0 vdi bench full/fresh --rw $pattern --runtime 1 --force --json
    keys bench >"$pattern"
done
same randread randwrite
cp full.plx copy.plx
truncate -s 64M ruined.plx
dd if=/dev/urandom of=fresh.plx bs=17k count=1 conv=notrunc status=none
for words in "store list" "store scan $DIR/full.plx $DIR/copy.plx $DIR/fresh.plx $DIR/ruined.plx" "vdi list full" \
    "snap list full/full" "tree" "du full" "cdp status" "cdp timeline full/full" "find full/full" "diff full/full@one..two" \
    "store check full"; do
    # shellcheck disable=SC2086 # words
    "$PARALLAX" $words --json >out 2>err
    [[ $(<out) == *:* ]] || die "$words: an empty list shows nothing"
    keys "$words" >/dev/null
done
"$PARALLAX" store info fresh --json >out 2>err # which is ruined
[[ $(keys store info) == "$fresh_store" ]] || die "store info: not the same keys for a store that is ruined"
run 3 vdi info full/none --json
cp err out
[[ $(json error advice) == null ]] || die "an error without advice has some"

step "none is left out"
for noun in $("$PARALLAX" __complete); do
    verbs=$("$PARALLAX" __complete "$noun" | grep -v '^--')
    for verb in ${verbs:-""}; do
        command=$noun${verb:+ $verb}
        [[ $shows == *" $command, "* || $list == *$'\n'"$command "* ]] ||
            die "'$command' is not in the list: what does it print with --json?"
    done
done
echo "all is well"
