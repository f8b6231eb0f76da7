# shellcheck shell=bash
# Five writes that a ring has acknowledged and that the store lacks, for tests of the command. Read behind admin.sh.
: "${RING_FORGE:?the program that fills rings}"

# ring_writes ID MEMBER...: of this disk, in volume demo.plx.
ring_writes() {
    "$RING_FORGE" append "$1" 1 5 "${@:2}" || die "the ring cannot be filled"
    "$RING_FORGE" mark demo.plx "$1" "$2" || die "the disk cannot be marked"
}

# has_ring_writes IMAGE
has_ring_writes() { "$PEEK" writes "$1" || die "a write is not there"; }
