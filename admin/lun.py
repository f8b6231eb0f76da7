"""Exports virtual disks through the kernel's iSCSI target (LIO), by rtslib.

Built into the parallax command, which hands over a request as JSON on standard input and reads the
answer, {"result": ...} or {"error": {"code", "message"}}, from standard output.

LUN-1  One at a time: targetcli's own lock is held throughout.
LUN-2  What fails is taken back: a create leaves all of it or nothing.
LUN-3  Only what a request names is changed, in the kernel and in the saved configuration; objects
    of other tools, and saved ones that could not be restored, stay as they are. A delete names a
    virtual disk: what exports exactly that goes, whoever made it, its iSCSI LUNs first and then its
    backstore. For as long as the backstore is there, the disk is open and can be neither renamed nor
    deleted. A backstore that anything else uses stays: a LUN of another target, or of a fabric that
    is not iSCSI (loopback, vhost), which is none of ours.
LUN-4  What somebody else set up keeps its rules. A target that was there before gets a LUN, and
    ACLs for the initiators that the request names, and nothing else: its attributes, portals and
    ACLs are compared with what is asked for, and a difference is an error. The targets and ACLs
    that create makes bear a mark (the target's alias, an ACL's tag) that is saved and restored
    with them; of targets and ACLs only those go again, when the last LUN does.
LUN-5  Who may log in is always said: the initiators by name, or any.
LUN-6  A LUN keeps its identity: the unit serial is the virtual disk's (or derived for a snapshot).
"""
import contextlib
import fcntl
import glob
import json
import os
import re
import socket
import struct
import subprocess
import sys
import uuid

PREFIX = "iqn.2026-11.org.parallax:"
SUBTYPE = "parallax/"
LOCK = "/run/targetcli.lock"
SAVED = "/etc/rtslib-fb-target/saveconfig.json"
LOG = "/var/log/tcmu-runner.log"
ALIAS = "Parallax"  # the TargetAlias of targets made here; the kernel's default is another
TAG = "parallax-"  # begins the tags of ACLs made here
TAG_MAX = 63
SERVICE, OBJECT = "org.kernel.TCMUService1", "/org/kernel/TCMUService1/parallax"
SIOCGIFADDR = 0x8915
CONFIG_MAX = 254  # bytes that the kernel and tcmu-runner keep of a configuration


class Failure(Exception):
    """An answer with an error code of the command's own table."""

    def __init__(self, code, message):
        super().__init__(message)
        self.code = code


try:
    import rtslib_fb as rtslib
    from rtslib_fb.utils import fread
    from gi.repository import Gio, GLib
except ImportError as missing:
    rtslib, why_not = None, missing


# ---- names --------------------------------------------------------------------------------------

def plain_name(request):
    """STORE.VDI or STORE.VDI.sSEQ: for backstores and targets, where '/' and '@' are not allowed."""
    seq = request.get("seq")
    return f"{request['store']}.{request['vdi']}" + (f".s{seq}" if seq else "")


def config_of(request):
    seq = request.get("seq")
    return f"{SUBTYPE}{request['store']}/{request['vdi']}" + (f"@{seq}" if seq else "")


def name_in(config):
    """What a backstore exports, without the handler's options."""
    return config[len(SUBTYPE):].partition(";")[0]


def default_target(request):
    return PREFIX + re.sub("[^a-z0-9.-]", "-", plain_name(request).lower())


def serial_of(request):
    identity = uuid.UUID(request["uuid"])
    return str(uuid.uuid5(identity, str(request["seq"])) if request.get("seq") else identity)


def parse_portal(text):
    match = re.fullmatch(r"(\[[0-9a-fA-F:.]+\]|[0-9.]+)(?::([0-9]{1,5}))?", text)
    if not match or not 0 < int(match[2] or 3260) < 65536:
        raise Failure("USAGE", f"--portal '{text}' is not IP[:PORT]; write 192.0.2.7:3260 or [2001:db8::7]:3260")
    return match[1], int(match[2] or 3260)


