#!/bin/bash
# How many flushes commands cost, all that they do included; test_commits.c counts those of registry and engine alone.
# A flush of a disk takes milliseconds, so these are what an operator waits for. Who makes one cheaper lowers its number.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
: "${PARALLAX_STAGED:?the path of the staged command}"

# costs MOST WORDS...: the command works, with no more flushes than that.
costs() {
    local most=$1 flushes
    shift
    PLX_STAGE_FLUSHES=flushes "$PARALLAX_STAGED" "$@" >out 2>err || die "parallax $*: $(<err)"
    flushes=$(<flushes)
    echo "    parallax $*: $flushes flushes"
    ((flushes <= most)) || die "parallax $*: $flushes flushes, not $most"
    ((flushes > 0 || most == 0)) || die "parallax $*: no flush was counted"
}

step "flushes"
run 0 store format demo --volume "$DIR/demo.plx" --size 1G --extent-size 8M
run 0 vdi create demo/first --size 16M # the first one of this boot says so in both slots of the home page
costs 0 vdi list demo
costs 0 store check demo --data
costs 16 vdi create demo/web --size 16M
costs 27 snap create demo/web@one
costs 28 vdi clone demo/web@one demo/copy
costs 26 snap label demo/web@one more
costs 24 vdi rename demo/copy demo/other
costs 23 vdi delete demo/other --yes
