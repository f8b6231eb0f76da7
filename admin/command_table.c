/* command_table.c - every command: its words, arguments, options, help and function.
 *
 * Parsing, help, the shell's completion and the tests of examples all read this table (cli.h).
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd.h"
#include "device/credentials.h"
#include "output.h"
#include "registry/policy.h"

/* clang-format off */
#define OPTIONS(...) (const struct plx_option[]) { __VA_ARGS__, {NULL, NULL, NULL} }
#define TABLE_OPTIONS \
    {"columns", "KEYS", "only these columns: their keys in JSON, separated by commas"}, \
    {"bytes", NULL, "sizes as exact numbers of bytes"}
/* clang-format on */

const struct plx_command plx_commands[] = {
    {"store", "format", "NAME", "Make a new, empty store.",
     "A store has one or more volumes: files, block devices or iscsi:// URLs. A file that does not "
     "exist is created with the size given by --size. Devices are used whole. A volume that holds "
     "data is refused unless you give --force. Passwords for iSCSI targets are read "
     "from " PLX_CREDENTIALS_FILE ".",
     "store format demo --volume /srv/demo.plx --size 4G\n"
     "store format san --volume /dev/disk/by-id/wwn-0x6001405aa --volume "
     "/dev/disk/by-id/wwn-0x6001405bb\n"
     "store format test --volume ./test.plx --size 1G --state-dir ./state",
     OPTIONS({"volume", "PATH...", "file, block device or iscsi:// URL; once for each volume"},
             {"size", "SIZE", "size of each file that is created"},
             {"extent-size", "SIZE", "unit of ownership, 1M to 2G (default: by the store's size)"},
             {"force", NULL, "overwrite volumes that hold data"},
             {"i-checked-nobody-uses-it", NULL, "confirm it, where the volumes do not tell"}),
     plx_cmd_store_format},
    {"store", "list", NULL, "List the stores that this host knows.",
     "A store that cannot be used is listed, too. The column PROBLEM says why in a word, and "
     "standard error has a sentence for each such store. RELEASED, ELSEWHERE and UNTOLD mean that "
     "no host has the store, another one has it, or nobody knows: here it can only be read. DOUBT "
     "means that its registry has lost writes, LOST that virtual disks are lost.",
     "store list\n"
     "store list --columns name,size_bytes --bytes -q\n"
     "store list --json",
     OPTIONS(TABLE_OPTIONS), plx_cmd_store_list},
    {"store", "info", "STORE", "Show a store's volumes, extents and space.",
     "Handlers of this host are asked about the extents that they own. The blocks of other extents "
     "are counted from their bitmaps, so blocks that were allocated since a bitmap was last "
     "written are missing. Part of the free space is reserved for metadata, so that a full store "
     "can still flush, take and delete snapshots, and unmap. Part of that reserve is kept for "
     "recovery: it is what all open disks need when they are opened again after a crash, and "
     "nothing else may use it.",
     "store info demo\n"
     "store info demo --json",
     NULL, plx_cmd_store_info},
    {"store", "stats", "STORE", "Show what a handler has counted since it opened the store.",
     "Shows device I/O by purpose, log batches, key frames, the node cache, and the totals of all "
     "virtual disks that the handler serves.",
     "store stats demo\n"
     "store stats demo --json",
     NULL, plx_cmd_store_stats},
    {"store", "grow", "STORE", "Use the space that volumes have gained.",
     "Use this after you have made a file, block device or LUN larger. The store then uses as much "
     "of the new space as makes whole extents. Disks may be open. Writes that wait for space go "
     "on, and disks that refused writes accept them again. Places for more virtual disks come with "
     "'store add-volume' only. This command also finishes a 'store grow' or 'store add-volume' "
     "that was interrupted.",
     "store grow demo --dry-run\n"
     "store grow demo",
     OPTIONS({"dry-run", NULL, "say by how much; change nothing"}), plx_cmd_store_grow},
    {"store", "add-volume", "STORE PATH", "Add a file, block device or iscsi:// URL to a store.",
     "A file that does not exist is created with the size given by --size. Devices are used whole. "
     "A volume that holds data is refused unless you give --force. Disks may be open. Writes that "
     "wait for space go on, and disks that refused writes accept them again. From then on the "
     "store needs all its volumes. If the command was interrupted, give it again.",
     "store add-volume demo /srv/more.plx --size 4G\n"
     "store add-volume san /dev/disk/by-id/wwn-0x6001405cc --dry-run",
     OPTIONS({"size", "SIZE", "size of the file that is created"},
             {"dry-run", NULL, "say by how much the store would grow; change nothing"},
             {"force", NULL, "overwrite a volume that holds data"},
             {"i-checked-nobody-uses-it", NULL, "confirm it, where the volume does not tell"}),
     plx_cmd_store_add_volume},
    {"store", "set", "STORE", "Set the soft limit of a store.",
     "The limit is reached when that much of the store is no longer free for data. A handler that "
     "has the store open then logs it, raises an event, and tells the initiators of all LUNs in "
     "the store (THIN PROVISIONING SOFT THRESHOLD REACHED). It tells them again only "
     "after usage has fallen a twentieth below the limit and risen again. A new limit takes effect "
     "within seconds.",
     "store set demo --warn-at 80%\n"
     "store set demo --warn-at 3G\n"
     "store set demo --warn-at none",
     OPTIONS({"warn-at", "SIZE|PERCENT", "the limit; none: turn it off"}), plx_cmd_store_set},
    {"store", "check", "STORE", "Check every structure of a store without changing anything.",
     "Follows every virtual disk, snapshot, key frame, log batch and node. Compares them with the "
     "allocation bitmaps and the registry, and prints one line for each finding. Disks may be "
     "open. The exit status is 5 if something is damaged. Leaked blocks alone are not damage.",
     "store check demo\n"
     "store check demo --data --rate 100M\n"
     "store check demo --json",
     OPTIONS({"data", NULL, "also read every data block that has a checksum"},
             {"rate", "SIZE", "read at most this much a second"}),
     plx_cmd_store_check},
    {"store", "scan", "[PATH...]", "Show which volumes hold stores, and which host has each store.",
     "Without PATH, all block devices of this machine are scanned. Nothing is changed.",
     "store scan\n"
     "store scan /srv/demo.plx --json",
     OPTIONS(TABLE_OPTIONS), plx_cmd_store_scan},
    {"store", "import", "[NAME]", "Make a store known to this host.",
     "A store carries its own registry. This host only remembers where the store's volumes are. "
     "Give every volume. A store that no host has is taken. A store that another host has is "
     "refused: 'store release' on that host gives it up, and 'store take-over' takes it from a "
     "host that is off. NAME is what this host calls the store, if it should not be the store's "
     "own name. Give --new-identity for a copy, made of files or by an array, that is used beside "
     "the original. Its virtual disks then get new UUIDs and LUN serials, and incremental streams "
     "of one are not accepted for the other. Give --read-only to read a store that another host "
     "has, or that lies on a read-only file system.",
     "store import --volume /srv/demo.plx\n"
     "store import --read-only --volume /srv/demo.plx\n"
     "store import yesterday --new-identity --volume /srv/copy.plx",
     OPTIONS(
         {"volume", "PATH...", "once for each volume of the store"},
         {"new-identity", NULL, "the volumes are a copy; give NAME if the original is known here"},
         {"i-checked-it-is-a-copy", NULL, "with --new-identity, if another host has the original"},
         {"read-only", NULL, "do not take the store: it can be read here, and nothing is written"}),
     plx_cmd_store_import},
    {"store", "take-over", "[STORE]", "Take a store from a host that is off.",
     "Only you can know that the host is off. If it still runs, both hosts write and destroy the "
     "store. A host that is seen to be alive is always refused. What was acknowledged is "
     "recovered, but for what may lie on a write-back ring there only: --dry-run names these "
     "virtual disks. A store that this host does not know is named by its volumes.",
     "store take-over demo --from web1 --dry-run\n"
     "store take-over demo --from web1 --i-checked-it-is-off\n"
     "store take-over --volume /dev/sdb --from web1 --i-checked-it-is-off",
     OPTIONS({"from", "HOST", "the host that has it, as 'store scan' shows it"},
             {"any", NULL, "any host, if the store cannot tell which one has it"},
             {"i-checked-it-is-off", NULL, "confirm that the host is off"},
             {"dry-run", NULL, "only look; change nothing"},
             {"volume", "PATH...", "once for each volume, if the store is not known here"}),
     plx_cmd_store_take_over},
    {"store", "release", "STORE", "Give up a store, so that another host can import it.",
     "Refused while it is open, or this host's ring may have what it lacks.", "store release demo",
     OPTIONS({"dry-run", NULL, "only look; change nothing"}), plx_cmd_store_release},
    {"store", "restore-superblock", "PATH", "Write the superblock of a volume again.",
     "For a volume over whose first blocks something else was written by mistake, such as a "
     "partition table: they are written again from a spare superblock. Look first what the device "
     "holds now: somebody else may have got it. If the page that names the store's host is lost, "
     "'store take-over' rewrites it; if a further volume's number is, a warning says so.",
     "store restore-superblock /dev/sdb --dry-run\n"
     "store restore-superblock /dev/sdb --i-checked-nobody-uses-it",
     OPTIONS({"i-checked-nobody-uses-it", NULL, "confirm that nothing else uses the device"},
             {"dry-run", NULL, "only look; change nothing"}),
     plx_cmd_store_restore_superblock},
    {"store", "forget", "STORE",
     "Remove a store from the list of known stores; its volumes are not touched.",
     "'store import' undoes this, with --read-only if another host has the store. Refused while a "
     "handler or a command of this host has it open. A store that is not wanted any more is gone "
     "for good once its files are deleted, or the first 64 KiB of its devices are overwritten.",
     "store forget demo", NULL, plx_cmd_store_forget},
    {"store", "rebuild-registry", "[STORE]", "Rebuild the registry of a store from the store.",
     "Reads a damaged registry back from the store. Give the store, or every volume if it is not "
     "known here. The new registry replaces the old one as a whole, or nothing changes. What "
     "cannot be read is listed, the exit status is 5, and its blocks are kept until 'vdi forget "
     "--lost'. So are virtual disks of the old registry that the store no longer holds. Virtual "
     "disks that went back to an older state are refused until 'vdi accept-older'. If the old one "
     "cannot say what was known of the clock, snapshots stay longer. Of a volume that went back, "
     "put the newer one back first. Refused while anybody has the store open.",
     "store rebuild-registry --volume /srv/demo.plx --dry-run\n"
     "store rebuild-registry demo",
     OPTIONS({"volume", "PATH...", "once for each volume, if the store is not known here"},
             {"i-checked-there-is-no-newer-one", NULL, "confirm it, where a volume went back"},
             {"registry-lost", NULL, "the nodes of the store's cluster have lost it for good"},
             {"dry-run", NULL, "only read; change nothing"}),
     plx_cmd_store_rebuild},
    {"store", "export-registry", "STORE FILE", "Write a copy of the registry of a store.",
     "The copy is an SQLite file to look at. Nothing reads it back.",
     "store export-registry demo registry.db",
     OPTIONS({"force", NULL, "replace a file that exists; never a volume of a store"}),
     plx_cmd_store_export_registry},

    {"vdi", "create", "STORE/VDI", "Create a virtual disk.",
     "A new virtual disk takes no space until it is written.",
     "vdi create demo/web --size 100G\n"
     "vdi create demo/db --size 2T --sector-size 4096 --overwrite copy",
     OPTIONS({"size", "SIZE", "up to 256T"}, {"sector-size", "BYTES", "512 (default) or 4096"},
             {"overwrite", "HOW",
              "in-place (default), or copy: every write goes to a new block, so that all data has "
              "checksums at all times; in place a block has none until it has been quiet for an "
              "hour"}),
     plx_cmd_vdi_create},
    {"vdi", "list", "[STORE]", "List virtual disks, and who has each of them open.",
     "USED is what the disk itself holds. What only its snapshots hold is not in it, and snapshots "
     "are not counted: 'du' and 'snap list' do that, which takes longer. "
     "The word \"gone\" marks a process that has died. What it had open is recovered, with "
     "everything that was acknowledged, when its store is next opened for writing.",
     "vdi list\n"
     "vdi list demo --columns name,size_bytes\n"
     "vdi list demo --json",
     OPTIONS(TABLE_OPTIONS), plx_cmd_vdi_list},
    {"vdi", "info", "STORE/VDI", "Show a virtual disk's properties and who has it open.", NULL,
     "vdi info demo/web", NULL, plx_cmd_vdi_info},
    {"vdi", "resize", "STORE/VDI", "Make a virtual disk larger.",
     "A handler may have the virtual disk open. Initiators see the new size after a rescan. A "
     "virtual disk cannot be made smaller.",
     "vdi resize demo/web --size 200G", OPTIONS({"size", "SIZE", "the new size"}),
     plx_cmd_vdi_resize},
    {"vdi", "rename", "STORE/VDI NEW", "Give a virtual disk another name.",
     "The virtual disk stays in its store and keeps its UUID, snapshots, labels, protection and "
     "clones. Nobody may have it open or read one of its snapshots. It is refused while a LUN of "
     "it or of a snapshot exists, because a LUN knows the disk by its name.",
     "vdi rename demo/web shop", NULL, plx_cmd_vdi_rename},
    {"vdi", "set", "STORE/VDI", "Set a virtual disk's soft limit, or its use of the ring.",
     "The limit is reached when that much of the virtual disk holds data. A handler that has the "
     "disk open then tells the initiators of its LUN, as 'store set' describes. Data that only "
     "snapshots keep does not count. With --ring on, writes are acknowledged as soon as this "
     "host's write-back ring has them, and are brought to the store in order. Until then the disk "
     "cannot be used without the ring. --ring auto does so only while the store is slower than "
     "usual. --ring off waits until the store has everything.",
     "vdi set demo/web --warn-at 80%\n"
     "vdi set demo/web --warn-at none\n"
     "vdi set demo/db --ring on\n"
     "vdi set demo/db --ring auto\n"
     "vdi set demo/db --ring off",
     OPTIONS({"warn-at", "SIZE|PERCENT", "the limit; none: turn it off"},
             {"ring", "on|off|auto", "whether this host's ring acknowledges writes (default off)"}),
     plx_cmd_vdi_set},
    {"vdi", "delete", "STORE/VDI", "Delete a virtual disk and all its snapshots.",
     "Asks for confirmation on a terminal. Without a terminal it is refused unless you give --yes. "
     "Clones stay. The space comes back with the next 'parallax gc'; a handler that has the store "
     "open does that by itself. Use --lost for a disk whose record is missing "
     "from the store, damaged or older than it was because a device lost a write. Nothing is "
     "collected until you do. If the lost record may come back, restore the store instead.",
     "vdi delete demo/web\n"
     "vdi delete demo/web --dry-run\n"
     "vdi delete demo/web-test --yes\n"
     "vdi delete demo/web --lost",
     OPTIONS({"yes", NULL, "do not ask"},
             {"lost", NULL, "only if its record is missing, damaged or older than it was"},
             {"dry-run", NULL, "say what would be deleted; change nothing"}),
     plx_cmd_vdi_delete},
    {"vdi", "accept-older", "STORE/VDI",
     "Accept a virtual disk whose record went back to an older state.",
     "An older state of a virtual disk can come back if a device lost a write that it had "
     "acknowledged. It can also come back if a part of the store was restored from a copy. Such a "
     "disk is refused, because later writes are missing. This command accepts the older state.",
     "vdi accept-older demo/web --dry-run\n"
     "vdi accept-older demo/web --yes",
     OPTIONS({"yes", NULL, "do it, instead of only saying what would be done"},
             {"also-damaged", NULL, "accept what can be read of a state that is damaged"},
             {"dry-run", NULL, "only say what would be done; the exit status is 0"}),
     plx_cmd_vdi_accept},
    {"vdi", "forget", "STORE", "Give up what a rebuild of the registry could not read.",
     "This concerns virtual disks and labels whose records are damaged on the store. Until you "
     "give them up, nothing is collected and no snapshot is deleted, because the lost disks may "
     "use any block.",
     "vdi forget demo --lost --dry-run\n"
     "vdi forget demo --lost --yes",
     OPTIONS({"lost", NULL, "required: say that you mean what is lost"},
             {"yes", NULL, "do it, instead of only saying what would be done"},
             {"dry-run", NULL, "only say what would be done; the exit status is 0"}),
     plx_cmd_vdi_forget},
    {"vdi", "clone", "STORE/VDI@SNAPSHOT STORE/NEW",
     "Make a writable virtual disk from a snapshot.",
     "A clone is made at once and takes no space until it is written.",
     "vdi clone demo/web@before-upgrade demo/web-test\n"
     "vdi clone demo/web@2026-11-21T06:20:00Z demo/web-then",
     NULL, plx_cmd_vdi_clone},
    {"vdi", "import", "FILE STORE/VDI", "Copy a raw image into a virtual disk.",
     "FILE may be '-' for standard input. A virtual disk that does not exist is created with the "
     "size of the file or of --size. A virtual disk that holds data is overwritten only with "
     "--force. If the image is smaller than the disk, the rest of the disk becomes zero. An empty "
     "stream is refused, and the end of a stream counts as the end of the image. Zeroes take no "
     "space. After an import was killed, 'vdi info' and 'vdi list' say so; repeat it with --force. "
     "Progress is shown on a terminal.",
     "vdi import debian.raw demo/web\n"
     "zstdcat db.raw.zst | parallax vdi import - demo/db --size 20G\n"
     "qemu-img convert -O raw old.qcow2 old.raw && parallax vdi import old.raw demo/old",
     OPTIONS({"size", "SIZE", "size of the virtual disk to create"},
             {"sector-size", "BYTES", "its sectors: 512 (default) or 4096"},
             {"force", NULL, "overwrite a virtual disk that holds data"},
             {"raw", NULL, "copy the bytes of a qcow2, VMDK or compressed file as they are"}),
     plx_cmd_vdi_import},
    {"vdi", "export", "STORE/VDI[@SNAPSHOT] FILE",
     "Copy a virtual disk or snapshot to a raw image.",
     "FILE may be '-' for standard output. A regular file becomes sparse, and gets its name, or "
     "replaces another one, when it is complete. A block device or a pipe is written directly. The "
     "newest state can be exported while nobody has the virtual disk open and nobody changes it, a "
     "snapshot at any time. With --skip-errors, damaged parts are zero in "
     "the image and listed, and the exit status is 5.",
     "vdi export demo/web@nightly web.raw\n"
     "vdi export demo/web@nightly web.raw --skip-errors --json > lost.json\n"
     "vdi export demo/web - | zstd > web.raw.zst",
     OPTIONS({"force", NULL, "overwrite FILE when it exists"},
             {"skip-errors", NULL, "continue after a read error, and list what could not be read"},
             {"without-ring", NULL, "export what the store has, without newer writes on a ring"}),
     plx_cmd_vdi_export},
    {"vdi", "export-diff", "STORE/VDI[@A..B] [STORE/VDI@B] FILE",
     "Write what changed from one snapshot to another, for import-diff.",
     "Without A, everything that B holds is written: that is the first of a series of backups. "
     "FILE may be '-' for standard output. The stream has checksums and is not compressed. The "
     "virtual disk may be open.",
     "vdi export-diff demo/web@monday web.full\n"
     "vdi export-diff demo/web@monday..tuesday web.tuesday\n"
     "vdi export-diff demo/web@monday..tuesday - | ssh backup parallax vdi import-diff - safe/web",
     OPTIONS({"force", NULL, "overwrite FILE when it exists"}), plx_cmd_vdi_export_diff},
    {"vdi", "import-diff", "FILE STORE/VDI",
     "Bring a copy of a virtual disk from one snapshot to another.",
     "FILE is made by 'vdi export-diff'; '-' is standard input. A stream is refused if it is "
     "damaged or does not continue from what the copy holds. The copy gets a snapshot with the "
     "label import-ID-SEQ-TIME, which has the identity and the sequence number of the original. "
     "The next stream continues from that snapshot. A full stream creates the copy if it does not "
     "exist. If an import was interrupted, give the command again: the partial import is undone "
     "first. If the copy has the stream's snapshot already, nothing is written, unless --force "
     "returns a changed copy to it.",
     "vdi import-diff web.full safe/web\n"
     "vdi import-diff web.tuesday safe/web --dry-run\n"
     "zstdcat web.tuesday.zst | parallax vdi import-diff - safe/web",
     OPTIONS({"base", "SNAPSHOT",
              "the snapshot of the copy from which the stream continues, if no import made it"},
             {"force", NULL, "undo what was changed in the copy since; a snapshot of it stays"},
             {"dry-run", NULL, "check the stream and whether it fits; change nothing"}),
     plx_cmd_vdi_import_diff},
    {"vdi", "bench", "STORE/VDI", "Measure a virtual disk on the engine itself.",
     "The options have the names that fio uses. The command locks the virtual disk. Patterns that "
     "write OVERWRITE the disk: if it holds data, --force is needed.",
     "vdi bench demo/scratch --rw randwrite --bs 4k --iodepth 32 --runtime 5\n"
     "vdi bench demo/scratch --rw read --bs 1M --iodepth 8 --json",
     OPTIONS(
         {"rw", "PATTERN", "read, write, randread (default), randwrite or randrw"},
         {"bs", "SIZE", "size of a request (default 4k)"},
         {"iodepth", "N", "requests in flight (default 32)"},
         {"runtime", "SECONDS", "how long (default 5)"},
         {"size", "SIZE", "use only this much of the disk, from its start (default: all of it)"},
         {"rwmixread", "PERCENT", "reads in randrw (default 50)"},
         {"snapshot-every", "INTERVAL", "take snapshots while it writes: 10ms, batch or write"},
         {"force", NULL, "overwrite a virtual disk that holds data"}),
     plx_cmd_vdi_bench},
    {"vdi", "stats", "STORE/VDI", "Show the counters of a virtual disk that a handler has open.",
     NULL,
     "vdi stats demo/web\n"
     "vdi stats demo/web --json",
     NULL, plx_cmd_vdi_stats},

    {"snap", "create", "STORE/VDI[@LABEL]", "Take a snapshot and print its name.",
     "A handler may have the virtual disk open; its I/O does not stop. If nothing has changed "
     "since the last snapshot of an open disk, the name of that snapshot is printed again.",
     "snap create demo/web\n"
     "snap create demo/web@before-upgrade",
     OPTIONS({"label", "LABEL", "a name for it"}), plx_cmd_snap_create},
    {"snap", "list", "STORE/VDI", "List the newest 100 snapshots, oldest first.",
     "Use --from to begin elsewhere. A note at the end of a page says how to see the next page.",
     "snap list demo/web\n"
     "snap list demo/web --from 4711 --limit 20\n"
     "snap list demo/web --from 2026-11-21T06:20:00Z\n"
     "snap list demo/web --labels\n"
     "snap list demo/web --all --json",
     OPTIONS({"limit", "N", "show at most this many (default 100)"},
             {"from", "SNAPSHOT", "begin here: a number, a label or a time"},
             {"all", NULL, "show all"}, {"labels", NULL, "show only labelled snapshots"},
             TABLE_OPTIONS),
     plx_cmd_snap_list},
    {"snap", "label", "STORE/VDI@SNAPSHOT LABEL", "Give a snapshot a name.",
     "A labelled snapshot is kept until its label is removed.",
     "snap label demo/web@4711 good\n"
     "snap label demo/web@2026-11-21T06:20:00Z breakfast\n"
     "snap label demo/web@-90s before-it-broke",
     NULL, plx_cmd_snap_label},
    {"snap", "unlabel", "STORE/VDI@LABEL", "Remove a label; the snapshot stays.", NULL,
     "snap unlabel demo/web@good", NULL, plx_cmd_snap_unlabel},
    {"snap", "delete", "STORE/VDI@SNAPSHOT[..SNAPSHOT] [MORE...]", "Delete snapshots.",
     "Deletes one snapshot, or all from A to B, including both. Without A the range begins with "
     "the oldest snapshot, and without B it ends with the newest. The newest snapshot always "
     "stays. So does a snapshot that is being read or that a clone began with. A label that you "
     "give is removed with its snapshot. A snapshot with several labels goes if all are given. A "
     "range that contains other labels is refused unless you give --force. Snapshots that stay "
     "keep their labels. A range of which nothing can go is refused with the reason. A range of "
     "times that contains no snapshot deletes nothing and is no error. While the wall clock is in "
     "doubt (see cdp resume), nothing is deleted by a time relative to now; give numbers or "
     "labels. A handler may have the virtual disk open. Blocks that only the deleted snapshots "
     "used are free afterwards.",
     "snap delete demo/web@before-upgrade\n"
     "snap delete demo/web@4711..4720 --dry-run\n"
     "snap delete demo/web@..2026-11-21T06:20:00Z\n"
     "snap delete demo/web@17 demo/web@19 demo/web@monday..tuesday -f",
     OPTIONS({"force", NULL, "-f: also delete snapshots that have other labels"},
             {"dry-run", NULL,
              "-n: say what would be deleted, what stays and what is freed; delete nothing"}),
     plx_cmd_snap_delete},

    {"diff", NULL, "STORE/VDI[@A..B] [STORE/VDI[@B]]",
     "List the ranges that differ between two instants.",
     "For each range you see its offset and length in bytes, and whether it holds data or zeroes "
     "at B. Every difference is listed. A block that was rewritten with the same bytes may be "
     "listed, too. Without A, everything that B holds is listed. Without B, the newest state is B. "
     "The instants may be in a virtual disk and its clones. The time this takes depends on how "
     "much has changed, not on the size of the disk.",
     "diff demo/web@monday..tuesday\n"
     "diff demo/web@monday.. --summary\n"
     "diff demo/web@monday demo/web-test --json\n"
     "diff demo/web@monday",
     OPTIONS({"summary", NULL, "show only the total"}, TABLE_OPTIONS), plx_cmd_diff},
    {"find", NULL, "STORE/VDI", "List when a range of a virtual disk was changed, newest first.",
     "For each change you see the two snapshots between which it happened: those that follow each "
     "other, and between which diff shows a difference in the range. A rewind is a change, too. "
     "Several changes between two snapshots count as one. A block has 4096 bytes.",
     "find demo/web --block 0\n"
     "find demo/web --block 2048..4095 --limit 10\n"
     "find demo/web --offset 1M --length 64k --json",
     OPTIONS({"block", "A..B", "these blocks (default: all)"},
             {"offset", "SIZE", "begin at this byte"},
             {"length", "SIZE", "this many bytes (default 1)"},
             {"limit", "N", "show at most this many (default 100)"}, TABLE_OPTIONS),
     plx_cmd_find},
    {"bisect", NULL, "STORE/VDI -- COMMAND...", "Find the first bad snapshot by running a command.",
     "COMMAND is run with one more argument: the path of a raw image of a snapshot. The path is "
     "also in $PARALLAX_IMAGE, and the name of the snapshot is in $PARALLAX_INSTANT. The exit "
     "status of COMMAND is the answer: 0 is good, 125 is undecided, other numbers up to 127 are "
     "bad, and anything else ends the search. Both ends are tested first. The output of COMMAND "
     "goes to standard error. The image is a sparse, read-only file in $TMPDIR. Each image is made "
     "from the previous one by applying the differences.",
     "bisect demo/web --good monday --bad friday -- e2fsck -fn\n"
     "bisect demo/db --good 17 --bad 2026-11-21T06:20:00Z -- ./db-is-intact --verbose",
     OPTIONS({"good", "SNAPSHOT", "the older end"}, {"bad", "SNAPSHOT", "the newer end"}),
     plx_cmd_bisect},
    {"rewind", NULL, "STORE/VDI", "Take a virtual disk back to an instant.",
     "The virtual disk gets the contents of one of its own snapshots at once. Its size does not "
     "change. The state before becomes a snapshot with the label before-rewind-TIME, so another "
     "rewind brings it back. No snapshot is lost. The command is refused while an initiator is "
     "logged in: unmount what is on the disk and log out, or give --live. With --live, the next "
     "command of the initiator gets a unit attention (the medium may have changed). Many "
     "initiators keep using their caches all the same, so nothing on the disk may be mounted "
     "there. A disk can be rewound at most 60 times; rewinds before which all snapshots were "
     "deleted do not count.",
     "rewind demo/web --to 2026-11-21T06:20:00Z\n"
     "rewind demo/web --to -90s --dry-run\n"
     "rewind demo/web --to before-rewind-20261121T062000.010Z\n"
     "rewind demo/db --to 17 --live",
     OPTIONS({"to", "SNAPSHOT",
              "a label, a sequence number or a time (the newest snapshot at or before it)"},
             {"live", NULL, "even if initiators are logged in"},
             {"dry-run", NULL, "say which snapshot it is and how much differs; change nothing"}),
     plx_cmd_rewind},
    {"defrag", NULL, "STORE/VDI", "Bring the scattered blocks of a virtual disk together.",
     "Blocks that follow one another on the virtual disk but not on the store are moved to "
     "adjacent places. This is done in windows of 1 MiB, where it gains enough. The old places are "
     "free afterwards. Fragments are the pieces, of at most 1 MiB, that reading the whole disk in "
     "order takes. Blocks that a snapshot or a clone uses are not moved, so little moves on a disk "
     "that takes snapshots by itself. What a clone began with is not moved either, even when its "
     "origin is gone. Moved blocks are written again: they take their space twice until the next "
     "key frame, and the log grows by about 5 bytes a block. The disk may be in use; a write to "
     "blocks that are being moved waits. You may interrupt the command and start it again at any "
     "time. It stops when less than a sixteenth of the store is free.",
     "defrag demo/web --dry-run\n"
     "defrag demo/web --rate 50M\n"
     "defrag demo/web --json",
     OPTIONS({"rate", "SIZE", "move at most this much a second"},
             {"dry-run", NULL, "only measure, with the disk open; move nothing"}),
     plx_cmd_defrag},
    {"cdp", "on", "STORE/VDI", "Protect a virtual disk continuously: it takes snapshots by itself.",
     "One snapshot is taken at once, so that you can go back to this moment; 'cdp off' leaves it. "
     "From then on, snapshots are taken wherever the disk is open and while it is written. An idle "
     "disk takes none. Restarts do not end the protection. Each snapshot costs one small log "
     "record, and the first overwrite of a block after it goes to a new block. --keep says which "
     "snapshots are kept, and for how long. What you leave out stays as it is; a disk that has no "
     "protection yet gets the defaults.",
     "cdp on demo/web\n"
     "cdp on demo/web --every 100ms --keep all:1h,1s:1d,1m:7d,1h:30d\n"
     "cdp on demo/db --every-write",
     OPTIONS(
         {"every", "INTERVAL",
          "time between snapshots, at least 1ms (default for a disk that has no protection yet: "
          "10ms)"},
         {"every-batch", NULL, "take one snapshot for all writes that are acknowledged together"},
         {"every-write", NULL, "take one snapshot for each write"},
         {"keep", "TIERS",
          "EVERY:FOR,..., finest first: all for an hour, one a second for a day and so on; or "
          "all (default for a disk that has no protection yet: " PLX_TIERS_DEFAULT ")"},
         {"on-full", "WHAT",
          "when the store is nearly full: shorten (default), the handler or 'cdp apply' lets "
          "the oldest snapshots go before their time; or keep, and writes fail"}),
     plx_cmd_cdp_on},
    {"cdp", "off", "STORE/VDI", "Stop protecting a virtual disk; its snapshots stay.", NULL,
     "cdp off demo/web", NULL, plx_cmd_cdp_off},
    {"cdp", "status", "[STORE[/VDI]]", "Show which disks are protected, how, and since when.",
     "The oldest snapshot is as far back as you can go, and the window says how long ago that was. "
     "A warning is shown if the store was too full to keep what the policy asks for. Held "
     "snapshots are being read by somebody. Without a virtual disk, all protected disks are shown.",
     "cdp status\n"
     "cdp status demo/web --json\n"
     "cdp status --columns name,window",
     OPTIONS(TABLE_OPTIONS), plx_cmd_cdp_status},
    {"cdp", "apply", "STORE/VDI", "Delete the snapshots that the policy does not keep.",
     "A handler that has a protected virtual disk open does this by itself. Use this command for a "
     "disk that is closed or no longer protected, or if you do not want to wait. If the store is "
     "nearly full and no handler has the disk open, the oldest snapshots of a protected disk are "
     "deleted before their time. They are kept if it has --on-full keep, or if gc can free space. "
     "Commands that write do not do that: they end with exit status 6 when the store is full.",
     "cdp apply demo/web --dry-run\n"
     "cdp apply demo/web",
     OPTIONS({"dry-run", NULL, "only say what would be deleted"}), plx_cmd_cdp_apply},
    {"cdp", "resume", "STORE[/VDI]",
     "Confirm that the clock is right, so that snapshots are deleted by time again.",
     "Snapshots are not deleted by time while the clock is in doubt. It is in doubt if the wall "
     "clock has jumped by more than a minute, or if the newest snapshot lies in the future. It is "
     "also in doubt if the machine has started with an earlier time, or long after the last one. "
     "New snapshots are "
     "then a nanosecond apart. 'cdp status' tells you about it. The doubt ends by itself when the "
     "clock is right again. If the clock is right now, this command says so, for one virtual disk "
     "or for all in a store. It prints which snapshots are then deleted. Snapshots keep their "
     "times. Those in the future, and those taken in doubt, stay until they are certainly old "
     "enough.",
     "cdp resume demo/web --dry-run\n"
     "cdp resume demo/web\n"
     "cdp resume demo --json",
     OPTIONS({"dry-run", NULL, "only say what would be deleted"}), plx_cmd_cdp_resume},
    {"cdp", "timeline", "STORE/VDI",
     "Draw how much was written when, and which snapshots there are.",
     "Each column is a stretch of time. The upper part shows how much was written to new blocks. "
     "The lower part shows how many snapshots there are, and the labels.",
     "cdp timeline demo/web\n"
     "cdp timeline demo/web --last 15m\n"
     "cdp timeline demo/web --svg web.svg",
     OPTIONS({"last", "DURATION", "show only this much time before the newest, such as 90s or 2h"},
             {"svg", "FILE", "write a drawing to FILE; '-' is standard output"},
             {"force", NULL, "overwrite FILE when it exists"}),
     plx_cmd_cdp_timeline},

    {"gc", NULL, "STORE", "Free the space that no virtual disk uses any more.",
     "Frees the space of deleted virtual disks and of blocks that a crash left allocated. Virtual "
     "disks may be in use. A handler that has the store open does this by itself about a minute "
     "after something was deleted. Use this command if you do not want to wait, or if no handler "
     "has the store open. A collection that was interrupted continues the next time.",
     "gc demo\n"
     "gc demo --dry-run\n"
     "gc demo --rate 50M --memory 64M --json",
     OPTIONS({"dry-run", NULL, "only say how much there is"},
             {"rate", "SIZE", "read at most this much metadata a second"},
             {"memory", "SIZE",
              "memory for one bit a block (default 256M); with less, the work is done in slices"}),
     plx_cmd_gc},
    {"dedup", NULL, "STORE", "Let equal blocks of virtual disks share their space.",
     "Blocks that are equal, byte by byte, become one block. They may be in one virtual disk or in "
     "several. A write to one of them does not show in the others. Contents do not change, and the "
     "disks may be in use. Blocks that a snapshot or a clone uses are not shared, so little is "
     "shared on a disk that takes snapshots by itself. Nor is what a clone began with, even when "
     "its origin is gone. Nor are blocks that were overwritten in place, until they move or are "
     "written again. The virtual disks are those that a handler of "
     "this host has open, or all disks of the store if no handler has it open. Metadata is read "
     "once, or more often with little memory. After that, the blocks that may have an equal are "
     "read. No collection runs at the same time. You may interrupt the command and start it again "
     "at any time. Older handlers, which do not know this command, cannot open the store "
     "afterwards.",
     "dedup demo --dry-run\n"
     "dedup demo --rate 50M\n"
     "dedup demo --memory 64M --json",
     OPTIONS({"dry-run", NULL, "only say how much would be shared; the disks are opened for that"},
             {"rate", "SIZE", "read at most this much data a second"},
             {"memory", "SIZE",
              "memory for 24 bytes a block (default 256M); with less, the work is done in slices"}),
     plx_cmd_dedup},
    {"du", NULL, "STORE[/VDI[@A..B]]",
     "Show what uses the space of a store, and what deleting it would free.",
     "Shows for each virtual disk, with its snapshots: all its blocks, the blocks that nobody else "
     "uses, and the blocks that others use, too. Deleting the disk and running 'gc' would free the "
     "blocks that nobody else uses. The same is shown for families, which are disks that come from "
     "each other by cloning. Garbage is what no disk uses any more. With snapshots, it shows what "
     "deleting them would free. All metadata is read. Disks may be open.",
     "du demo\n"
     "du demo/web --json\n"
     "du demo/web@monday..friday",
     NULL, plx_cmd_du},
    {"tree", NULL, "[STORE]", "Show virtual disks, labelled snapshots and clones as a tree.", NULL,
     "tree demo\n"
     "tree demo --dot | dot -Tsvg > demo.svg",
     OPTIONS({"dot", NULL, "as a graph for Graphviz"}), plx_cmd_tree},

    {"ring", "create", "STORE PATH [PATH]", "Make a write-back ring for a store on this host.",
     "A ring is a log on this host's own disks: a file or a block device, or two that mirror each "
     "other. A file that does not exist is created with --size, and all of it is allocated. A "
     "device that holds data is refused unless you give --force; a volume of a store, and a ring "
     "that may hold writes, always. This host's own ring of the store becomes known again as it "
     "is, under another path, too, and with one member if the other is lost. The ring of a host "
     "that is off becomes this host's, with its writes, if its device was brought here. A host has "
     "one ring for each store. Handlers that do not know rings cannot open the store afterwards.",
     "ring create demo /srv/demo.ring --size 64M\n"
     "ring create san /dev/disk/by-id/nvme-aa /dev/disk/by-id/nvme-bb\n"
     "ring create demo /dev/disk/by-id/nvme-aa --from web1 --i-checked-it-is-off",
     OPTIONS({"size", "SIZE", "size of each file that is created, at least 33M"},
             {"force", NULL, "overwrite devices that hold data"},
             {"i-checked-the-other-is-lost", NULL, "PATH is what is left of a mirror"},
             {"from", "HOST", "take over the ring of this host, as 'store scan PATH' shows it"},
             {"i-checked-it-is-off", NULL, "confirm that HOST is off"}),
     plx_cmd_ring_create},
    {"ring", "list", "[STORE]", "List the rings of this host.",
     "A ring that cannot be used is listed, too: PROBLEM says why in a word, standard error in a "
     "sentence. STATE says whether somebody has the ring open, and whether a ring of two runs on "
     "one member. Nothing is changed.",
     "ring list\n"
     "ring list demo --json",
     OPTIONS(TABLE_OPTIONS), plx_cmd_ring_list},
    {"ring", "info", "STORE|PATH", "Show a ring, its members, and its records of each disk.",
     "Give the store of a ring of this host, or the path of a member. The name of a file here does "
     "without a '/' if no store is called so. "
     "RECORDS are those that the store may not have yet. ASIDE are those that no virtual disk "
     "claims, such as discarded ones; FROM and TO say when they were written, where that is "
     "known. Nothing is changed. While a handler has the ring open, the records are not counted.",
     "ring info demo\n"
     "ring info /srv/demo.ring --json",
     NULL, plx_cmd_ring_info},
    {"ring", "delete", "STORE|PATH", "Erase a ring that no virtual disk needs.",
     "A ring is refused if it may hold the newest writes of a virtual disk, even with --force. The "
     "command asks the store. If the store is not available, you must confirm that no virtual disk "
     "needs the ring. Files that the ring lay in are not removed. Give a path with a '/' for a "
     "ring that this host does not know.",
     "ring delete demo --dry-run\n"
     "ring delete demo",
     OPTIONS({"dry-run", NULL, "say whether it would work; change nothing"},
             {"force", NULL, "even with writes set aside, a member lost, or of another host"},
             {"i-checked-nobody-needs-it", NULL, "confirm it, where the store cannot be asked"}),
     plx_cmd_ring_delete},
    {"ring", "check", "STORE", "Check what this host's ring has against the store.",
     "Reads all writes that the store lacks, with their checksums, and compares the ring with the "
     "records of the virtual disks. Changes nothing. 'store check' does so, too. Of a ring in "
     "use, only the members are looked at. Of a mirror, each member is looked at by itself; one "
     "that runs on one member is no error.",
     "ring check demo", NULL, plx_cmd_ring_check},
    {"ring", "discard", "STORE/VDI", "Discard a ring's writes to a virtual disk.",
     "The virtual disk then has the state on the store: an earlier one, without the newest writes. "
     "Use it if the ring is lost or damaged, or its host is lost. If the ring can still be had, "
     "'vdi set --ring off' on its host brings its writes to the store instead. If it lies here "
     "under another path, 'ring create STORE PATH' makes it known. The command says what is lost, "
     "as far as it can. What a newer state of the store may need stays on the ring, set aside.",
     "ring discard demo/web --dry-run\n"
     "ring discard demo/web --yes",
     OPTIONS({"yes", NULL, "do it, instead of only saying what would be lost"},
             {"also-set-aside", NULL, "also what was set aside, which a newer store may need"},
             {"dry-run", NULL, "only say what would be lost; the exit status is 0"}),
     plx_cmd_ring_discard},
    {"ring", "repair", "STORE", "Go on with one member of a ring of two, or give it another one.",
     "A ring of two is not used while a member is missing, because that member may have the "
     "newest writes. Your word that it is lost for good lets the ring go on with the other one. "
     "If it comes back, it is not used. With --with, the ring is copied to another device, to one "
     "that came back, or to a damaged member. A ring made with one member gets no other. No "
     "handler may have the ring open: 'vdi set --ring off' for each of its disks ends that.",
     "ring repair san --i-checked-the-other-is-lost\n"
     "ring repair san --with /dev/disk/by-id/nvme-cc",
     OPTIONS({"with", "PATH", "the new member: a file or a block device"},
             {"size", "SIZE", "size of the file, if it is created"},
             {"force", NULL, "overwrite a device that holds data, or a member with newer writes"},
             {"i-checked-the-other-is-lost", NULL,
              "the member that is missing never comes back with writes that count"}),
     plx_cmd_ring_repair},

#include "command_table_hosts.inc"

    {"help", NULL, "[NOUN] [VERB]", "Show help on everything, a noun or a command.", NULL,
     "help\n"
     "help vdi create",
     NULL, plx_cmd_help},
    {"version", NULL, NULL, "Show the version.", NULL, "version", NULL, plx_cmd_version},
    {"__complete", NULL, "[WORD] [WORD]", NULL, NULL, NULL,
     OPTIONS({"usage", NULL, "what the words behind the command are"}), plx_cmd_complete},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};