def own_address():
    """The address that this host uses towards others, else that of its first interface; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        with contextlib.suppress(OSError):
            probe.connect(("192.0.2.1", 9))
            return probe.getsockname()[0]
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):
                answer = fcntl.ioctl(probe, SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                address = socket.inet_ntoa(answer[20:24])
                if not address.startswith("127."):
                    return address
    return "127.0.0.1"


def address_of(portal, target, lun):
    ip = portal.ip_address.strip("[]")
    host = own_address() if ip in ("0.0.0.0", "::") else f"[{ip}]" if ":" in ip else ip
    return f"iscsi://{host}:{portal.port}/{target.wwn}/{lun}"


# ---- what is there ------------------------------------------------------------------------------

def our_backstores():
    for path in glob.glob("/sys/kernel/config/target/core/user_*/*"):
        if os.path.isdir(path):
            index = path.split("/")[-2].rpartition("_")[2]
            so = rtslib.UserBackedStorageObject(os.path.basename(path), index=index)
            if (so.config or "").startswith(SUBTYPE):
                yield so


def find_backstore(request):
    wanted = name_in(config_of(request))
    return next((so for so in our_backstores() if name_in(so.config) == wanted), None)


def find_target(wwn):
    return next((t for t in rtslib.FabricModule("iscsi").targets if t.wwn == wwn), None)


def is_ours(tpg):
    return tpg.get_parameter("TargetAlias") == ALIAS


def is_our_acl(acl):
    return (acl.tag or "").startswith(TAG)


def sessions_of(tpg):
    names = [acl.node_wwn for acl in tpg.node_acls if acl.session]
    with contextlib.suppress(OSError, rtslib.RTSLibError):
        names += re.split(r"[\s\0]+", fread(f"{tpg.path}/dynamic_sessions"))
    return sorted({name for name in names if name})


def is_iscsi(lun):
    return lun.parent_tpg.parent_target.fabric_module.name == "iscsi"


def iscsi_luns(so):
    return [lun for lun in so.attached_luns if is_iscsi(lun)]


def describe(so, lun=None):
    name = name_in(so.config)
    row = {"name": name, "backstore": so.name, "size_bytes": so.size, "serial": so.wwn, "target": None, "lun": None,
           "read_only": None, "portals": [], "addresses": [], "initiators": [], "address": None}
    if lun:
        tpg = lun.parent_tpg
        target = tpg.parent_target
        portals = list(tpg.network_portals)
        protected = tpg.get_attribute("demo_mode_write_protect") == "1"
        if tpg.get_attribute("generate_node_acls") != "1":
            mapped = list(lun.mapped_luns)
            protected = bool(mapped) and all(m.write_protect for m in mapped)
        row.update(target=target.wwn, lun=lun.lun, read_only=protected or "@" in name,
                   portals=[f"{p.ip_address}:{p.port}" for p in portals],
                   addresses=[address_of(p, target, lun.lun) for p in portals],
                   initiators=sessions_of(tpg))
        row["address"] = row["addresses"][0] if row["addresses"] else None
    return row


# ---- changes ------------------------------------------------------------------------------------

def check_with_handler(config):
    """The running handler's word on a configuration; it knows the reason, the kernel does not."""
    try:
        bus = Gio.bus_get_sync(Gio.BusType.SYSTEM, None)
        # Not started by D-Bus: that would be the stock daemon, without our handler.
        ok, reason = bus.call_sync(SERVICE, OBJECT, SERVICE, "CheckConfig",
                                   GLib.Variant("(s)", (config,)), None,
                                   Gio.DBusCallFlags.NO_AUTO_START, 60000, None).unpack()
    except GLib.Error as error:
        unknown = any(word in error.message for word in ("UnknownMethod", "UnknownObject", "No such"))
        raise Failure("SYSTEM", "tcmu-runner has not loaded handler_parallax.so; put it into tcmu-runner's "
                      "handler folder and restart tcmu-runner" if unknown else
                      "tcmu-runner does not answer; start it (systemctl start tcmu-runner)") from error
    if not ok:
        raise Failure("INVALID", f"the handler refuses {config}: {reason}")


def why_not_opened(name, since):
    """What tcmu-runner's log has on it, whose lines are short, so that one reason may take several. A line begins with
    the LUN's name, and ": " ends that: what follows may quote a store of somebody who means harm."""
    try:
        with open(LOG, encoding="utf-8", errors="replace") as log:
            log.seek(since)
            lines = re.findall(f"^(?:(?!: ).)*/{re.escape(name)}: (cannot open|which goes on:) (.*)", log.read(), re.M)
    except OSError:
        return ""
    first = next((n for n, (how, _) in reversed(list(enumerate(lines))) if how == "cannot open"), None)
    return "" if first is None else "cannot open " + "".join(text for _, text in lines[first:])


def refuse_opening(name, since, config, error):
    """The kernel says the same errno whatever the reason; the handler's own code ends what it logs (PLUGIN-3)."""
    text = why_not_opened(name, since) or f"could not open {config}: {error}; {LOG} has the reason"
    told = re.fullmatch(r"(.*) \(([A-Z_]+)\)", text)
    text, code = told.groups() if told else (text, "SYSTEM")
    raise Failure(code, "the handler " + text) from error


