# shellcheck shell=bash
# rqlite nodes for tests of the command. Read behind admin.sh. NODES: the addresses; PARALLAX_CONFIG names them.
rqlited=${PLX_RQLITED:-/var/cache/parallax/rqlite/bin/rqlited}
[[ -x $rqlited ]] || {
    part_skipped "the registry on rqlite nodes: there is no $rqlited (tests/install-deps builds it, and says why if it cannot)"
    exit 0
}
# LeakSanitizer looks through the threads of a process that ends. Where the process has loaded libcurl, it crashed once in some
# hundred times. What the driver for nodes leaks, test_rqlite and test_carry show.
export ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0
declare -a NODES=() node_raft=() node_pid=()
trap 'kill -9 "${node_pid[@]}" $(jobs -p) 2>/dev/null; wait 2>/dev/null; rm -rf "$DIR"' EXIT

# free_port: of the loopback device; nobody listens there.
free_port() {
    local port
    while port=$((20000 + RANDOM % 12000)); do
        (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
    done
    echo "$port"
}

# start_node N [alone]: node N, 0 first; it joins node 0, or is a cluster of its own.
start_node() {
    local words=(-fk -node-id "n$1" -http-addr "${NODES[$1]#http://}" -raft-addr "${node_raft[$1]}")
    [[ $1 == 0 || ${2-} == alone ]] || words+=(-join "${node_raft[0]}")
    "$rqlited" "${words[@]}" "$DIR/node$1" >>"$DIR/node$1.log" 2>&1 &
    node_pid[$1]=$!
}

# start_nodes COUNT: a cluster, and a configuration file that names it.
start_nodes() {
    local n
    for ((n = 0; n < $1; n++)); do
        NODES[n]=http://127.0.0.1:$(free_port)
        node_raft[n]=127.0.0.1:$(free_port)
        start_node "$n"
    done
    export PARALLAX_CONFIG=$DIR/parallax.conf
    { echo "[registry]" && printf 'node = %s\n' "${NODES[@]}"; } >"$PARALLAX_CONFIG"
    nodes_answer
}

# nodes_answer: waits until all of them do.
nodes_answer() {
    for _ in {1..300}; do
        ! "$PARALLAX" cluster status >"$DIR/out" 2>"$DIR/err" || return 0
        sleep 0.2
    done
    cat "$DIR"/node*.log >&2
    die "the nodes do not answer"
}

# kill_node N
kill_node() {
    kill -9 "${node_pid[$1]}"
    wait "${node_pid[$1]}" 2>/dev/null
    unset "node_pid[$1]" # another process may get that number
}
