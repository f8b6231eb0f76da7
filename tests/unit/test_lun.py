#!/usr/bin/env python3
"""What admin/lun.py does to the kernel's target, with a rtslib that only remembers: tests/lab/lun.py has the real one.

Every target that a test did not make by create() stands for an administrator's.
"""
import copy
import importlib.util
import json
import os
import sys
import tempfile
import types
import unittest

HERE = os.path.dirname(os.path.realpath(__file__))
SCRIPT = os.path.join(HERE, "..", "..", "admin", "lun.py")
UUID = "6ba7b810-9dad-11d1-80b4-00c04fd430c8"
IQN, OTHER = "iqn.2026-11.org.lab:h1", "iqn.2026-11.org.lab:h2"
TARGET = "iqn.2026-11.org.lab:prepared"
OURS = "iqn.2026-11.org.parallax:s.v"


# ---- a rtslib without a kernel --------------------------------------------------------------------

class RTSLibError(Exception):
    pass


class World:
    """What there is; emptied before each test."""
    targets, stores = [], []
    broken = ()  # names of calls that fail
    broken_code = ""  # how the handler's reason ends, when a backstore is made


def may(call):
    if call in World.broken:
        raise RTSLibError(f"{call} fails")


class Node:
    def __init__(self):
        self.attributes = {"authentication": "1", "generate_node_acls": "0", "demo_mode_write_protect": "1",
                           "cache_dynamic_acls": "0"}
        self.parameters = {"TargetAlias": "LIO Target"}

    def get_attribute(self, name):
        return self.attributes[name]

    def set_attribute(self, name, value):
        may("set_attribute")
        self.attributes[name] = value

    def get_parameter(self, name):
        return self.parameters[name]

    def set_parameter(self, name, value):
        self.parameters[name] = value


def placed(items, key, item, mode):
    """The item of that key, made unless it is there; mode as rtslib's."""
    found = next((i for i in items if key(i) == key(item)), None)
    if found and mode == "create":
        raise RTSLibError("it exists already")
    if not found:
        items.append(item)
    return found or item


ISCSI, LOOPBACK = (types.SimpleNamespace(name=name) for name in ("iscsi", "loopback"))


class Target(Node):
    def __new__(cls, fabric, wwn, mode="any"):
        may("Target")
        self = super().__new__(cls)
        self.wwn, self.tpgs, self.fabric_module = wwn, [], fabric or ISCSI
        return placed(World.targets, lambda t: t.wwn, self, mode)

    def __init__(self, *_, **__):
        pass

    def delete(self):
        World.targets.remove(self)

    def dump(self):
        return {"fabric": "iscsi", "wwn": self.wwn, "tpgs": [tpg.dump() for tpg in self.tpgs]}


class TPG(Node):
    def __new__(cls, target, tag, mode="any"):
        self = super().__new__(cls)
        Node.__init__(self)
        self.parent_target, self.tag, self.enable = target, tag, False
        self.path = f"/nowhere/{target.wwn}"
        self.luns, self.network_portals, self.node_acls = [], [], []
        return placed(target.tpgs, lambda t: t.tag, self, mode)

    def __init__(self, *_, **__):
        pass

    def dump(self):
        return {"tag": self.tag, "enable": self.enable, "attributes": dict(self.attributes),
                "parameters": dict(self.parameters), "luns": [l.dump() for l in self.luns],
                "portals": [{"ip_address": p.ip_address, "port": p.port} for p in self.network_portals],
                "node_acls": [a.dump() for a in self.node_acls]}


class LUN:
    def __init__(self, tpg, number, so):
        may("LUN")
        taken = [l.lun for l in tpg.luns]
        self.lun = next(n for n in range(256) if n not in taken) if number is None else number
        self.parent_tpg, self.storage_object = tpg, so
        tpg.luns.append(self)

    @property
    def mapped_luns(self):
        return [m for acl in self.parent_tpg.node_acls for m in acl.mapped_luns if m.tpg_lun is self]

    def delete(self):
        for mapped in self.mapped_luns:
            mapped.delete()
        self.parent_tpg.luns.remove(self)

    def dump(self):
        return {"index": self.lun, "storage_object": f"/backstores/user/{self.storage_object.name}"}


