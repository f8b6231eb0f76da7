# shellcheck shell=bash
# What the tests of the parallax command share; PARALLAX is the binary under test. Each test runs in a
# folder of its own. Each check says what it does; the first that fails ends the test. These functions run thousands of
# times: what bash can do itself starts no program, and the rest is peek (peek.c).
set -u

: "${PARALLAX:?the path of the command}" "${PEEK:?the program that looks into files}"
# In memory where there is room for it: a busy disk takes its time to flush, which nothing here needs.
memory=/dev/shm
(($(df --output=avail -k "$memory" 2>/dev/null | tail -n 1) > 4 << 20)) || {
    memory=${TMPDIR:-/tmp}
    echo "no 4 GiB in /dev/shm: volumes lie in $memory"
}
DIR=$(mktemp -d -p "$memory")
# Python itself, past what chooses among its versions: that takes longer than all that is asked of it.
[[ -x ${PYTHON:-} ]] || PYTHON=$(python3 -c 'import sys; print(sys.executable)')
PATH=${PYTHON%/*}:$PATH
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
    local status=$1 got lines
    shift
    timeout -k 5 300 "$PARALLAX" "$@" >"$DIR/out" 2>"$DIR/err" </dev/null
    got=$?
    [[ $got == "$status" ]] || die "parallax $*: exit status $got, not $status"
    # One line at most for an error (a finding is data).
    ((status == 0)) || { mapfile -n 2 lines <"$DIR/err" && [[ ${#lines[@]} == 1 && ${lines[0]} == *$'\n' ]]; } ||
        die "parallax $*: the error is not one line"
}

# typed ANSWER WORDS...: the command on a terminal, where ANSWER is typed; what the terminal shows is in out.
# Ends with the command's status.
typed() { timeout -k 5 300 "$PEEK" type "$1" "$PARALLAX" "${@:2}" >"$DIR/out" 2>"$DIR/err" </dev/null; }

# says FILE TEXT: it holds the text.
says() {
    local text
    read -rd '' text <"$DIR/$1"
    [[ $2 && $text == *"$2"* ]] || grep -qF -- "$2" "$DIR/$1" || die "$1 does not say '$2'"
}

# json KEY...: the value in out. A string is as it is, all else as JSON.
json() { "$PEEK" json "$DIR/out" "$@" || die "no $* in the JSON"; }

# json_count: how many values the array in out has.
json_count() { "$PEEK" count "$DIR/out" || die "out is no array"; }

# registry SQL: the first column of the first row, from a copy of store demo's registry.
registry() {
    rm -f "$DIR/registry.copy"
    "$PARALLAX" store export-registry demo "$DIR/registry.copy" >/dev/null 2>&1 || die "the registry cannot be copied"
    "$PEEK" sql "$DIR/registry.copy" "$1"
}

# registry_edit VOLUME SQL: changes the registry itself, behind everybody's back.
registry_edit() { "${REGISTRY_SQL:?the program that edits registries}" "$@" || die "the registry cannot be changed"; }

# no_registry VOLUME [MIB]: the registry's extents have something else in them; extents are of so many MiB, 1 by default.
no_registry() { "$PEEK" scramble "$1" "${2:-1}" || die "the registry cannot be overwritten"; }

# record_back OLDER VOLUME SLOT: both copies of the record in the slot as they are in the older volume.
record_back() { "$PEEK" record "$@" || die "the record cannot be put back"; }

# same FILE FILE
same() { cmp -s "$1" "$2" || die "$1 and $2 differ"; }

# singular: nowhere in what was printed is there one of many, "1 disks".
singular() {
    local file text many='1 ([a-z]+ )?[a-z]*s([^[:alnum:]_]|$)' # more than what is meant, seen at once
    for file in out err; do
        read -rd '' text <"$DIR/$file" || [[ $text =~ $many ]] || continue # a zero byte ends it
        grep -Ew '1 ((virtual|log|further|data|metadata|block) )?[a-z]+s' "$DIR/$file" |
            grep -Evw '1 ((virtual|log|further|data|metadata|block) )?(is|was|has|does|this|its|as|ms|us|ns)' >"$DIR/many" &&
            die "$file says '$(head -n 1 "$DIR/many")'"
    done
    return 0
}

step() { echo "- $*"; }

# stops PID: waits until a process stands still that a signal is to stop.
stops() {
    local state
    for _ in {1..600}; do
        state=
        { read -r state <"/proc/$1/stat"; } 2>/dev/null
        [[ ${state##*) } != T* ]] || return 0
        sleep 0.1
    done
    die "it did not stop"
}