def make_backstore(request, undo):
    config = config_of(request)
    if len(config) > CONFIG_MAX:
        raise Failure("INVALID", f"the name is too long to be exported: {len(config)} bytes, the kernel "
                      f"allows {CONFIG_MAX}")
    check_with_handler(config)
    taken = {os.path.basename(path) for path in glob.glob("/sys/kernel/config/target/core/user_*/*")}
    name = base = plain_name(request)
    number = 1
    while name in taken:
        number += 1
        name = f"{base}-{number}"
    block = request["sector_size"]
    before = os.path.getsize(LOG) if os.path.exists(LOG) else 0
    try:
        so = rtslib.UserBackedStorageObject(name, config=config, size=request["size_bytes"],
                                            wwn=serial_of(request),
                                            control=f"hw_block_size={block}" if block != 512 else None)
    except (rtslib.RTSLibError, OSError) as error:
        refuse_opening(name, before, config, error)
    undo.callback(so.delete)
    return so


def set_rules(tpg, request):
    """Of a target made here: demo mode (anybody may log in), or a list of initiators."""
    demo = request["any_initiator"]
    tpg.set_parameter("TargetAlias", ALIAS)
    for name, value in (("generate_node_acls", demo), ("cache_dynamic_acls", demo),
                        ("demo_mode_write_protect", request["read_only"]), ("authentication", False)):
        tpg.set_attribute(name, str(int(value)))


def check_rules(tpg, request):
    """LUN-4. Of a target that was there before."""
    wwn = tpg.parent_target.wwn
    demo = tpg.get_attribute("generate_node_acls") == "1"
    if demo != request["any_initiator"]:
        raise Failure("EXISTS", f"target {wwn} has other access rules: " + (
            "any initiator may log in there; give --any-initiator" if demo else
            "only initiators with an ACL may log in there; give --initiator") + ", or another --target")
    if demo and (tpg.get_attribute("demo_mode_write_protect") == "1") != request["read_only"]:
        raise Failure("EXISTS", f"the LUNs of target {wwn} are " + (
            "writable; do not give --read-only" if request["read_only"] else
            "write protected (demo_mode_write_protect=1); give --read-only") + ", or another --target")
    if not tpg.enable:
        raise Failure("EXISTS", f"target {wwn} is disabled, and stays so; enable it with targetcli first, or give "
                      "another --target")


def listen(tpg, portals, fresh, undo):
    present = {(p.ip_address, p.port) for p in tpg.network_portals}
    wanted = [portal for portal in map(parse_portal, portals) if portal not in present]
    if not portals and not present:
        wanted = [parse_portal("0.0.0.0:3260")]
    if wanted and not fresh and not is_ours(tpg):
        ip, port = wanted[0]
        raise Failure("EXISTS", f"target {tpg.parent_target.wwn} does not listen on {ip}:{port}, and was not made by "
                      "'parallax lun create'; add the portal with targetcli, or give another --target")
    for ip, port in dict.fromkeys(wanted):
        try:
            undo.callback(rtslib.NetworkPortal(tpg, ip, port).delete)
        except (rtslib.RTSLibError, OSError) as error:
            raise Failure("SYSTEM", f"cannot listen on {ip}:{port}: {error}; give a free one with --portal") from error


def make_acl(tpg, initiator, undo):
    try:
        acl = rtslib.NodeACL(tpg, initiator, mode="create")
    except (rtslib.RTSLibError, OSError) as error:
        raise Failure("USAGE", f"--initiator '{initiator}': {error}") from error
    undo.callback(acl.delete)
    # targetcli shows ACLs of one tag as one: each has a tag of its own.
    acl.tag = (TAG + re.sub("[^A-Za-z0-9]+", "-", initiator))[:TAG_MAX]
    return acl


def let_in(tpg, lun, request, undo):
    for initiator in dict.fromkeys(name.lower() for name in request["initiators"]):
        acl = next((a for a in tpg.node_acls if a.node_wwn == initiator), None) or make_acl(tpg, initiator, undo)
        mapped = list(acl.mapped_luns)
        same = next((m for m in mapped if m.tpg_lun.lun == lun.lun), None)
        if same and same.write_protect != request["read_only"]:
            raise Failure("EXISTS", f"for {initiator} it is {'write protected' if same.write_protect else 'writable'} "
                          "already; 'parallax lun delete' it first")
        if not same and any(m.mapped_lun == lun.lun for m in mapped):
            raise Failure("EXISTS", f"{initiator} sees another LUN as number {lun.lun} already; choose another --lun")
        if not same:
            undo.callback(acl.mapped_lun(lun.lun, lun, request["read_only"]).delete)


