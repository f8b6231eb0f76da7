#!/bin/bash
# Passwords of iSCSI targets belong into the credentials file: the command takes none in a volume's name, prints none,
# and keeps none. (What the file says is tested by test_credentials, logins by test_iscsi.)
SOURCE=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/unit/admin.sh
. "$SOURCE/tests/unit/admin.sh"

LUN=127.0.0.1:1/iqn.2026-11.org.example:disk/0
URL=iscsi://me%hush@$LUN
unset LIBISCSI_CHAP_USERNAME LIBISCSI_CHAP_PASSWORD
export PARALLAX_ISCSI_CREDENTIALS=$DIR/credentials
: >credentials
chmod 600 credentials

# secret: what was printed does not have it.
secret() { ! grep -q hush "$DIR/out" "$DIR/err" || die "the password was printed"; }

step "a password in a volume's name is refused, wherever it stands"
run 0 store format demo --volume "$DIR/demo.plx" --size 256M
for words in "store format san --volume $URL" "store format san --volume=$URL" "store format san --volume $URL --volume $URL" \
    "store add-volume demo $URL" "store scan $URL" "store scan -- $URL" "store import --volume $URL" \
    "store rebuild-registry --volume $URL" "store take-over --volume $URL --any --i-checked-it-is-off" \
    "store info $URL" "store $URL" "$URL" "store info demo $URL" "store info demo -- $URL" "store info demo --volum=$URL" \
    "store scan iscsi://me:hush@$LUN" "store scan iscsi://$LUN?target_user=x&target_password=hush"; do
    # shellcheck disable=SC2086 # several words
    run 2 $words
    says err "no password in a volume's name"
    says err "put a line 'TARGET USER PASSWORD' into $DIR/credentials (mode 600)"
    secret
    # shellcheck disable=SC2086
    run 2 --json $words
    secret
done
! grep -rq hush state || die "the password was kept"

step "the credentials file is asked before the target is"
run 1 store scan "iscsi://$LUN"
says err "cannot reach iscsi://$LUN"
run 1 store scan "iscsi://me@$LUN"
says err "cannot reach iscsi://me@$LUN"
printf '127.0.0.1 me hush\n127.0.0.1 hush\n' >credentials
run 1 store scan "iscsi://$LUN"
says err "$DIR/credentials, line 2: it has not 3 or 5 fields"
secret
chmod 640 credentials
run 1 store scan "iscsi://$LUN"
says err "(mode 640): chmod 600 $DIR/credentials"
rm credentials
run 3 store scan "iscsi://$LUN"
says err "cannot read $DIR/credentials"
run 0 store scan "$DIR/demo.plx" # no target, no credentials
: >credentials
chmod 600 credentials

step "a store that is known by a name with a password: nobody sees it any more"
python3 - "$URL" <<'PYTHON'
import json, sys
entry = json.load(open("state/stores/demo.json"))
entry["volumes"] = [sys.argv[1]]
entry["uuid"] = entry["uuid"][:-4] + "0000"
json.dump(entry, open("state/stores/old.json", "w"))
PYTHON
for words in "store list" "store list --json"; do
    # shellcheck disable=SC2086
    run 1 $words # its target is not there
    says out "iscsi://me@$LUN"
    secret
done
run 1 store info old
says err "cannot reach iscsi://me@$LUN"
secret
