#!/bin/bash
# A handler that answers with nothing, or with something else than was asked, is not believed (SESSION-4): the command
# says so and fails. In the handler's place stands a socket under the number of a process that has the disk open.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

cat >stand-in <<'PYTHON'
import json, os, socket, sys
path, result = sys.argv[1], json.loads(sys.argv[2])
no_ring = {"vdi": "a", "on": False, "automatic": False, "turning": False, "records": 0, "bytes": 0, "waited_ns": 0, "memory": 0,
           "drained_bytes": 0, "full": False}
os.makedirs(os.path.dirname(path), exist_ok=True)
listener = socket.socket(socket.AF_UNIX)
if os.path.exists(path):
    os.unlink(path)
listener.bind(path)
listener.listen()
print("ready", flush=True)
while True:
    connection = listener.accept()[0]
    for line in connection.makefile():
        asked = json.loads(line)["command"]
        answer = None if asked in ("collect", "dedup") else no_ring if asked == "ring-status" else result
        connection.sendall(json.dumps({"ok": True, "result": answer}).encode() + b"\n")
PYTHON

run 0 store format demo --volume one --size 64M --extent-size 1M
run 0 vdi create demo/a --size 1M
run 0 snap create demo/a@one
run 0 snap create demo/a@two
run 0 snap create demo/a@three
mkfifo image
"$PARALLAX" vdi import - demo/a --force <image >/dev/null 2>&1 &
importer=$!
exec 9>image
owner=
for _ in $(seq 100); do
    owner=$(registry "SELECT owner FROM vdis WHERE owner IS NOT NULL")
    [[ $owner ]] && break
    sleep 0.1
done
[[ $owner ]] || die "nobody has the disk open"
registry_edit one "UPDATE instances SET role = 'handler' WHERE id = $owner" >/dev/null

# answering JSON: so is answered from now on.
answering() {
    [[ -z ${server:-} ]] || { kill "$server" && wait "$server" 2>/dev/null; }
    coproc SERVER { exec python3 stand-in "state/run/control/$owner.sock" "$1"; }
    server=$SERVER_PID
    read -r <&"${SERVER[0]}"
}
trap 'kill ${server:-} $importer 2>/dev/null; wait; rm -rf "$DIR"' EXIT

# refused WORDS...: the answer is not believed.
refused() {
    run 1 "$@"
    says err "the handler's answer was not understood"
    says err "is it of this version"
    [[ ! -s out ]] || die "parallax $*: it printed something"
}

for answer in null "{}" '{"seq": "1", "time_ns": 1}' '[]'; do
    step "answers of $answer"
    answering "$answer"
    refused snap create demo/a
    refused rewind demo/a --to one --live
    refused snap delete demo/a@one --force
    refused defrag demo/a
    refused gc demo
    refused dedup demo
    refused vdi stats demo/a
    refused store stats demo
    refused vdi resize demo/a --size 2M
    refused snap label demo/a@one new
    refused snap unlabel demo/a@one
    refused cdp on demo/a --every 10ms
    refused cdp off demo/a
done

step "a snapshot that has what it needs"
answering '{"vdi": "a", "seq": 7, "time_ns": 1}'
run 0 snap create demo/a
says out "demo/a@7"
refused rewind demo/a --to one --live
answering '{"vdi": "a", "seq": 0, "time_ns": 1, "label": "before"}'
refused snap create demo/a
says err '"seq" is no number of a snapshot'
refused rewind demo/a --to one --live

step "of another disk, or something else than was asked for"
answering '{"vdi": "b", "seq": 7, "time_ns": 1, "size_bytes": 2097152, "label": "new"}'
refused snap create demo/a
says err '"vdi" is another one'
refused vdi resize demo/a --size 2M
answering '{"vdi": "a", "seq": 1, "size_bytes": 1048576, "label": "other", "mode": "off", "retention": "all:1h"}'
refused vdi resize demo/a --size 2M
says err '"size_bytes" is another one'
refused snap label demo/a@one new
refused snap unlabel demo/a@one
refused cdp on demo/a --every 10ms
refused cdp off demo/a
answering '{"vdi": "a", "size_bytes": 2097152, "exported": false}'
run 0 vdi resize demo/a --size 2M
refused snap label demo/a@one new
for label in "" "7" "a/b" "-x" "$(printf %0100d 0)" "\\n"; do
    step "a label '$label', which is none"
    answering '{"vdi": "a", "seq": 4, "time_ns": 1, "label": "'"$label"'"}'
    refused rewind demo/a --to one --live
    says err '"label" is no name'
done
