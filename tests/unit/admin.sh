# shellcheck shell=bash
# What the tests of the parallax command share; PARALLAX is the binary under test. Each test runs in a
# folder of its own. Each check says what it does; the first that fails ends the test.
set -u

: "${PARALLAX:?the path of the command}"
# In memory where there is room for it: a busy disk takes its time to flush, which nothing here needs.
memory=/dev/shm
(($(df --output=avail -k "$memory" 2>/dev/null | tail -n 1) > 4 << 20)) || {
    memory=${TMPDIR:-/tmp}
    echo "no 4 GiB in /dev/shm: volumes lie in $memory"
}
DIR=$(mktemp -d -p "$memory")
# Python itself, past what chooses among its versions: that takes longer than all that is asked of it.
PATH=$(dirname "$(python3 -c 'import sys; print(sys.executable)')"):$PATH
trap 'rm -rf "$DIR"' EXIT
export TZ=Europe/Berlin PARALLAX_STATE_DIR="$DIR/state"
unset LC_ALL LANG LC_CTYPE
cd "$DIR" || exit 1

die() {
    echo "FAILED: $*" >&2
    for file in out err; do [[ -e $DIR/$file ]] && sed "s/^/    $file: /" "$DIR/$file" >&2; done
    exit 1
}

# part_skipped WHAT: a part of this test is left out, although the test passes. tests/run lists all of these lines.
part_skipped() { echo "PART SKIPPED: $*"; }

# run STATUS WORDS...: the command ends with this status; its output is in out and err.
run() {
    local status=$1 got
    shift
    timeout -k 5 300 "$PARALLAX" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    got=$?
    [[ $got == "$status" ]] || die "parallax $*: exit status $got, not $status"
    # One line at most for an error (a finding is data).
    ((status == 0)) || [[ $(wc -l <"$DIR/err") == 1 ]] || die "parallax $*: the error is not one line"
}

# typed ANSWER WORDS...: the command on a terminal, where ANSWER is typed; what the terminal shows is in out.
# Ends with the command's status.
typed() {
    timeout -k 5 300 python3 -c '
import os, pty, sys
first = True
def master_read(fd):
    global first
    data = os.read(fd, 65536)
    if first and b"[yes/no]" in data:
        first = False
        os.write(fd, sys.argv[1].encode() + b"\n")
    return data
sys.exit(os.waitstatus_to_exitcode(pty.spawn(sys.argv[2:], master_read)))' "$1" "$PARALLAX" "${@:2}" >"$DIR/out" 2>"$DIR/err" </dev/null
}

# says FILE TEXT: it holds the text.
says() { grep -qF -- "$2" "$DIR/$1" || die "$1 does not say '$2'"; }

# json KEY...: the value in out, by jansson's rules read by python.
json() {
    python3 -c '
import json, sys
value = json.load(open(sys.argv[1]))
for key in sys.argv[2:]:
    value = value[int(key) if isinstance(value, list) else key]
print(value if isinstance(value, str) else json.dumps(value))' "$DIR/out" "$@" || die "no $* in the JSON"
}

# registry SQL: the first column of the first row, from a copy of store demo's registry.
registry() {
    rm -f "$DIR/registry.copy"
    "$PARALLAX" store export-registry demo "$DIR/registry.copy" >/dev/null 2>&1 || die "the registry cannot be copied"
    python3 -c '
import sqlite3, sys
row = sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchone()
print(row[0] if row and row[0] is not None else "")' "$DIR/registry.copy" "$1"
}

# registry_edit VOLUME SQL: changes the registry itself, behind everybody's back.
registry_edit() { "${REGISTRY_SQL:?the program that edits registries}" "$@" || die "the registry cannot be changed"; }

# no_registry VOLUME [MIB]: the registry's extents have something else in them; extents are of so many MiB, 1 by default.
no_registry() {
    python3 - "$1" "${2:-1}" <<'END' || die "the registry cannot be overwritten"
import os, struct, sys
with open(sys.argv[1], "r+b") as volume:
    head = volume.read(1 << 20)
    spans = [struct.unpack_from("<QQ", head, 2048 + 32 * n + 8) for n in range(struct.unpack_from("<I", head, 196)[0])]
    assert spans
    for first, count in spans:
        volume.seek(first * int(sys.argv[2]) << 20)
        volume.write(os.urandom(count * int(sys.argv[2]) << 20))
END
}

# record_back OLDER VOLUME SLOT: both copies of the record in the slot as they are in the older volume.
record_back() {
    python3 - "$@" <<'END' || die "the record cannot be put back"
import sys
older, volume = open(sys.argv[1], "rb").read(1 << 20), open(sys.argv[2], "r+b")
at = older.index(b"PLXVDREC") + 8192 * int(sys.argv[3])
volume.seek(at)
volume.write(older[at : at + 8192])
END
}

# same FILE FILE
same() { cmp -s "$1" "$2" || die "$1 and $2 differ"; }

# singular: nowhere in what was printed is there one of many, "1 disks".
singular() {
    local file
    for file in out err; do
        grep -Ew '1 ((virtual|log|further|data|metadata|block) )?[a-z]+s' "$DIR/$file" |
            grep -Evw '1 ((virtual|log|further|data|metadata|block) )?(is|was|has|does|this|its|as|ms|us|ns)' >"$DIR/many" &&
            die "$file says '$(head -n 1 "$DIR/many")'"
    done
    return 0
}

step() { echo "- $*"; }

# stops PID: waits until a process stands still that a signal is to stop.
stops() {
    for _ in {1..600}; do
        [[ $(ps -o state= -p "$1") != T* ]] || return 0
        sleep 0.1
    done
    die "it did not stop"
}
