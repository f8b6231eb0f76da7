#!/bin/bash
# A store whose registry lies on the nodes of a cluster: how it gets there and back, wherever a command is cut off, and that
# only one of the two registries ever counts.
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"
# shellcheck source=tests/unit/nodes.sh
. "$SOURCE/tests/unit/nodes.sh"

head -c 4M /dev/urandom >first
head -c 4M /dev/urandom >second

step "without nodes: what to do is said, and nothing changes"
run 0 store format demo --volume "$DIR/demo.plx" --size 96M --extent-size 1M
run 3 cluster leave demo
says err "store demo is in no cluster"
for words in "init demo" status; do
    # shellcheck disable=SC2086 # words
    run 1 cluster $words
    says err "name them in section [registry] of /etc/parallax/parallax.conf"
done
start_nodes 1
run 0 cluster status --json
[[ $(json cluster) == null && $(json nodes 0 answers) == true && $(json stores) == "[]" ]] || die "$(<out)"

step "into the cluster: all is as before"
run 0 vdi import first demo/web
run 0 snap create demo/web@first
run 0 vdi clone demo/web@first demo/copy
run 0 vdi import second demo/web --force
run 0 vdi set demo/copy --warn-at 2M
# listing: all that the registry says of the store.
listing() {
    for words in "vdi list" "snap list demo/web" "vdi info demo/copy" tree "store list"; do
        # shellcheck disable=SC2086 # words
        "$PARALLAX" $words --json || die "parallax $words"
    done 2>&1 | grep -v '"time\|_ns"\|age'
}
listing >before
run 0 cluster init demo --json
[[ $(json name) == demo && $(json cluster) == ????????-* ]] || die "$(<out)"
listing >after
same before after
run 0 cluster status --json
[[ $(json stores 0 name) == demo && $(json stores 0 state) == normal ]] || die "$(<out)"
run 0 vdi export demo/web copy --force
same copy second
run 0 vdi export demo/copy copy --force
same copy first
run 0 store check demo --data
run 0 gc demo
run 0 store info demo

step "who lacks the nodes is refused, and told which cluster it is"
: >empty.conf
cluster=$("$PARALLAX" cluster status --json | python3 -c 'import json, sys; print(json.load(sys.stdin)["cluster"])')
for words in "vdi list demo" "vdi create demo/new --size 1M" "store check demo" "cluster leave demo"; do
    # shellcheck disable=SC2086 # words
    PARALLAX_CONFIG=$DIR/empty.conf run 1 $words
    says err "name them in section [registry]"
done
run 4 store format other --volume "$DIR/demo.plx" --force
run 4 cluster init demo
says err "store demo is in cluster $cluster already"
run 4 store rebuild-registry demo
says err "'parallax cluster leave demo' brings that back"

step "a volume that was copied is not taken for the one that the cluster has"
cp --sparse=always demo.plx copied.plx
run 0 store forget demo
run 1 store import copied --new-identity --volume "$DIR/copied.plx"
says err "'parallax store rebuild-registry --volume PATH --registry-lost' gives this copy a registry of its own"
run 4 store rebuild-registry --volume "$DIR/copied.plx"
run 5 store rebuild-registry --volume "$DIR/copied.plx" --registry-lost --dry-run -q # 5: what only the nodes know is gone
run 5 store rebuild-registry --volume "$DIR/copied.plx" --registry-lost -q
PARALLAX_CONFIG=$DIR/empty.conf run 0 vdi export demo/web copy --force
same copy second
run 0 store forget demo
run 0 store import --volume "$DIR/demo.plx"