class NetworkPortal:
    def __init__(self, tpg, ip, port):
        may("NetworkPortal")
        self.tpg, self.ip_address, self.port = tpg, ip, port
        tpg.network_portals.append(self)

    def delete(self):
        self.tpg.network_portals.remove(self)


class NodeACL:
    def __new__(cls, tpg, wwn, mode="any"):
        may("NodeACL")
        self = super().__new__(cls)
        self.tpg, self.node_wwn, self.tag, self.session, self.mapped_luns = tpg, wwn, None, None, []
        return placed(tpg.node_acls, lambda a: a.node_wwn, self, mode)

    def __init__(self, *_, **__):
        pass

    def mapped_lun(self, number, lun, write_protect):
        may("mapped_lun")
        return MappedLUN(self, number, lun, write_protect)

    def delete(self):
        self.tpg.node_acls.remove(self)

    def dump(self):
        dumped = {"node_wwn": self.node_wwn, "mapped_luns": [m.dump() for m in self.mapped_luns]}
        return {**dumped, "tag": self.tag} if self.tag else dumped


class MappedLUN:
    def __init__(self, acl, number, lun, write_protect):
        self.acl, self.mapped_lun, self.tpg_lun, self.write_protect = acl, number, lun, write_protect
        acl.mapped_luns.append(self)

    def delete(self):
        self.acl.mapped_luns.remove(self)

    def dump(self):
        return {"index": self.mapped_lun, "tpg_lun": self.tpg_lun.lun, "write_protect": self.write_protect}


class Store:
    """UserBackedStorageObject."""

    def __init__(self, name, config=None, size=None, wwn=None, control=None):
        if "UserBackedStorageObject" in World.broken:
            with open(lun.LOG, "a", encoding="utf-8") as log:
                log.write(f"open_device:1 parallax/{name}: cannot open {config}: there is no room and \n"
                          f"open_device:1 parallax/{name}: which goes on: no time{World.broken_code}\n"
                          f"log_event:1: s: slot 0 holds another one (/{name}: cannot open it (NOSPACE))\n"
                          f"open_device:1 parallax/other: cannot open s/w: (/{name}: which goes on: (NOSPACE)\n")
        may("UserBackedStorageObject")
        self.name, self.config, self.size, self.wwn, self.control = name, config, size, wwn, control
        self.path = f"/nowhere/{name}"
        World.stores.append(self)

    @property
    def attached_luns(self):
        return [l for t in World.targets for tpg in t.tpgs for l in tpg.luns if l.storage_object is self]

    def delete(self):
        World.stores.remove(self)

    def dump(self):
        return {"plugin": "user", "name": self.name, "config": self.config}


