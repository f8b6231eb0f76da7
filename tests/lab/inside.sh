# shellcheck shell=bash
# Functions for commands that run in a lab guest (every command sources this first), and for packaging/quickstart. The environment has
# LAB (this folder), BUILD (the build under test) and HANDLERS (the handlers to load). A function that fails says why and returns non-zero.

IQN=iqn.2026-11.org.lab:t
PORTAL=127.0.0.1:3260
CORE=/sys/kernel/config/target/core
TPG=/sys/kernel/config/target/iscsi/$IQN/tpgt_1
LOOP=/sys/kernel/config/target/loopback/naa.6001405000000001/tpgt_1
RUNNER_PID=/run/plx-runner.pid
RUNNER_OUT=/run/plx-runner.out
PATH=$BUILD:$PATH

fail() {
    echo "$*" >&2
    return 1
}

# nap SECONDS: a sleep without a program, whose start takes a guest 30 ms of processor time. A pipe that nobody writes to.
nap() {
    [ -n "${NAP:-}" ] || exec {NAP}<> <(:)
    read -rt "$1" -u "$NAP" || :
}

# wait_for SECONDS COMMAND...: until the command succeeds.
wait_for() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@" 2>/dev/null; do
        ((SECONDS < deadline)) || fail "gave up waiting: $*" || return
        nap 0.1
    done
}

# ---- daemons -------------------------------------------------------------------------------------

kernel_up() {
    [ -d /sys/kernel/config/target/core ] && [ -d /sys/module/iscsi_tcp ] && return
    modprobe -a configfs target_core_mod target_core_user iscsi_target_mod sd_mod sg iscsi_tcp || return
    mountpoint -q /sys/kernel/config || mount -t configfs configfs /sys/kernel/config
}

runner_answers() {
    dbus-send --system --print-reply --dest=org.kernel.TCMUService1 /org/kernel/TCMUService1 \
        org.freedesktop.DBus.Introspectable.Introspect >/dev/null
}

# runner_up: start tcmu-runner, which is ready when D-Bus knows it.
runner_up() {
    kernel_up || return
    if ! [ -S /run/dbus/system_bus_socket ]; then
        dbus-daemon --system --fork || return
    fi
    setsid tcmu-runner --handler-path "$HANDLERS" >>"$RUNNER_OUT" 2>&1 </dev/null &
    echo $! >"$RUNNER_PID"
    wait_for 60 runner_answers && runner_alive
}

runner_pid() { cat "$RUNNER_PID"; }

runner_alive() { ! runner_gone || fail "tcmu-runner is dead"; }

runner_gone() {
    local pid
    ! read -r pid <"$RUNNER_PID" || ! kill -0 "$pid" 2>/dev/null
}

# runner_down [SIGNAL]: TERM is an orderly stop, KILL a crash.
runner_down() {
    kill -"${1:-TERM}" "$(runner_pid)" && wait_for 30 runner_gone
}

# ---- target --------------------------------------------------------------------------------------

target_up() {
    [ -d "$TPG" ] && return
    mkdir -p "$TPG/np/0.0.0.0:3260" || return
    local attribute
    for attribute in authentication=0 demo_mode_write_protect=0 generate_node_acls=1 cache_dynamic_acls=1; do
        echo "${attribute#*=}" >"$TPG/attrib/${attribute%%=*}" || return
    done
    echo 1 >"$TPG/enable"
}

# store_add NAME CFGSTRING BYTES [CONTROL]: a user backstore, as targetcli makes it but without its checks.
store_add() {
    local dir=$CORE/user_${hba:=0}/$1
    mkdir -p "$dir" || return
    if ! { printf 'dev_size=%s,dev_config=%s%s' "$3" "$2" "${4:+,$4}" >"$dir/control" &&
        echo "${serial:-$(cat /proc/sys/kernel/random/uuid)}" >"$dir/wwn/vpd_unit_serial" &&
        echo 1 >"$dir/enable"; }; then
        rmdir "$dir"
        fail "backstore $1 refused: $2"
    fi
}

store_del() { rmdir "$CORE/user_0/$1"; }

