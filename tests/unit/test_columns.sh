#!/bin/bash
# Tables with the columns that somebody asked for, and sizes as exact numbers.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

run 0 store format demo --volume "$DIR/demo.plx" --size 256M
run 0 vdi create demo/web --size 16M
run 0 vdi create demo/db --size 32M
run 0 snap create demo/web@first

step "the columns that were asked for, in that order"
run 0 vdi list demo --columns size_bytes,name
[[ $(head -n 1 out) == *SIZE*NAME* ]] || die "the header is $(head -n 1 out)"
says out "16 MiB"
run 0 vdi list demo --columns name,size_bytes --bytes -q
[[ $(awk '{print $1, $2}' out | sort | tr '\n' ';') == "demo/db 33554432;demo/web 16777216;" ]] || die "that is $(cat out)"
run 0 store list --columns name,size_bytes --bytes --quiet
[[ $(awk '{print $1, $2}' out) == "demo 268435456" ]] || die "that is $(cat out)"

step "in JSON, too"
run 0 vdi list demo --columns name --json
[[ $(json 0 name) == "demo/db" ]] || die "that is $(cat out)"
run 0 snap list demo/web --columns time,labels --json
[[ $(python3 -c 'import json; print(list(json.load(open("out"))[0]))') == "['time', 'labels']" ]] || die "that is $(cat out)"

step "what differs, and what is protected"
run 0 cdp on demo/web
run 0 cdp status --columns name,protection -q
[[ $(awk '{print $1}' out) == "demo/web" ]] || die "that is $(cat out)"
run 0 cdp status demo --columns name --json
[[ $(json) == '[{"name": "demo/web"}]' ]] || die "that is $(cat out)"
head -c 1M /dev/urandom >image
run 0 vdi import image demo/db --force
run 0 diff demo/db --columns type,length -q
[[ $(awk '{print $1, $2}' out) == "data 1048576" ]] || die "that is $(cat out)"
for words in "diff demo/db --summary" "cdp status demo/web"; do
    # shellcheck disable=SC2086 # several words
    run 2 $words --columns name
    says err "--columns and --bytes are for lists, and "
    # shellcheck disable=SC2086 # several words
    run 2 $words --bytes
done

step "a column that there is not: which there are, and nothing else"
for words in "vdi list demo" "store list" "store scan demo.plx" "snap list demo/web" "find demo/web" "diff demo/web" "cdp status"; do
    # shellcheck disable=SC2086 # several words
    run 2 $words --columns name,nonsense,seq,volume
    says err "--columns: there is no '"
    [[ ! -s out ]] || die "$words printed $(cat out)"
done
for keys in "," "name," ",name" "name,,size_bytes"; do
    run 2 vdi list demo --columns "$keys"
    says err "each comma needs the key of a column on both sides, as in name,size_bytes"
done
run 2 vdi list demo --columns ""
run 2 vdi list demo --columns "$(printf 'name,%.0s' {1..17})"
says err "more than 16 columns"
echo "all is well"