step "a node of another cluster is not believed, whoever else does not answer"
NODES[1]=http://127.0.0.1:$(free_port)
node_raft[1]=127.0.0.1:$(free_port)
start_node 1 alone
printf '[registry]\nnode = %s\n' "${NODES[1]}" >other.conf
PARALLAX_CONFIG=$DIR/other.conf nodes_answer
run 0 store format other --volume "$DIR/other.plx" --size 96M --extent-size 1M
PARALLAX_CONFIG=$DIR/other.conf run 0 cluster init other
printf '[registry]\nnode = %s\nnode = %s\n' "${NODES[@]}" >both.conf
PARALLAX_CONFIG=$DIR/both.conf run 1 cluster status -q
says err "1 of 2 nodes do not answer as one cluster"
mkfifo pipe
PARALLAX_CONFIG=$DIR/both.conf "$PARALLAX" vdi import - demo/piped --size 8M <pipe >piped.out 2>piped.err &
piped=$!
exec 3>pipe
cat first >&3
until "$PARALLAX" vdi list demo --json | grep -q piped; do sleep 0.1; done
kill_node 0
cat second >&3
exec 3>&-
sleep 1
start_node 0
wait "$piped" || die "import: $? $(<piped.err)"
nodes_answer
run 0 vdi export demo/piped copy --force
cat first second | cmp - copy || die "what was imported differs"
run 0 vdi delete demo/piped --yes
PARALLAX_CONFIG=$DIR/other.conf run 0 cluster leave other
kill_node 1
run 0 store forget other
rm other.plx

step "out of the cluster: all is as before, and the nodes know nothing of the store"
run 0 vdi import first demo/new
listing >before
run 0 cluster leave demo --json
[[ $(json name) == demo && $(json cluster) == null ]] || die "$(<out)"
listing >after
same before after
run 0 cluster status --json
[[ $(json stores) == "[]" ]] || die "the nodes know the store still"
run 3 cluster leave demo
PARALLAX_CONFIG=$DIR/empty.conf run 0 vdi export demo/new copy --force
same copy first
run 0 store check demo --data

# copies: the superblock's slots and its spare say the same of the cluster.
copies() {
    python3 - <<'END' || die "the superblock's copies differ" 2>&1
import sys
volume = open("demo.plx", "rb").read(1 << 20)
found = [volume[at + 224 : at + 248] for at in range(0, len(volume), 4096) if volume[at : at + 8] == b"PLXSUPER"]
sys.exit(len(found) != 3 or len(set(found)) != 1)
END
}

# cut VERB BACK: `cluster VERB` is killed before some of its calls that hand something to the volume, and before each of the
# last ones, with the superblock; then it is run again. BACK takes it back.
cut() {
    local k count status killed=0
    listing >before
    PLX_STAGE_COUNT=$DIR/count "$PARALLAX_STAGED" cluster "$1" demo >out 2>err || die "uncut: $(<err)"
    run 0 cluster "$2" demo
    count=$(<count)
    for ((k = 1 + RANDOM % 8; k <= count; k += count - k > 24 ? 16 : 1)); do
        PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$k timeout 60 "$PARALLAX_STAGED" cluster "$1" demo >out 2>err </dev/null
        status=$?
        ((status == 137)) || break
        ((++killed))
        listing >after
        same before after
        "$PARALLAX" cluster "$1" demo >out 2>err
        status=$?
        ((status == 0)) || grep -qE "is in cluster .* already|is in no cluster" err || die "cut $k: $1 ends with $status: $(<err)"
        copies
        listing >after
        same before after
        ((killed % 8)) || run 0 store check demo --data
        run 0 cluster "$2" demo
    done 2>/dev/null
    ((killed > 20)) || die "$1 was killed only $killed times"
    echo "  $1 was killed $killed times in $count calls"
}

step "a leaving that fails leaves the store in use"
run 0 cluster init demo
PLX_STAGE_WRITE_FAILS=40 timeout 60 "$PARALLAX_STAGED" cluster leave demo >out 2>err </dev/null && die "it left"
run 0 cluster status
says out "demo   normal"
run 0 vdi create demo/more --size 1M
run 0 vdi delete demo/more --yes

