#!/bin/bash
# Words for the structures of a store that appear in messages are explained in the manual, for who has never read the code.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
sed -n '/^# WORDS IN MESSAGES/,/^# HOSTS/p' "$SOURCE/packaging/man/parallax.8.scd" >words
[[ -s words ]] || die "the manual explains no words"

step "each word that a message has is explained"
found=0
for word in extent bitmap superblock "home page" record slot log batch segment node tree "key frame" epoch generation instance sealed held instant; do
    # In a text of several words, which a message is.
    grep -rhE --include='*.c' "\"[^\"]* [^\"]*\\b$word(e?s)?\\b[^\"]*\"" "$SOURCE/handler" "$SOURCE/admin" >uses || die "no message has '$word'"
    grep -qE "^_.*_$word|^_$word" words || grep -qF "_${word}_" words || die "'$word' is not explained; it is in $(head -n 1 uses)"
    ((++found))
done
((found == 18)) || die "not all words were looked for"

step "words of the code's own are in no message"
for word in leaf tenancy tenant shelf witness overlay; do
    ! grep -rhE --include='*.c' "(plx_fault_set|plx_cli_fail|plx_out_note|plx_store_event)\\(.*\"[^\"]*\\b$word\\b" "$SOURCE/handler" "$SOURCE/admin" ||
        die "a message has '$word'"
done
echo "all is well"
