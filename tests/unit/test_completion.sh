#!/bin/bash
# What the completion of bash offers, for lines as they are typed.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

run 0 store format demo --volume "$DIR/demo.plx" --size 64M
run 0 store format other --volume "$DIR/other.plx" --size 64M
run 0 vdi create demo/web --size 1M
run 0 vdi create demo/db --size 1M
run 0 vdi create other/web --size 1M
run 0 snap create demo/web@monday
run 0 snap label demo/web@1 first
run 0 vdi bench demo/web --rw write --runtime 1 --size 64k
run 0 snap create demo/web@tuesday
run 0 snap create other/web@elsewhere
mkdir folder && cd folder && touch image.raw

mkdir "$DIR/bin" && ln -s "$PARALLAX" "$DIR/bin/parallax"
PATH=$DIR/bin:$PATH
# shellcheck source=packaging/completion/parallax.bash
. "$SOURCE/packaging/completion/parallax.bash"

# offers LINE WORDS: what is offered where the line ends, with all word breaks that bash has, and without '@' and '='.
offers() {
    local breaks got
    for breaks in $' \t\n"\'@><=;|&(:' $' \t\n"\'><;|&(:'; do
        COMP_WORDBREAKS=$breaks COMP_LINE=$1 COMP_POINT=${#1} COMPREPLY=()
        _parallax 2>"$DIR/err"
        [[ ! -s $DIR/err ]] || die "'$1': it complains"
        got=$(printf '%s\n' "${COMPREPLY[@]}" | sort | paste -sd' ')
        [[ $breaks == *@* || $1 != *@* ]] || got=${got//demo\/web@/}
        [[ $breaks == *=* || $1 != *=* ]] || got=${got//--ring=/}
        [[ $got == "$2" ]] || die "'$1': it offers '$got', not '$2'"
    done
}

step "words of commands, and of their help"
offers "parallax sn" "snap"
offers "parallax snap de" "delete"
offers "parallax d" "dedup defrag diff du"
offers "parallax help snap l" "label list"
offers "parallax help du" "du"
offers "parallax --state-dir $DIR/state snap de" "delete"
offers "parallax vdi set demo/web --wa" "--wait= --warn-at="
offers "parallax gc demo --me" "--memory="

step "names: of stores, of disks, of what is asked for"
for words in gc dedup tree "store info" "store grow" "vdi list" "ring info" "ring create" "ring list" "cdp resume"; do
    [[ $words == "cdp resume" || $words == "ring info" ]] || offers "parallax $words " "demo other"
    offers "parallax $words d" "demo$([[ $words != "cdp resume" ]] || echo " demo/db demo/web")"
done
offers "parallax du " "demo demo/db demo/web other other/web"
offers "parallax defrag o" "other/web"
offers "parallax --state-dir $DIR/state vdi info demo/" "demo/db demo/web"
offers "parallax vdi info --wait 3 demo/" "demo/db demo/web"
offers "parallax vdi clone demo/web@monday o" "other/"
offers "parallax vdi rename demo/web " ""
offers "parallax vdi info demo/web " ""
offers "parallax snap delete demo/web@monday demo/d" "demo/db"
[[ $("$PARALLAX" __complete --usage store format | sed -n 2p) == NAME ]] || die "another usage"
offers "parallax store format " ""

step "files, where files are taken"
offers "parallax vdi import " "image.raw"
offers "parallax vdi import image.raw demo/w" "demo/web"
offers "parallax vdi export demo/web i" "image.raw"
offers "parallax store format new --volume i" "image.raw"
offers "parallax ring create demo i" "image.raw"
offers "parallax store add-volume demo i" "image.raw"
offers "parallax cdp timeline demo/web --svg i" "image.raw"

step "labels behind '@' and of options, and the words that an option takes"
offers "parallax vdi export demo/web@" "first monday tuesday"
offers "parallax snap delete demo/web@m" "monday"
offers "parallax diff demo/web@monday..t" "monday..tuesday"
offers "parallax rewind demo/web --to " "first monday tuesday"
offers "parallax rewind demo/web --to m" "monday"
offers "parallax bisect demo/web --good m" "monday"
offers "parallax vdi set demo/web --ring " "auto off on"
offers "parallax vdi set demo/web --ring=o" "off on"
offers "parallax vdi set --ring on d" "demo/db demo/web"
echo "all is well"