step "taken back on its way out; while that is open, the store can be read and not be written"
PLX_STAGE_COUNT=$DIR/count "$PARALLAX_STAGED" cluster leave demo >out 2>err || die "$(<err)"
run 0 cluster init demo
{ PLX_STAGE_SIGNAL=9 PLX_STAGE_AT=$(($(<count) / 2)) timeout 60 "$PARALLAX_STAGED" cluster leave demo >out 2>err </dev/null; } 2>/dev/null
run 1 vdi create demo/more --size 1M
says err "'parallax cluster leave' goes on with it"
run 0 cluster status
says out "demo   leaving"
run 0 vdi export demo/web copy --force
same copy second
run 0 cluster init demo
run 0 vdi create demo/more --size 1M
run 0 cluster leave demo

step "from host to host, as without a cluster"
run 0 cluster init demo
run 0 store release demo
mkdir beta
cat /proc/sys/kernel/random/uuid >beta/host-id
cat /proc/sys/kernel/random/uuid >beta/boot
beta() { PLX_STAGE_HOST=beta PLX_STAGE_BOOT=$DIR/beta/boot PARALLAX_STATE_DIR=$DIR/beta PARALLAX=$PARALLAX_STAGED run "$@"; }
cp --sparse=always demo.plx homeless.plx
dd if=/dev/zero of=homeless.plx bs=4096 seek=2 count=2 conv=notrunc status=none
beta 5 store import --volume "$DIR/homeless.plx"
says err "home page is lost, so nobody knows which host has the store"
beta 4 store format homeless --volume "$DIR/homeless.plx" --force
says err "add --i-checked-nobody-uses-it"
PARALLAX_CONFIG=$DIR/empty.conf beta 1 store import --volume "$DIR/demo.plx"
says err "belongs to cluster $cluster, whose nodes are not named here"
kill_node 0
beta 1 store import --volume "$DIR/demo.plx"
start_node 0
nodes_answer
run 0 store import --volume "$DIR/demo.plx" # nobody has taken it
run 0 store release demo
beta 0 store import --volume "$DIR/demo.plx"
beta 0 vdi create demo/betas --size 1M
run 4 vdi create demo/more2 --size 1M
says err "belongs to host beta"
run 0 store take-over demo --from beta --i-checked-it-is-off
run 0 vdi delete demo/betas --yes
run 0 cluster leave demo

step "two copies with one identity, on two hosts: the rows are one host's"
run 0 cluster init demo
run 0 store release demo
cp --sparse=always demo.plx twin.plx
run 0 store import --volume "$DIR/demo.plx"
beta 0 store forget demo
beta 4 store import --volume "$DIR/twin.plx"
says err "has store demo: if that host is off"
run 0 vdi export demo/web copy --force
same copy second

step "put back to before it joined: the nodes' rows are replaced by word only"
run 0 cluster leave demo
cp --sparse=always demo.plx before.plx
run 0 cluster init demo
cat before.plx >demo.plx
run 4 cluster init demo
says err "add --i-checked-nobody-uses-it"
run 0 vdi export demo/web copy --force # its own registry is back with it
same copy second
run 0 cluster init demo --i-checked-nobody-uses-it
run 0 vdi export demo/web copy --force
same copy second
run 0 store check demo --data
run 0 cluster leave demo

step "killed before a write, either way: the same command goes on, and nothing is lost"
cut init leave
run 0 cluster init demo
cut leave init
run 0 cluster leave demo

step "the nodes are gone for good: the store gets a registry of its own by word, and only by word"
run 0 cluster init demo
run 0 vdi delete demo/more --yes # what the database in the store does not know
run 0 vdi create demo/later --size 1M
kill_node 0
run 1 cluster status -q
says err "1 of 1 nodes do not answer as one cluster"
run 1 vdi list demo
says err "${NODES[0]}"
run 4 store rebuild-registry demo
run 5 store rebuild-registry demo --registry-lost --json
[[ $(json vdis) == 4 && $(json lost_records) == 0 && $(json older_records) == 0 ]] || die "$(<out)"
run 0 vdi export demo/web copy --force
same copy second
run 0 store check demo --data
run 3 cluster leave demo
