#!/bin/bash
# With --json every command that changes something, or writes a file, prints one object that says what was done, and
# nothing on standard error. No command is left out: each is in the list below, or is said to show something only.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

# Shows something; cdp resume: a list, of the disks that were in doubt; lun: of the kernel's target (tests/lab).
shows=" store list, store info, store stats, store check, store scan, vdi list, vdi info, vdi stats, vdi bench, \
snap list, diff, find, bisect, cdp status, cdp resume, tree, du, lun create, lun list, lun delete, help, version, "

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
vdi delete demo/web --yes: deleted true
gc demo: dry_run false
dedup demo: dry_run false
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