def find_tpg(wwn, undo):
    """The target's portal group, and whether it is made here."""
    target = find_target(wwn)
    if not target:
        try:
            target = rtslib.Target(rtslib.FabricModule("iscsi"), wwn, mode="create")
        except (rtslib.RTSLibError, OSError) as error:
            raise Failure("USAGE", f"--target '{wwn}': {error}") from error
        undo.callback(target.delete)
        return rtslib.TPG(target, 1, mode="create"), True
    tpg = next((t for t in target.tpgs if t.tag == 1), None)
    if not tpg:
        raise Failure("EXISTS", f"target {wwn} has no portal group 1; give another --target")
    return tpg, False


def need_kernel():
    for module in ("target_core_user", "iscsi_target_mod"):
        if not os.path.isdir(f"/sys/module/{module}") and subprocess.run(
                ["modprobe", module], capture_output=True, check=False).returncode:
            raise Failure("UNSUPPORTED", f"this kernel has no {module} (LIO); use a kernel that has it")


def create(request):
    need_kernel()
    rtslib.RTSRoot()
    wwn = (request["target"] or default_target(request)).lower()
    with contextlib.ExitStack() as undo:
        tpg, fresh = find_tpg(wwn, undo)
        if fresh:
            set_rules(tpg, request)
        else:
            check_rules(tpg, request)
        so = find_backstore(request) or make_backstore(request, undo)
        luns = list(tpg.luns)
        lun = next((l for l in luns if l.storage_object.path == so.path), None)
        number = request["lun"]
        if lun and number is not None and lun.lun != number:
            raise Failure("EXISTS", f"it is LUN {lun.lun} of {wwn} already; 'parallax lun delete' it first")
        if not lun and number is not None and number in [l.lun for l in luns]:
            raise Failure("EXISTS", f"{wwn} has a LUN {number} already; choose another --lun")
        if not lun:
            lun = rtslib.LUN(tpg, number, so)
            undo.callback(lun.delete)
        let_in(tpg, lun, request, undo)
        listen(tpg, request["portals"], fresh, undo)
        if fresh:
            tpg.enable = True
        result = describe(so, lun)
        result["saved"] = save([so.name], [wwn])
        undo.pop_all()
    return result


def leave(tpg):
    """LUN-4. What create made here and has no use any more."""
    for acl in tpg.node_acls:
        if is_our_acl(acl) and not list(acl.mapped_luns):
            acl.delete()
    if is_ours(tpg) and not list(tpg.luns) and not list(tpg.node_acls):
        tpg.parent_target.delete()


def delete(request):
    """LUN-3"""
    so = find_backstore(request)
    luns = [l for l in (iscsi_luns(so) if so else ())
            if request["target"] in (None, l.parent_tpg.parent_target.wwn)]
    others = [l.parent_tpg.parent_target for l in (so.attached_luns if so else ()) if not is_iscsi(l)]
    if others and not luns and not request["target"]:
        raise Failure("BUSY", f"{name_in(so.config)} is exported by {others[0].wwn} ({others[0].fabric_module.name}), "
                      "which 'parallax lun create' did not make; delete its LUN there first")
    if not luns and (not so or request["target"]):
        raise Failure("NOT_FOUND", f"{name_in(config_of(request))} is not exported"
                      + (f" by {request['target']}" if request["target"] else ""))
    for lun in luns:
        users = sessions_of(lun.parent_tpg)
        if users and not request["force"]:
            raise Failure("BUSY", f"{users[0]} is logged in to {lun.parent_tpg.parent_target.wwn}; log out there "
                          "first, or give --force")
    name, targets = so.name, []
    for lun in luns:
        tpg = lun.parent_tpg
        targets.append(tpg.parent_target.wwn)
        lun.delete()
        leave(tpg)
    if not list(so.attached_luns):
        so.delete()
    save([name], targets)
    return {"deleted": len(luns)}


def exports(request):
    """What exports the disk or a snapshot of it, now or after the next start of the target."""
    running = {name_in(so.config) for so in our_backstores()}
    saved = {name_in(o["config"]) for o in load_saved().get("storage_objects", [])
             if o.get("plugin") == "user" and o.get("config", "").startswith(SUBTYPE)}
    wanted = {f"{store}/{request['vdi']}" for store in request["stores"]}
    return [{"name": name, "running": name in running} for name in sorted(running | saved)
            if name.partition("@")[0] in wanted]


