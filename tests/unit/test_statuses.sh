#!/bin/bash
# One rule for exit statuses: 2 for words that are wrong or do not fit, 3 for what is not there, 4 for what is refused
# because something is in the way or nobody has confirmed it. And an error in usage says what there is, and where help is.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

step "a world"
run 0 store format demo --volume "$DIR/demo.plx" --size 256M
run 0 vdi create demo/web --size 16M
head -c 1M /dev/urandom >image
run 0 vdi import image demo/db
for label in one two three; do run 0 snap create "demo/db@$label"; done
run 0 vdi export demo/db@one there
run 0 vdi export-diff demo/db@one stream

step "2: words that are wrong, or do not fit what they name"
while read -r words; do
    # shellcheck disable=SC2086 # words
    run 2 $words
    [[ $(tail -c 8 err) == "--help'" ]] || die "$words: the error does not end with where help is"
done <<WORDS
snap delete demo/db@3..1
snap delete demo/db@three..one
snap delete demo/db@3..1 --dry-run
du demo/db@3..1
vdi resize demo/web --size 8M
vdi bench demo/web --size 1G
vdi rename demo/web other/web
find demo/web --block 4096
bisect demo/db --good three --bad one -- true
store export-registry demo -
vdi forget demo
find demo/web --offset 900T
find demo/web --offset 1k --length 900T
store format new --volume new --size 4
store add-volume demo new --size 5000
WORDS
run 2 find demo/web --offset 900T
says err "the range begins behind the end of the disk"
run 2 store format new --volume new --size 4
says err "--size '4' is 4 bytes, and must be a multiple of 4096; write it as 64M, 1G or 2T"

step "3: what is not there"
for words in "vdi info demo/none" "snap delete demo/db@none" "store info none" "vdi import none demo/web"; do
    # shellcheck disable=SC2086 # words
    run 3 $words
done

step "4: nobody has confirmed it, or something is there"
while read -r words; do
    # shellcheck disable=SC2086 # words
    run 4 $words
done <<WORDS
vdi delete demo/db
snap delete demo/db@..three
snap delete demo/db@three
vdi import image demo/db
vdi import-diff stream demo/db
vdi bench demo/db --rw write
vdi export demo/db there
vdi export-diff demo/db@one there
cdp timeline demo/db --svg there
store export-registry demo there
vdi create demo/db --size 1M
vdi clone demo/db@one demo/web
vdi rename demo/db web
snap label demo/db@two one
snap create demo/db@one
store format demo --volume $DIR/demo.plx
store format other --volume $DIR/demo.plx --force
store restore-superblock $DIR/demo.plx
WORDS
typed no vdi delete demo/db
[[ $? == 4 ]] || die "an answer that is not yes does not end with 4"
run 0 vdi info demo/db

step "an error in usage names the verbs, or the command's help"
run 2
says err "no command given: store, vdi, snap, "
run 2 snap
[[ $(<err) == "parallax: 'snap' needs a verb: create, list, label, unlabel, delete; see 'parallax snap --help'" ]] ||
    die "the verbs are not named"
run 2 snap frob
says err "unknown command 'snap frob': 'snap' has create, list, label, unlabel, delete; see 'parallax snap --help'"
run 2 frob
says err "; see 'parallax --help'"
run 2 help frob
says err "no help on 'frob': there are store, vdi, snap, "
run 2 help snap frob
says err "no help on 'snap frob': there are create, list, label, unlabel, delete; see"
run 2 snap create
says err "see 'parallax snap create --help'"
run 2 diff
says err "see 'parallax diff --help'"
run 2 vdi create demo/new --json
python3 -c '
import json, sys
sys.exit(json.load(open("err"))["error"]["advice"] != "see \x27parallax vdi create --help\x27")' || die "JSON has other advice"
echo "all is well"
