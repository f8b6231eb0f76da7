#!/bin/bash
# tests/install-deps without a package being installed: services of packages do not start, and kill -9 leaves nothing behind.
# apt-get is played by this test, which runs what a package's script would.
set -u

DIR=$(mktemp -d)
trap 'rm -rf "$DIR"' EXIT
SCRIPT=$(dirname "$(realpath "$0")")/../install-deps
POLICY=/usr/sbin/policy-rc.d

die() {
    echo "FAILED: $*" >&2
    sed 's/^/    /' "$DIR/out" >&2
    exit 1
}

fake() { # fake NAME: a program of the next run, from standard input
    cat >"$DIR/bin/$1"
    chmod 755 "$DIR/bin/$1"
}

policy() { stat -c '%n %y %s' "$POLICY" 2>/dev/null || echo none; }

mkdir -p "$DIR/bin" "$DIR/tmp" "$DIR/cache/tcmu-runner"
touch "$DIR/cache/tcmu-runner/tcmu-runner.h"
echo 'exit 1' | fake dpkg-query # nothing is installed
echo 'echo 0' | fake id
fake apt-config <<'END'
echo "path='/usr/sbin:/usr/bin:/sbin:/bin'"
END
# What dpkg would find and run.
fake apt-get <<END
#!/bin/bash
[ "\${*/install/}" = "\$*" ] && exit
stat -c '%n %y %s' $POLICY >$DIR/policy 2>/dev/null || echo none >$DIR/policy
for word; do case \$word in DPkg::Path=*) PATH=\${word#*=} ;; esac; done
for name in invoke-rc.d deb-systemd-invoke; do
    command -v \$name >>$DIR/found
    \$name tcmu-runner start >>$DIR/said 2>&1 || echo "\$name failed" >>$DIR/said
done
[ ! -e $DIR/kill ] || kill -9 \$PPID
END

install_deps() {
    rm -f "$DIR/found" "$DIR/said" "$DIR/policy"
    PATH=$DIR/bin:$PATH TMPDIR=$DIR/tmp PLX_CACHE=$DIR/cache "$SCRIPT" "$@" >"$DIR/out" 2>&1
}

before=$(policy)
install_deps --build-only || die "exit $?"
[ "$(grep -c "^$DIR/tmp/" "$DIR/found")" = 2 ] || die "services would start by $(cat "$DIR/found")"
[ ! -s "$DIR/said" ] || die "a package's script would fail: $(cat "$DIR/said")"
[ "$(cat "$DIR/policy")" = "$before" ] || die "$POLICY is there meanwhile"
[ -z "$(ls "$DIR/tmp")" ] || die "something is left: $(ls "$DIR/tmp")"

touch "$DIR/kill"
{ install_deps --build-only && die "it was not killed"; } 2>/dev/null
[ "$(policy)" = "$before" ] || die "killed, it leaves $POLICY"
rm "$DIR/kill"
install_deps --build-only || die "after a death: exit $?"
[ ! -e "$DIR/cache/rqlite" ] || die "rqlited is no part of building"

rm -rf "${DIR:?}"/tmp/*

# rqlited: built by a Go that is new enough, and never a reason to fail.
fake go <<END
[ "\$1" = env ] && echo go1.23.9
END
install_deps || die "with an old Go: exit $?"
grep -q "no rqlited: Go is older than 1.24; the tests .* are skipped" "$DIR/out" || die "an old Go: nothing is said"
fake go <<END
[ "\$1" = env ] && echo go1.24 && exit
echo "no route to the modules" >&2
exit 1
END
install_deps || die "without modules: exit $?"
grep -q "no rqlited: its modules .*no route to the modules" "$DIR/out" || die "without modules: nothing is said"
[ ! -e "$DIR/cache/rqlite/go.sum" ] || die "without modules: it counts as built"
fake go <<END
[ "\$1" = env ] && echo go1.30.1 && exit
mkdir -p "\$GOBIN" && printf '#!/bin/sh\n' >"\$GOBIN/rqlited" && chmod 755 "\$GOBIN/rqlited"
END
install_deps || die "with Go: exit $?"
[ -x "$DIR/cache/rqlite/bin/rqlited" ] || die "with Go: there is no rqlited"
install_deps || die "built before: exit $?"
grep -q "building rqlited" "$DIR/out" && die "it is built again"
[ -z "$(ls "$DIR/tmp")" ] || die "something is left: $(ls "$DIR/tmp")"
echo "all is well"
