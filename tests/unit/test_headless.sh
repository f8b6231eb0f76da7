#!/bin/bash
# An extent that was claimed by a process that died before its header was written: it is free for anything,
# whatever its old header says that it was for.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)

# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

head -c 1M /dev/urandom >raw
run 0 store format demo --volume "$DIR/demo.plx" --size 32M --extent-size 1M
for disk in a b c; do run 0 vdi import raw "demo/$disk"; done
for _ in 1 2 3 4 5 6; do
    run 0 vdi import raw demo/a --force
    run 0 snap create demo/a
done
for disk in a b c; do run 0 vdi delete "demo/$disk" --yes; done
run 0 gc demo

step "one that was for metadata, and was claimed for data"
number=$(registry "SELECT group_concat(no) FROM extents WHERE type = 'unused'" | python3 -c '
import sys
volume = open("demo.plx", "rb").read()
print(next(no for no in map(int, sys.stdin.read().split(",")) if volume[(no << 20) + 12] == 3))') ||
    die "no extent was for metadata"
registry_edit "$DIR/demo.plx" "INSERT INTO instances (id, store, role, started_ns) SELECT 99, id, 'x', 1 FROM store;
    UPDATE extents SET type = 'data', owner = 99, request_id = 99 WHERE no = $number"
for disk in d e f g; do run 0 vdi import raw "demo/$disk"; done
run 0 store check demo --data