# lun_add LUN NAME: export the backstore; lun_del LUN NAME takes it away again.
lun_add() {
    target_up || return
    mkdir "$TPG/lun/lun_$1" && ln -s "$CORE"/*_0/"$2" "$TPG/lun/lun_$1/$2"
}

lun_del() { rm "$TPG/lun/lun_$1/$2" && rmdir "$TPG/lun/lun_$1"; }

# put LUN CFGSTRING BYTES [CONTROL]: backstore vLUN and the LUN in one go.
put() {
    kernel_up && store_add "v$1" "$2" "$3" "${4:-}" && lun_add "$1" "v$1"
}

take() { lun_del "$1" "v$1" && store_del "v$1"; }

# put_disk LUN DEVICE: the kernel exports a block device itself; such a guest is a SAN.
put_disk() {
    local dir=$CORE/iblock_0/v$1
    kernel_up && modprobe target_core_iblock && mkdir -p "$dir" || return
    printf 'udev_path=%s' "$2" >"$dir/control" && echo "$2" >"$dir/udev_path" || return
    cat /proc/sys/kernel/random/uuid >"$dir/wwn/vpd_unit_serial" && echo 1 >"$dir/enable" || return
    lun_add "$1" "v$1"
}

# loop_up: what is put from here on, in this shell, becomes a disk of this machine itself, by tcm_loop instead of iSCSI.
loop_up() {
    TPG=$LOOP
    [ -d "$TPG" ] && return
    kernel_up && modprobe tcm_loop && mkdir -p "$TPG" && echo naa.6001405000000002 >"$TPG/nexus"
}

target_down() {
    local link dir
    [ -d "$TPG" ] && echo 0 >"$TPG/enable"
    for link in "$TPG"/lun/lun_*/*; do [ -L "$link" ] && rm "$link"; done
    for dir in "$TPG"/lun/lun_* "$TPG"/np/* "$TPG" "${TPG%/*}" "$CORE"/{user,iblock}_*/*; do
        case $dir in *hba_*) ;; *) [ -d "$dir" ] && rmdir "$dir" ;; esac
    done
    return 0
}

# ---- initiator -----------------------------------------------------------------------------------

# login [PORTAL]: discover and log in, then wait for the disks.
login() {
    kernel_up || return
    if ! pidof iscsid >/dev/null; then
        setsid iscsid >/dev/null 2>&1 </dev/null || return
        wait_for 10 pidof iscsid >/dev/null || return
    fi
    iscsiadm -m discovery -t sendtargets -p "${1:-$PORTAL}" >/dev/null || return
    iscsiadm -m node -p "${1:-$PORTAL}" --login >/dev/null || return
    settled
}

logout() {
    iscsiadm -m node --logout >/dev/null && iscsiadm -m node -o delete >/dev/null
}

# New LUNs and new sizes are looked for only when asked.
rescan() { iscsiadm -m session --rescan >/dev/null && settled; }

# Without udev the disk nodes come by devtmpfs, asynchronously: wait until every SCSI disk has one.
settled() {
    local device block tries
    for tries in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
        for device in /sys/class/scsi_disk/*/device; do
            block=("$device"/block/sd*)
            if ! [ -b "/dev/${block[0]##*/}" ]; then
                nap 0.1
                continue 2
            fi
        done
        return
    done
    fail "SCSI disks without a device node ($tries tries)"
}

# disk LUN: the initiator's device, found by the target's name for it and not by order of arrival.
disk() {
    local serial
    serial=$(sed 's/.*: //; s/-//g' "$TPG/lun/lun_$1"/*/wwn/vpd_unit_serial) || return
    wait_for 10 by_wwn "naa.6001405${serial:0:25}"
}

# by_wwn naa.HEX: /dev/sdX with this designator.
by_wwn() {
    local wwid
    for wwid in /sys/block/sd*/device/wwid; do
        if [ -e "$wwid" ] && [ "$(cat "$wwid")" = "$1" ]; then
            wwid=${wwid#/sys/block/}
            echo "/dev/${wwid%%/*}"
            return
        fi
    done
    return 1
}
