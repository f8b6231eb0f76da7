#!/bin/bash
# Four LUNs of one store under mixed load through the handler, every sector checked; then the store.
# usage: load.sh BUILD-FOLDER [OPERATIONS]

set -euo pipefail

build=$1
operations=${2:-4000}
folder=$(mktemp -d /var/tmp/plx-load-XXXXXX)
trap 'rm -rf "$folder"' EXIT
export PARALLAX_STATE_DIR=$folder/state

"$build/parallax" -q store format s --volume "$folder/volume" --size 1G --extent-size 8M
for lun in 0 1 2 3; do
    "$build/parallax" -q vdi create "s/v$lun" --size 48M
done
# --verify starts from zeroes, so each run has its own disks, or is the first on them.
run() {
    "$build/harness" "$build/handler_parallax.so" "$1" --size $((48 << 20)) --verify --flush 64 --quiet "${@:2}"
}
run 'parallax/s/v0' --rw trim --bs 4096 --ops "$operations"
run 'parallax/s/v1;cache=on' --rw randrw --bs 512 --ops "$operations"
run 'parallax/s/v2;overwrite=copy' --rw trim --bs 65536 --ops $((operations / 8))
run 'parallax/s/v3' --rw write --bs 12288 --ops $((operations / 4))

for lun in 0 1 2 3; do
    "$build/parallax" -q vdi create "s/w$lun" --size 48M
done
run 'parallax/s/w%d' --luns 4 --rw trim --bs 4096 --ops "$operations" --seed 7
"$build/parallax" store check s
