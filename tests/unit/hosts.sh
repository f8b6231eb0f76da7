# shellcheck shell=bash
# Several machines on one, for tests of the command: each has a name, a boot and a state directory of its own. Read behind
# admin.sh; from then on PARALLAX is the staged command.
# shellcheck disable=SC2034 # of admin.sh
PARALLAX=${PARALLAX_STAGED:?the path of the staged command}

# host NAME: a machine, or one that has another id by now.
host() {
    mkdir -p "$1"
    cat /proc/sys/kernel/random/uuid >"$1/host-id"
    cat /proc/sys/kernel/random/uuid >"$1/boot"
}

# on HOST STATUS WORDS...: `run` there.
on() { PLX_STAGE_HOST=$1 PLX_STAGE_BOOT=$DIR/$1/boot PARALLAX_STATE_DIR=$DIR/$1 run "${@:2}"; }

# whole FILE: each command that it advises is there up to its closing quote.
whole() {
    local begun closed
    begun=$(grep -o "'parallax " "$DIR/$1" | wc -l)
    closed=$(grep -o "'parallax [^']*'" "$DIR/$1" | wc -l)
    [[ $begun == "$closed" && $begun != 0 ]] || die "$1 has a command that is cut off, or none"
}
