"""Exports virtual disks through the kernel's iSCSI target (LIO), by rtslib.

Built into the parallax command, which hands over a request as JSON on standard input and reads the
answer, {"result": ...} or {"error": {"code", "message"}}, from standard output.

L1  One at a time: targetcli's own lock is held throughout.
L2  What fails is taken back: a create leaves all of it or nothing.
L3  Only what a request names is changed, in the kernel and in the saved configuration; objects of
    other tools, and saved ones that could not be restored, stay as they are.
L4  A LUN keeps its identity: the unit serial is the virtual disk's (or derived for a snapshot).
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
        raise Failure("INVALID", f"--portal '{text}' is not IP:PORT; write 192.0.2.7:3260 or [2001:db8::7]:3260")
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


def sessions_of(tpg):
    names = [acl.node_wwn for acl in tpg.node_acls if acl.session]
    with contextlib.suppress(OSError, rtslib.RTSLibError):
        names += re.split(r"[\s\0]+", fread(f"{tpg.path}/dynamic_sessions"))
    return sorted({name for name in names if name})


def describe(so, lun=None):
    name = name_in(so.config)
    row = {"name": name, "backstore": so.name, "size_bytes": so.size, "serial": so.wwn}
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
    try:
        so = rtslib.UserBackedStorageObject(name, config=config, size=request["size_bytes"],
                                            wwn=serial_of(request),
                                            control=f"hw_block_size={block}" if block != 512 else None)
    except (rtslib.RTSLibError, OSError) as error:
        raise Failure("SYSTEM", f"the handler could not open {config}: {error}; /var/log/tcmu-runner.log has "
                      "the reason") from error
    undo.callback(so.delete)
    return so


def set_access(tpg, request, fresh):
    """Demo mode (anybody may log in) or a list of initiators: one or the other for a target."""
    demo = not request["initiators"]
    wanted = {"generate_node_acls": str(int(demo))}
    if demo:
        wanted["demo_mode_write_protect"] = str(int(request["read_only"]))
    if fresh:
        wanted.update(authentication="0", cache_dynamic_acls=str(int(demo)))
    for name, value in wanted.items():
        if tpg.get_attribute(name) == value:
            continue
        if not fresh:
            raise Failure("EXISTS", f"target {tpg.parent_target.wwn} has LUNs with other access rules ({name}="
                          f"{tpg.get_attribute(name)}); give the same --initiator and --read-only as for those, "
                          "or another --target")
        tpg.set_attribute(name, value)


def listen(tpg, portals, undo):
    present = {(p.ip_address, p.port) for p in tpg.network_portals}
    if not portals and present:
        return
    for ip, port in map(parse_portal, portals or ["0.0.0.0:3260"]):
        if (ip, port) not in present:
            try:
                undo.callback(rtslib.NetworkPortal(tpg, ip, port).delete)
            except (rtslib.RTSLibError, OSError) as error:
                raise Failure("SYSTEM", f"cannot listen on {ip}:{port}: {error}; give a free one with "
                              "--portal") from error


def let_in(tpg, lun, request, undo):
    for initiator in request["initiators"]:
        acl = next((a for a in tpg.node_acls if a.node_wwn == initiator), None)
        if not acl:
            acl = rtslib.NodeACL(tpg, initiator)
            undo.callback(acl.delete)
        if all(m.tpg_lun.lun != lun.lun for m in acl.mapped_luns):
            undo.callback(acl.mapped_lun(lun.lun, lun, request["read_only"]).delete)


def create(request):
    for module in ("target_core_user", "iscsi_target_mod"):
        if not os.path.isdir(f"/sys/module/{module}") and subprocess.run(
                ["modprobe", module], capture_output=True, check=False).returncode:
            raise Failure("UNSUPPORTED", f"this kernel has no {module} (LIO); use a kernel that has it")
    rtslib.RTSRoot()
    wwn = request["target"] or default_target(request)
    with contextlib.ExitStack() as undo:
        so = find_backstore(request) or make_backstore(request, undo)
        target = find_target(wwn)
        if not target:
            target = rtslib.Target(rtslib.FabricModule("iscsi"), wwn)
            undo.callback(target.delete)
        tpg = rtslib.TPG(target, 1)
        luns = list(tpg.luns)
        lun = next((l for l in luns if l.storage_object.path == so.path), None)
        set_access(tpg, request, fresh=not luns)
        number = request["lun"]
        if lun and number is not None and lun.lun != number:
            raise Failure("EXISTS", f"it is LUN {lun.lun} of {wwn} already; 'parallax lun delete' it first")
        if not lun and number is not None and number in [l.lun for l in luns]:
            raise Failure("EXISTS", f"{wwn} has a LUN {number} already; choose another --lun")
        if not lun:
            lun = rtslib.LUN(tpg, number, so)
            undo.callback(lun.delete)
        let_in(tpg, lun, request, undo)
        listen(tpg, request["portals"], undo)
        tpg.enable = True
        save([so.name], [wwn])
        result = describe(so, lun)
        undo.pop_all()
    return result


def delete(request):
    so = find_backstore(request)
    luns = [l for l in (so.attached_luns if so else ())
            if request["target"] in (None, l.parent_tpg.parent_target.wwn)]
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
        target = tpg.parent_target
        targets.append(target.wwn)
        lun.delete()
        if target.wwn.startswith(PREFIX) and not list(tpg.luns):
            target.delete()
    if not list(so.attached_luns):
        so.delete()
    save([name], targets)
    return {"deleted": len(luns)}


def list_all(request):
    rows = []
    for so in our_backstores():
        if request.get("store") in (None, name_in(so.config).partition("/")[0]):
            rows += [describe(so, lun) for lun in so.attached_luns] or [describe(so)]
    return sorted(rows, key=lambda row: (row["name"], row.get("target", ""), row.get("lun", 0)))


def refresh(request):
    """After a resize: the saved size has to follow, or the backstore would be refused at the next start."""
    so = find_backstore(request)
    if so:
        save([so.name], [])
    return {"saved": bool(so)}


# ---- the saved configuration --------------------------------------------------------------------

def save(backstores, targets):
    """Puts the named objects, as they are now, into the configuration that is restored at boot."""
    try:
        with open(SAVED, encoding="utf-8") as file:
            saved = json.load(file)
    except FileNotFoundError:
        saved = {"storage_objects": [], "targets": [], "fabric_modules": []}
    except ValueError as error:
        raise Failure("SYSTEM", f"{SAVED} is damaged ({error}); repair it or move it away") from error

    def replace(key, now, ours):
        kept = [o for o in saved.get(key, []) if not ours(o)]
        saved[key] = kept + [o.dump() for o in now]

    replace("storage_objects", [so for so in our_backstores() if so.name in backstores],
            lambda o: o.get("plugin") == "user" and o.get("name") in backstores)
    replace("targets", [t for t in map(find_target, targets) if t],
            lambda o: o.get("fabric") == "iscsi" and o.get("wwn") in targets)
    os.makedirs(os.path.dirname(SAVED), exist_ok=True)
    fresh = f"{SAVED}.parallax"
    with open(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(saved, file, sort_keys=True, indent=2)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, SAVED)


def main():
    request = json.load(sys.stdin)
    try:
        if not rtslib:
            raise Failure("UNSUPPORTED", f"{why_not}; install the package targetcli-fb")
        if os.geteuid() != 0:
            raise Failure("PERMISSION", "the kernel's target can be changed by root only; run it with sudo")
        operation = {"create": create, "delete": delete, "list": list_all, "refresh": refresh}[request["op"]]
        with open(LOCK, "a", encoding="ascii") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            answer = {"result": operation(request)}
    except Failure as failure:
        answer = {"error": {"code": failure.code, "message": str(failure)}}
    except Exception as error:  # pylint: disable=broad-except
        answer = {"error": {"code": "SYSTEM", "message": f"the kernel's target: {error}"}}
    json.dump(answer, sys.stdout)


main()