def load():
    """The script as a module, with this rtslib."""
    rtslib = types.ModuleType("rtslib_fb")
    for name, value in {"RTSLibError": RTSLibError, "RTSRoot": object, "Target": Target, "TPG": TPG, "LUN": LUN,
                        "NetworkPortal": NetworkPortal, "NodeACL": NodeACL, "UserBackedStorageObject": Store,
                        "FabricModule": lambda name: types.SimpleNamespace(name=name, targets=World.targets)}.items():
        setattr(rtslib, name, value)
    utils = types.ModuleType("rtslib_fb.utils")
    utils.fread = lambda path: (_ for _ in ()).throw(OSError(path))
    gi = types.ModuleType("gi.repository")
    gi.Gio = gi.GLib = None
    sys.modules.update({"rtslib_fb": rtslib, "rtslib_fb.utils": utils, "gi": types.ModuleType("gi"),
                        "gi.repository": gi})
    sys.dont_write_bytecode = True
    spec = importlib.util.spec_from_file_location("lun", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.need_kernel = module.check_with_handler = lambda *_: None
    module.our_backstores = lambda: list(World.stores)
    return module


lun = load()


# ---- tests ----------------------------------------------------------------------------------------

def request(**words):
    return {"store": "s", "vdi": "v", "uuid": UUID, "size_bytes": 1 << 20, "sector_size": 512, "target": None,
            "portals": [], "initiators": [], "any_initiator": False, "read_only": False, "lun": None, "force": False,
            **words}


def prepared(wwn=TARGET, portal="192.0.2.7", **attributes):
    """A target as targetcli makes it, and its administrator's rules."""
    tpg = TPG(Target(None, wwn), 1)
    tpg.attributes.update(attributes)
    tpg.enable = True
    if portal:
        NetworkPortal(tpg, portal, 3260)
    return tpg


def everything():
    return copy.deepcopy([t.dump() for t in World.targets]), [so.name for so in World.stores]


def acls(tpg):
    return {a.node_wwn: [(m.tpg_lun.lun, m.write_protect) for m in a.mapped_luns] for a in tpg.node_acls}


class Lun(unittest.TestCase):
    def setUp(self):
        World.targets, World.stores, World.broken, World.broken_code = [], [], (), ""
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        lun.SAVED, lun.LOG = os.path.join(folder.name, "etc", "saved.json"), os.path.join(folder.name, "log")

    def saved(self):
        with open(lun.SAVED, encoding="utf-8") as file:
            return json.load(file)

    def put_saved(self, targets):
        os.makedirs(os.path.dirname(lun.SAVED), exist_ok=True)
        with open(lun.SAVED, "w", encoding="utf-8") as file:
            json.dump({"storage_objects": [], "targets": targets}, file)

    def refused(self, words, **given):
        before = everything()
        with self.assertRaises(lun.Failure) as caught:
            lun.create(request(**given))
        self.assertIn(words, str(caught.exception))
        self.assertNotIn("\n", str(caught.exception))
        self.assertEqual(everything(), before, "a refused create changed something")
        return caught.exception

    def test_named_initiators(self):
        lun.create(request(initiators=[IQN, OTHER.upper(), IQN]))
        tpg, = World.targets[0].tpgs
        self.assertEqual((tpg.get_attribute("generate_node_acls"), tpg.enable), ("0", True))
        self.assertEqual(acls(tpg), {IQN: [(0, False)], OTHER: [(0, False)]})
        self.assertEqual(len({a.tag for a in tpg.node_acls}), 2)

    def test_any_initiator(self):
        result = lun.create(request(any_initiator=True, portals=["192.0.2.7", "[2001:db8::7]:3261"]))
        tpg, = World.targets[0].tpgs
        self.assertEqual((tpg.get_attribute("generate_node_acls"), tpg.get_attribute("authentication")), ("1", "0"))
        self.assertEqual([(p.ip_address, p.port) for p in tpg.network_portals],
                         [("192.0.2.7", 3260), ("[2001:db8::7]", 3261)])
        self.assertEqual(result["address"], f"iscsi://192.0.2.7:3260/{OURS}/0")

    def test_a_prepared_target_keeps_its_rules(self):
        for words, given in (("other access rules", {"any_initiator": True}),
                             ("does not listen on 0.0.0.0:3260", {"initiators": [IQN], "portals": ["0.0.0.0"]})):
            prepared()
            self.refused(words, target=TARGET, **given)
            World.targets.clear()
        tpg = prepared()
        NodeACL(tpg, OTHER)
        before = tpg.dump()
        lun.create(request(initiators=[IQN], target=TARGET.upper()))
        after = tpg.dump()
        for kind in ("attributes", "parameters", "portals", "enable"):
            self.assertEqual(after[kind], before[kind])
        self.assertEqual(acls(tpg), {OTHER: [], IQN: [(0, False)]})

    def test_a_prepared_target_without_portal_or_disabled(self):
        tpg = prepared(portal=None)
        self.refused("does not listen", target=TARGET, initiators=[IQN])
        NetworkPortal(tpg, "192.0.2.7", 3260)
        tpg.enable = False
        self.refused("is disabled", target=TARGET, initiators=[IQN])

    def test_a_prepared_target_in_demo_mode(self):
        prepared(generate_node_acls="1")
        self.refused("any initiator may log in there", target=TARGET, initiators=[IQN])
        self.refused("write protected", target=TARGET, any_initiator=True)
        lun.create(request(target=TARGET, any_initiator=True, read_only=True))

    def test_a_prepared_acl(self):
        acl = NodeACL(prepared(), IQN)
        other = LUN(acl.tpg, 3, Store("theirs", config="fbo/x"))
        acl.mapped_lun(0, other, False)
        self.refused("as number 0 already", target=TARGET, initiators=[IQN])
        lun.create(request(target=TARGET, initiators=[IQN], lun=1))
        self.refused("writable already", target=TARGET, initiators=[IQN], read_only=True)
        self.assertEqual((acl.tag, acls(acl.tpg)), (None, {IQN: [(3, False), (1, False)]}))
        lun.delete(request(target=TARGET))
        self.assertEqual(acls(acl.tpg), {IQN: [(3, False)]})

    def test_delete_leaves_what_others_made(self):
        tpg = prepared(wwn=OURS)  # the name is no mark
        NodeACL(tpg, OTHER)
        before = everything()
        lun.create(request(initiators=[IQN]))
        lun.delete(request())
        self.assertEqual(everything(), before)
        World.targets.clear()
        lun.create(request(initiators=[IQN], target=TARGET))
        lun.create(request(vdi="w", uuid=UUID[:-1] + "9", initiators=[IQN], target=TARGET))
        lun.delete(request())
        self.assertEqual(len(World.targets), 1)
        NodeACL(World.targets[0].tpgs[0], OTHER)
        lun.delete(request(vdi="w"))
        self.assertEqual(acls(World.targets[0].tpgs[0]), {OTHER: []})
        World.targets[0].tpgs[0].node_acls.clear()
        lun.create(request(initiators=[IQN], target=TARGET))
        lun.delete(request())
        self.assertEqual(everything(), ([], []))
        self.assertEqual((self.saved()["targets"], self.saved()["storage_objects"]), ([], []))

    def test_delete_takes_what_serves_the_disk_alone(self):
        """LUN-3: a backstore and a LUN that targetcli made."""
        so = Store("by-hand", "parallax/s/v", 1 << 20)
        self.assertEqual([row["target"] for row in lun.list_all({})], [None])
        lun.delete(request())  # which keeps the disk open, without any LUN
        self.assertEqual(everything(), ([], []))
        so = Store("by-hand", "parallax/s/v", 1 << 20)
        tpg = prepared()
        LUN(tpg, 0, so)
        LUN(prepared(wwn=OURS), 0, so)
        lun.delete(request(target=OURS))  # the other target still uses it
        self.assertEqual([so.name for so in World.stores], ["by-hand"])
        lun.delete(request())
        self.assertEqual((World.stores, len(World.targets), tpg.luns), ([], 2, []))

    def test_delete_leaves_other_fabrics(self):
        so = Store("by-hand", "parallax/s/v", 1 << 20)
        LUN(TPG(Target(LOOPBACK, "naa.5001"), 1), 0, so)
        before = everything()
        self.assertEqual([row["target"] for row in lun.list_all({})], [None])
        with self.assertRaises(lun.Failure) as refused:
            lun.delete(request())
        self.assertEqual(refused.exception.code, "BUSY")
        self.assertIn("exported by naa.5001 (loopback)", str(refused.exception))
        self.assertEqual(everything(), before)
        lun.create(request(initiators=[IQN]))  # the same backstore by iSCSI, too
        lun.delete(request())
        self.assertEqual(everything(), before)

    def test_exports(self):
        def exports(vdi, *stores):
            return [(row["name"], row["running"]) for row in lun.exports({"stores": ["s", *stores], "vdi": vdi})]

        self.assertEqual(exports("v"), [])
        lun.create(request(initiators=[IQN]))
        lun.create(request(seq=3, initiators=[IQN]))
        lun.create(request(vdi="vv", uuid=UUID[:-1] + "9", initiators=[IQN]))
        lun.create(request(store=UUID, uuid=UUID[:-1] + "7", initiators=[IQN]))
        self.assertEqual(exports("v"), [("s/v", True), ("s/v@3", True)])
        self.assertEqual(exports("v", UUID), [(f"{UUID}/v", True), ("s/v", True), ("s/v@3", True)])
        World.stores.clear()  # the target was stopped, and comes back by what is saved
        self.assertEqual(exports("v"), [("s/v", False), ("s/v@3", False)])
        self.assertEqual(exports("w"), [])

    def test_delete_leaves_an_empty_target(self):
        for wwn, target in ((OURS, None), (TARGET, TARGET)):
            World.targets.clear()
            prepared(wwn=wwn)
            before = everything()
            lun.create(request(target=target, initiators=[IQN]))
            lun.delete(request(target=target))
            self.assertEqual(everything(), before, wwn)

    def test_our_target_takes_more(self):
        lun.create(request(initiators=[IQN]))
        lun.create(request(vdi="w", uuid=UUID[:-1] + "9", target=OURS, initiators=[OTHER], portals=["192.0.2.7"]))
        tpg, = World.targets[0].tpgs
        self.assertEqual(acls(tpg), {IQN: [(0, False)], OTHER: [(1, False)]})
        self.assertEqual(len(tpg.network_portals), 2)
        self.refused("only initiators with an ACL", target=OURS, any_initiator=True)

    def test_what_fails_is_taken_back(self):
        for call in ("Target", "set_attribute", "UserBackedStorageObject", "LUN", "NodeACL", "mapped_lun",
                     "NetworkPortal"):
            World.broken = (call,)
            with self.assertRaises((lun.Failure, RTSLibError)):
                lun.create(request(initiators=[IQN]))
            self.assertEqual(everything(), ([], []), call)

    def test_the_handlers_reason(self):
        World.broken = ("UserBackedStorageObject",)
        for World.broken_code, code in ("", "SYSTEM"), (" (BUSY)", "BUSY"), (" (IO_READ)", "IO_READ"):
            failure = self.refused("the handler cannot open parallax/s/v: there is no room and no time", initiators=[IQN])
            self.assertEqual(failure.code, code)
            self.assertNotIn("(", str(failure))

    def test_saved_rules_of_others_stay(self):
        tpg = prepared()
        NodeACL(tpg, OTHER)
        old = tpg.parent_target.dump()
        self.put_saved([copy.deepcopy(old)])
        tpg.attributes["authentication"] = "0"  # for a moment, and not saved
        lun.create(request(target=TARGET, initiators=[IQN, OTHER]))
        new, = self.saved()["targets"]
        self.assertEqual(new["tpgs"][0]["attributes"], old["tpgs"][0]["attributes"])
        self.assertEqual(new["tpgs"][0]["luns"], [{"index": 0, "storage_object": "/backstores/user/s.v"}])
        mapped = {a["node_wwn"]: [m["tpg_lun"] for m in a["mapped_luns"]] for a in new["tpgs"][0]["node_acls"]}
        self.assertEqual(mapped, {OTHER: [0], IQN: [0]})
        lun.delete(request())
        self.assertEqual(self.saved()["targets"], [old])

    def test_an_unsaved_target_of_others_stays_unsaved(self):
        prepared()
        self.assertFalse(lun.create(request(target=TARGET, initiators=[IQN]))["saved"])
        self.assertEqual(self.saved()["targets"], [])
        self.assertTrue(lun.create(request(vdi="w", initiators=[IQN]))["saved"])


unittest.main()