def list_all(request):
    rows = []
    for so in our_backstores():
        if request.get("store") in (None, name_in(so.config).partition("/")[0]):
            rows += [describe(so, lun) for lun in iscsi_luns(so)] or [describe(so)]
    return sorted(rows, key=lambda row: (row["name"], row["target"] or "", row["lun"] or 0))


def refresh(request):
    """After a resize: the saved size has to follow, or the backstore would be refused at the next start."""
    so = find_backstore(request)
    if so:
        save([so.name], [])
    return {"saved": bool(so)}


# ---- the saved configuration --------------------------------------------------------------------

def graft(saved, now, paths):
    """LUN-4. Into a saved portal group, of the running one, what concerns the LUNs of these backstores only."""
    def numbers(tpg):
        return {l["index"] for l in tpg.get("luns", []) if l.get("storage_object") in paths}

    here = numbers(now)
    stale = here | numbers(saved)
    saved["luns"] = ([l for l in saved.get("luns", []) if l["index"] not in stale]
                     + [l for l in now["luns"] if l["index"] in here])
    running = {acl["node_wwn"]: acl for acl in now["node_acls"]}
    acls = {acl["node_wwn"]: acl for acl in saved.get("node_acls", [])}
    for name in [*acls, *(name for name in running if name not in acls)]:
        mapped = [m for m in running.get(name, {}).get("mapped_luns", []) if m["tpg_lun"] in here]
        if mapped:
            acls.setdefault(name, {**running[name], "mapped_luns": []})
        if name in acls:
            kept = [m for m in acls[name].get("mapped_luns", []) if m["tpg_lun"] not in stale]
            acls[name]["mapped_luns"] = kept + mapped
    saved["node_acls"] = [acl for name, acl in acls.items()
                          if name in running or not acl.get("tag", "").startswith(TAG)]


def merge_target(saved, wwn, paths):
    """False: somebody else made the target and has not saved it, so it is not for us to do."""
    target = find_target(wwn)
    old = next((t for t in saved if t.get("fabric") == "iscsi" and t.get("wwn") == wwn), None)
    if not target or all(is_ours(tpg) for tpg in target.tpgs):
        saved[:] = [t for t in saved if t is not old] + ([target.dump()] if target else [])
        return True
    if old:
        now = {tpg["tag"]: tpg for tpg in target.dump()["tpgs"]}
        for tpg in old["tpgs"]:
            if tpg["tag"] in now:
                graft(tpg, now[tpg["tag"]], paths)
    return bool(old)


def load_saved():
    try:
        with open(SAVED, encoding="utf-8") as file:
            return json.load(file)
    except FileNotFoundError:
        return {"storage_objects": [], "targets": [], "fabric_modules": []}
    except ValueError as error:
        raise Failure("SYSTEM", f"{SAVED} is damaged ({error}); repair it or move it away") from error


def save(backstores, targets):
    """Puts the named objects, as they are now, into the configuration that is restored at boot. False: not all."""
    saved = load_saved()
    objects = saved.setdefault("storage_objects", [])
    objects[:] = [o for o in objects if o.get("plugin") != "user" or o.get("name") not in backstores]
    objects += [so.dump() for so in our_backstores() if so.name in backstores]
    paths = {f"/backstores/user/{name}" for name in backstores}
    complete = all([merge_target(saved.setdefault("targets", []), wwn, paths) for wwn in targets])
    os.makedirs(os.path.dirname(SAVED), exist_ok=True)
    fresh = f"{SAVED}.parallax"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(saved, file, sort_keys=True, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, SAVED)
    return complete


def main():
    request = json.load(sys.stdin)
    try:
        if not rtslib:
            raise Failure("UNSUPPORTED", f"{why_not}; install the package targetcli-fb")
        if os.geteuid() != 0:
            raise Failure("PERMISSION", "the kernel's target can be changed by root only; run it with sudo")
        operation = {"create": create, "delete": delete, "list": list_all, "exports": exports,
                     "refresh": refresh}[request["op"]]
        with open(LOCK, "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            answer = {"result": operation(request)}
    except Failure as failure:
        answer = {"error": {"code": failure.code, "message": str(failure)}}
    except Exception as error:  # pylint: disable=broad-except
        answer = {"error": {"code": "SYSTEM", "message": f"the kernel's target: {error}"}}
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
