/* main.c - the parallax command: its one table of commands, and what runs one of them.
 *
 * M1  Every way out goes through main(): the session is closed, standard output is flushed, one
 *     error line is printed at most, and the exit status follows the error's class.
 * M2  SIGINT and SIGTERM only set a flag (plx_interrupted): loops stop at it, and open virtual
 *     disks are closed as usual. A command that failed then, or that was cut short, ends with 128
 *     and the signal's number; one that had done all of its work by then is done.
 * M3  Who prints to a pipe that nobody reads any more stops, and dies of SIGPIPE in the end,
 *     without a word; who changes something finishes that first. Where SIGPIPE is ignored, it is an
 *     ordinary write error.
 */
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "commands.h"
#include "device/credentials.h"
#include "output.h"
#include "registry/policy.h"

/* clang-format off */
#define OPTIONS(...) (const struct plx_option[]) { __VA_ARGS__, {NULL, NULL, NULL} }
/* clang-format on */

const struct plx_option plx_global_options[] = {
    {"state-dir", "DIR",
     "which stores are known, and the sockets (default: $PARALLAX_STATE_DIR, else "
     "/var/lib/parallax and /run/parallax)"},
    {"json", NULL, "print data and errors as JSON"},
    {"quiet", NULL, "-q: no notes, no progress, no table headers"},
    {"wait", "SECONDS",
     "wait so long at most for what another command of this host has; 0: not at all (default 10)"},
    {"help", NULL, "-h: this help"},
    {NULL, NULL, NULL},
};

static int cmd_help(struct plx_cli *cli)
{
    return plx_cli_help(cli, cli->count > 0 ? cli->arguments[0] : NULL,
                        cli->count > 1 ? cli->arguments[1] : NULL);
}

static int cmd_version(struct plx_cli *cli)
{
    if (cli->json)
        plx_out_json(json_pack("{s:s}", "version", PLX_VERSION));
    else
        puts("parallax " PLX_VERSION);
    return 0;
}

static int cmd_complete(struct plx_cli *cli)
{
    return plx_cli_complete(cli->arguments, cli->count);
}

const struct plx_command plx_commands[] = {
    {"store", "format", "NAME", "Make a new, empty store.",
     "A store lies on one or more volumes: files, block devices or iscsi:// URLs. A file that "
     "does not exist is made, with --size; devices are taken whole. A volume that holds data "
     "is refused unless --force is given. Passwords for iSCSI targets come "
     "from " PLX_CREDENTIALS_FILE ".",
     "store format demo --volume /srv/demo.plx --size 4G\n"
     "store format san --volume /dev/disk/by-id/wwn-0x6001405aa --volume "
     "/dev/disk/by-id/wwn-0x6001405bb\n"
     "store format test --volume ./test.plx --size 1G --state-dir ./state",
     OPTIONS({"volume", "PATH...", "file, block device or iscsi:// URL; once for each volume"},
             {"size", "SIZE", "size of each file that is made"},
             {"extent-size", "SIZE", "unit of ownership, 1M to 2G (default: by the store's size)"},
             {"force", NULL, "overwrite volumes that hold data"},
             {"i-checked-nobody-uses-it", NULL, "your word, where volumes do not tell"}),
     plx_cmd_store_format},
    {"store", "list", NULL, "List the stores that this host knows.", NULL,
     "store list\n"
     "store list --json",
     NULL, plx_cmd_store_list},
    {"store", "info", "STORE", "Show a store's volumes, extents and space.",
     "Handlers of this host are asked; of other extents the blocks are counted from their bitmaps, "
     "in which what somebody has allocated since they were last written is missing. Of what is "
     "free some is reserved: for "
     "metadata, so that a full store can still flush, take and delete snapshots, and unmap; of "
     "that, what all disks that are open need to be opened again after a crash is left alone by "
     "everything else.",
     "store info demo\n"
     "store info demo --json",
     NULL, plx_cmd_store_info},
    {"store", "stats", "STORE", "Show what a handler has counted since it opened the store.",
     "Device I/O by what it was for, log batches, key frames, the cache of nodes, and the sums of "
     "all virtual disks that it serves.",
     "store stats demo\n"
     "store stats demo --json",
     NULL, plx_cmd_store_stats},
    {"store", "grow", "STORE", "Take into use what volumes have become larger by.",
     "After a file, block device or LUN was made larger: what fits in whole extents belongs to the "
     "store from then on. Disks may be open; writes that wait for space go on, and those that were "
     "refused work again. Also finishes a 'store grow' or 'store add-volume' that was broken off.",
     "store grow demo --dry-run\n"
     "store grow demo",
     OPTIONS({"dry-run", NULL, "tell by how much; change nothing"}), plx_cmd_store_grow},
    {"store", "add-volume", "STORE PATH", "Add a file, block device or iscsi:// URL to a store.",
     "A file that does not exist is made, with --size; devices are taken whole. A volume that "
     "holds "
     "data is refused unless --force is given. Disks may be open; writes that wait for space go "
     "on, "
     "and those that were refused work again. From then on the store needs all its volumes. When "
     "it "
     "was broken off, give the same command again.",
     "store add-volume demo /srv/more.plx --size 4G\n"
     "store add-volume san /dev/disk/by-id/wwn-0x6001405cc --dry-run",
     OPTIONS({"size", "SIZE", "size of the file that is made"},
             {"dry-run", NULL, "tell by how much the store would grow; change nothing"},
             {"force", NULL, "overwrite a volume that holds data"},
             {"i-checked-nobody-uses-it", NULL, "your word, where the volume does not tell"}),
     plx_cmd_store_add_volume},
    {"store", "set", "STORE", "Set the soft limit of a store.",
     "When so much of it is not free for data any more, a handler that has it open says so: once "
     "in its log, as an event, and to the initiators of all LUNs in it (THIN PROVISIONING SOFT "
     "THRESHOLD REACHED); and again when it was left by a twentieth in between. Takes effect "
     "within seconds.",
     "store set demo --warn-at 80%\n"
     "store set demo --warn-at 3G\n"
     "store set demo --warn-at none",
     OPTIONS({"warn-at", "SIZE|PERCENT", "the limit; none: there is none"}), plx_cmd_store_set},
    {"store", "check", "STORE", "Check every structure of a store; reads only.",
     "Follows every virtual disk, snapshot, key frame, log batch and node, compares them with the "
     "allocation bitmaps and the registry, and prints one line for each finding. Disks may be open "
     "meanwhile. Exit status 5 when something is damaged; leaked blocks alone are no damage.",
     "store check demo\n"
     "store check demo --data --rate 100M\n"
     "store check demo --json",
     OPTIONS({"data", NULL, "read every data block with a known checksum, too"},
             {"rate", "SIZE", "read at most so much a second"}),
     plx_cmd_store_check},
    {"store", "scan", "[PATH...]", "Look which volumes hold stores, and which host has each.",
     "Without PATH: all block devices of this machine. Reads only.",
     "store scan\n"
     "store scan /srv/demo.plx --json",
     NULL, plx_cmd_store_scan},
    {"store", "import", "[NAME]", "Make a store known here: from another host, or after a loss.",
     "A store is one truth: its registry lies in it. What this host keeps is only where it lies. "
     "Give every volume. A store that no host has is taken; one that another host has is refused: "
     "'store release' there gives it up, 'store take-over' takes it from a host that is off. NAME "
     "is what it is called here, if not by its own name. A copy, of files or by an array, that is "
     "used beside the original gets an identity of its own with --new-identity: its virtual disks "
     "have other UUIDs and LUN serials from then on, and incremental streams of the one are not "
     "taken for the other's.",
     "store import --volume /srv/demo.plx\n"
     "store import yesterday --new-identity --volume /srv/copy.plx",
     OPTIONS({"volume", "PATH...", "once for each volume of the store"},
             {"new-identity", NULL, "the volumes are a copy; NAME is needed beside the original"},
             {"from", "HOST", "with it: the host that has the original"}),
     plx_cmd_store_import},
    {"store", "take-over", "[STORE]", "Take a store from a host that is off.",
     "Only you can know that the host is off: if it still runs, both write, and destroy the store. "
     "A host that is seen to be alive is refused all the same. Then the virtual disks that it had "
     "open are recovered, with all that was acknowledged. A store that is not known here is named "
     "by its volumes.",
     "store take-over demo --from web1 --dry-run\n"
     "store take-over demo --from web1 --i-checked-it-is-off\n"
     "store take-over --volume /dev/sdb --from web1 --i-checked-it-is-off",
     OPTIONS({"from", "HOST", "the host that has it, as 'store scan' shows it"},
             {"any", NULL, "whichever has it, when the store cannot tell"},
             {"i-checked-it-is-off", NULL, "your word"},
             {"dry-run", NULL, "only look; change nothing"},
             {"volume", "PATH...", "once for each volume, of a store that is not known here"}),
     plx_cmd_store_take_over},
    {"store", "release", "STORE", "Give a store up, so that another host can import it.",
     "Refused while a handler or a command has it open.", "store release demo",
     OPTIONS({"dry-run", NULL, "only look; change nothing"}), plx_cmd_store_release},
    {"store", "forget", "STORE", "Drop a store from those known here; its volumes are not touched.",
     "The way back is 'store import'. Refused while a handler or a command of this host has it "
     "open.",
     "store forget demo", NULL, plx_cmd_store_forget},
    {"store", "rebuild-registry", NULL, "Make a store's registry anew from the store.",
     "For a registry that is damaged: all that it knows is read back from the store's structures. "
     "Give every volume. It takes the old one's place as a whole, or nothing changes. What cannot "
     "be read is named, exit status 5, and held until 'vdi forget --lost'; so are virtual disks "
     "that the old registry knows and the store does not hold. Those whose record went back stay "
     "refused until 'vdi accept-older'. Refused while anybody has the store open.",
     "store rebuild-registry --volume /srv/demo.plx --dry-run\n"
     "store rebuild-registry --volume /srv/demo.plx",
     OPTIONS({"volume", "PATH...", "once for each volume of the store"},
             {"dry-run", NULL, "only read; change nothing"}),
     plx_cmd_store_rebuild},
    {"store", "export-registry", "STORE FILE", "Write a copy of a store's registry, to look at.",
     "An SQLite file. It is a copy: nothing reads it back.",
     "store export-registry demo registry.db",
     OPTIONS({"force", NULL, "replace a file that exists; never a volume of a store"}),
     plx_cmd_store_export_registry},

    {"vdi", "create", "STORE/VDI", "Create a virtual disk.",
     "It takes no space until it is written.",
     "vdi create demo/web --size 100G\n"
     "vdi create demo/db --size 2T --sector-size 4096 --overwrite copy",
     OPTIONS({"size", "SIZE", "up to 256T"}, {"sector-size", "BYTES", "512 (default) or 4096"},
             {"overwrite", "HOW",
              "in-place (default), or copy: every write goes to a new block, so that all data has "
              "checksums at all times; in place a block has none until it has been quiet for an "
              "hour"}),
     plx_cmd_vdi_create},
    {"vdi", "list", "[STORE]", "List virtual disks, and who has each open.",
     "Who is gone has died: what it had open is recovered, with all that was acknowledged, when "
     "its store is opened next for writing.",
     "vdi list\n"
     "vdi list demo --json",
     NULL, plx_cmd_vdi_list},
    {"vdi", "info", "STORE/VDI", "Show a virtual disk's properties and who has it open.", NULL,
     "vdi info demo/web", NULL, plx_cmd_vdi_info},
    {"vdi", "resize", "STORE/VDI", "Make a virtual disk larger.",
     "Works while a handler has it open; initiators see the new size after a rescan. A virtual "
     "disk cannot be made smaller.",
     "vdi resize demo/web --size 200G", OPTIONS({"size", "SIZE", "the new size"}),
     plx_cmd_vdi_resize},
    {"vdi", "set", "STORE/VDI", "Set the soft limit of a virtual disk.",
     "When so much of it holds data, a handler that has it open says so, as for 'store set', to "
     "the initiators of its LUN. What its snapshots keep does not count.",
     "vdi set demo/web --warn-at 80%\n"
     "vdi set demo/web --warn-at none",
     OPTIONS({"warn-at", "SIZE|PERCENT", "the limit; none: there is none"}), plx_cmd_vdi_set},
    {"vdi", "delete", "STORE/VDI", "Delete a virtual disk and all its snapshots.",
     "Asks on a terminal and refuses without one, unless --yes is given. Clones of its "
     "snapshots stay. Its space comes back with the next 'parallax gc', which an open store's "
     "handler "
     "does by itself. With --lost, one whose record is not on the store any more, or damaged, "
     "because a device lost "
     "a write: nothing is collected before. Where it may come back, restore the store instead.",
     "vdi delete demo/web\n"
     "vdi delete demo/web-test --yes\n"
     "vdi delete demo/web --lost",
     OPTIONS({"yes", NULL, "do not ask"},
             {"lost", NULL, "its record is gone from the store; no other one is deleted"}),
     plx_cmd_vdi_delete},
    {"vdi", "accept-older", "STORE/VDI", "Go on with a virtual disk whose record went back.",
     "A device that acknowledged a write and lost it, or a restored copy of a part of the store, "
     "can "
     "bring back an older state of a virtual disk. Such a disk is refused, since what was written "
     "later is missing. This command accepts the older state.",
     "vdi accept-older demo/web --dry-run\n"
     "vdi accept-older demo/web --yes",
     OPTIONS({"yes", NULL, "do it, rather than tell"},
             {"dry-run", NULL, "tell, and that is what was wanted: exit status 0"}),
     plx_cmd_vdi_accept},
    {"vdi", "forget", "STORE", "Give up what a rebuild of the registry could not read.",
     "Virtual disks whose record is damaged on the store, and labels. Until then nothing is "
     "collected and no snapshot goes, since the lost disks may use any block.",
     "vdi forget demo --lost --dry-run\n"
     "vdi forget demo --lost --yes",
     OPTIONS({"lost", NULL, "what is lost is meant"}, {"yes", NULL, "do it, rather than tell"},
             {"dry-run", NULL, "tell, and that is what was wanted: exit status 0"}),
     plx_cmd_vdi_forget},
    {"vdi", "clone", "STORE/VDI@SNAPSHOT STORE/NEW",
     "Make a writable virtual disk from a snapshot.",
     "Takes no time and no space until it is written.",
     "vdi clone demo/web@before-upgrade demo/web-test\n"
     "vdi clone demo/web@2026-11-21T06:20:00Z demo/web-then",
     NULL, plx_cmd_vdi_clone},
    {"vdi", "import", "FILE STORE/VDI", "Copy a raw image into a virtual disk.",
     "FILE may be '-' for standard input. The virtual disk is created when it does not exist, "
     "with the size of the file or of --size; one that holds data is overwritten with --force "
     "only. A stream must bring something, and its end is taken for the image's. Zeroes take no "
     "space. Shows progress on a terminal.",
     "vdi import debian.raw demo/web\n"
     "zstdcat db.raw.zst | parallax vdi import - demo/db --size 20G\n"
     "qemu-img convert -O raw old.qcow2 old.raw && parallax vdi import old.raw demo/old",
     OPTIONS({"size", "SIZE", "size of the virtual disk to create"},
             {"sector-size", "BYTES", "its sectors: 512 (default) or 4096"},
             {"force", NULL, "overwrite a virtual disk that holds data"}),
     plx_cmd_vdi_import},
    {"vdi", "export", "STORE/VDI[@SNAPSHOT] FILE",
     "Copy a virtual disk or snapshot to a raw image.",
     "FILE may be '-' for standard output; a file becomes sparse. It gets its name when all of it "
     "is there, and one that it replaces stays until then; a block device or a pipe is written "
     "directly. A virtual disk that is open elsewhere is read as it is on the store at that "
     "moment; take a snapshot for an exact instant. With --skip-errors what is damaged is zero in "
     "the image and listed; the exit status is 5 then.",
     "vdi export demo/web@nightly web.raw\n"
     "vdi export demo/web@nightly web.raw --skip-errors --json > lost.json\n"
     "vdi export demo/web - | zstd > web.raw.zst",
     OPTIONS({"force", NULL, "overwrite FILE when it exists"},
             {"skip-errors", NULL, "go on where something cannot be read, and list it"}),
     plx_cmd_vdi_export},
    {"vdi", "export-diff", "STORE/VDI[@A..B] [STORE/VDI@B] FILE",
     "Write what changed from one snapshot to another, for import-diff.",
     "Without A everything that B holds: the first of a row of backups. FILE may be '-' for "
     "standard output. The stream carries checksums; it is not compressed. The virtual disk may be "
     "open meanwhile.",
     "vdi export-diff demo/web@monday web.full\n"
     "vdi export-diff demo/web@monday..tuesday web.tuesday\n"
     "vdi export-diff demo/web@monday..tuesday - | ssh backup parallax vdi import-diff - safe/web",
     OPTIONS({"force", NULL, "overwrite FILE when it exists"}), plx_cmd_vdi_export_diff},
    {"vdi", "import-diff", "FILE STORE/VDI",
     "Bring a copy from one snapshot of its original to another.",
     "FILE, '-' for standard input, comes from 'vdi export-diff'. It is refused when it is damaged "
     "or "
     "does not go on from what the copy holds. The copy gets a snapshot, labelled "
     "import-ID-SEQ-TIME "
     "after the original's identity and sequence number, which the next stream goes on from. One "
     "from nothing creates the copy when it does not exist. An import that was broken off is "
     "repeated: what it left is taken back first.",
     "vdi import-diff web.full safe/web\n"
     "vdi import-diff web.tuesday safe/web --dry-run\n"
     "zstdcat web.tuesday.zst | parallax vdi import-diff - safe/web",
     OPTIONS({"base", "SNAPSHOT",
              "the copy's snapshot that the stream goes on from, when no import made it"},
             {"force", NULL, "take back what was changed in the copy since"},
             {"dry-run", NULL, "check the stream and whether it fits; change nothing"}),
     plx_cmd_vdi_import_diff},
    {"vdi", "bench", "STORE/VDI", "Measure a virtual disk on the engine itself.",
     "With fio's words. Takes the virtual disk's lock. Writing patterns OVERWRITE its content: "
     "one that holds data needs --force.",
     "vdi bench demo/scratch --rw randwrite --bs 4k --iodepth 32 --runtime 5\n"
     "vdi bench demo/scratch --rw read --bs 1M --iodepth 8 --json",
     OPTIONS({"rw", "PATTERN", "read, write, randread (default), randwrite or randrw"},
             {"bs", "SIZE", "size of a request (default 4k)"},
             {"iodepth", "N", "requests in flight (default 32)"},
             {"runtime", "SECONDS", "how long (default 5)"},
             {"size", "SIZE", "use this much from the start (default: all)"},
             {"rwmixread", "PERCENT", "reads in randrw (default 50)"},
             {"snapshot-every", "INTERVAL", "protect it meanwhile: 10ms, batch or write"},
             {"force", NULL, "overwrite a virtual disk that holds data"}),
     plx_cmd_vdi_bench},
    {"vdi", "stats", "STORE/VDI", "Show the counters of a virtual disk that a handler has open.",
     NULL,
     "vdi stats demo/web\n"
     "vdi stats demo/web --json",
     NULL, plx_cmd_vdi_stats},

    {"snap", "create", "STORE/VDI[@LABEL]", "Take a snapshot; prints its name.",
     "Works while a handler has the virtual disk open, without stopping its I/O. When nothing "
     "changed since the last snapshot of a disk that a handler has open, that one is named again.",
     "snap create demo/web\n"
     "snap create demo/web@before-upgrade",
     OPTIONS({"label", "LABEL", "a name for it"}), plx_cmd_snap_create},
    {"snap", "list", "STORE/VDI", "List snapshots, oldest first: the newest 100.",
     "--from begins elsewhere, and the note at a page's end says how to go on.",
     "snap list demo/web\n"
     "snap list demo/web --from 4711 --limit 20\n"
     "snap list demo/web --from 2026-11-21T06:20:00Z\n"
     "snap list demo/web --labels\n"
     "snap list demo/web --all --json",
     OPTIONS({"limit", "N", "at most so many (default 100)"},
             {"from", "SNAPSHOT", "from this one on: a number, a label or a time"},
             {"all", NULL, "all of them, however many there are"},
             {"labels", NULL, "labelled ones only"}),
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
     "One, or all from A to B, both included; without A from the oldest, without B to the newest. "
     "The "
     "newest snapshot always stays, and so does what is being read and what a clone began with. A "
     "label that is given goes with its snapshot; a range with other labels in it is refused, "
     "unless "
     "--force is given; what stays keeps its labels. Works while a handler has the virtual disk "
     "open. Blocks that only these snapshots had are free afterwards.",
     "snap delete demo/web@before-upgrade\n"
     "snap delete demo/web@4711..4720 --dry-run\n"
     "snap delete demo/web@..2026-11-21T06:20:00Z\n"
     "snap delete demo/web@17 demo/web@19 demo/web@monday..tuesday -f",
     OPTIONS({"force", NULL, "-f: also snapshots that have other labels"},
             {"dry-run", NULL,
              "-n: say what would go, what stays and what comes back, delete nothing"}),
     plx_cmd_snap_delete},

    {"diff", NULL, "STORE/VDI[@A..B] [STORE/VDI[@B]]",
     "List the ranges that differ between two instants.",
     "A range is told with its offset and length in bytes and with what it is at B: data or zero. "
     "All that differs is listed; a block that was written again with the same bytes may be, too. "
     "Without A everything that B holds counts, without B the newest state is B. The instants may "
     "lie in a virtual disk and its clones. Takes as long as what changed is large, whatever the "
     "size of the disk.",
     "diff demo/web@monday..tuesday\n"
     "diff demo/web@monday.. --summary\n"
     "diff demo/web@monday demo/web-test --json\n"
     "diff demo/web@monday",
     OPTIONS({"summary", NULL, "only how much"}), plx_cmd_diff},
    {"find", NULL, "STORE/VDI", "List when a range of a virtual disk was changed, newest first.",
     "Tells between which two snapshots. Changes are known no more exactly than that: what "
     "happened "
     "between two snapshots counts as one. A block has 4096 bytes.",
     "find demo/web --block 0\n"
     "find demo/web --block 2048..4095 --limit 10\n"
     "find demo/web --offset 1M --length 64k --json",
     OPTIONS({"block", "A..B", "these blocks (default: all)"},
             {"offset", "SIZE", "from this byte on"},
             {"length", "SIZE", "so many bytes (default 1)"},
             {"limit", "N", "at most so many (default 100)"}),
     plx_cmd_find},
    {"bisect", NULL, "STORE/VDI -- COMMAND...", "Find the first bad snapshot by asking a command.",
     "COMMAND gets one more word, the path of a raw image of a snapshot (also in $PARALLAX_IMAGE; "
     "its name is in $PARALLAX_INSTANT), and answers by its exit status: 0 good, 125 cannot tell, "
     "other numbers up to 127 bad; anything else ends the search. Both ends are asked first. Its "
     "output goes to standard error. The image is a sparse file in $TMPDIR, for reading; each is "
     "made from the one before by what differs.",
     "bisect demo/web --good monday --bad friday -- e2fsck -fn\n"
     "bisect demo/db --good 17 --bad 2026-11-21T06:20:00Z -- ./db-is-intact --verbose",
     OPTIONS({"good", "SNAPSHOT", "the older end"}, {"bad", "SNAPSHOT", "the newer end"}),
     plx_cmd_bisect},
    {"rewind", NULL, "STORE/VDI", "Bring a virtual disk back to an instant.",
     "Its contents become those of a snapshot of its own, at once; its size stays. The state "
     "before "
     "becomes a snapshot with the label before-rewind-TIME, so the way back is another rewind; no "
     "snapshot is lost, and what was written since stays in them. Refused while an initiator is "
     "logged in: unmount what is on the disk and log out, or give --live; then its next command "
     "gets a unit attention (the medium may have changed). Many initiators keep what they have in "
     "their caches all the same: nothing may be mounted there. At most 60 times a disk, not "
     "counting those before which all snapshots were let go.",
     "rewind demo/web --to 2026-11-21T06:20:00Z\n"
     "rewind demo/web --to -90s --dry-run\n"
     "rewind demo/web --to before-rewind-20261121T062000.010Z\n"
     "rewind demo/db --to 17 --live",
     OPTIONS({"to", "SNAPSHOT",
              "a label, a sequence number or a time (the newest snapshot at or before it)"},
             {"live", NULL, "although initiators are logged in"},
             {"dry-run", NULL, "tell what it would go to and how much differs; change nothing"}),
     plx_cmd_rewind},
    {"defrag", NULL, "STORE/VDI", "Bring the scattered blocks of a virtual disk together.",
     "Blocks that follow one another on the virtual disk but not on the store are given new, "
     "adjacent places, in windows of 1 MiB and where enough is won by it; the old ones are free "
     "afterwards. Fragments are the pieces in which reading all of it in order takes it, of at "
     "most 1 MiB. Blocks that a snapshot or a clone sees stay where they are, so of a disk that "
     "takes snapshots by itself hardly any move. What moves is written anew: it takes its space "
     "twice until the next key frame, and the log grows by some 5 bytes a block. Runs beside I/O; "
     "a write to what is just being "
     "moved waits. May be interrupted and begun again at any time. Ends when less than a sixteenth "
     "of the store is free.",
     "defrag demo/web --dry-run\n"
     "defrag demo/web --rate 50M\n"
     "defrag demo/web --json",
     OPTIONS({"rate", "SIZE", "move at most so much a second"},
             {"dry-run", NULL, "only measure; move nothing"}),
     plx_cmd_defrag},
    {"cdp", "on", "STORE/VDI", "Protect a virtual disk continuously: it takes snapshots by itself.",
     "From then on, wherever it is open and while it is written; a disk that is idle takes none. "
     "Restarts resume it. Each snapshot costs one small log record, and the first overwrite of a "
     "block after it goes to a new block. --keep says how long which are kept.",
     "cdp on demo/web\n"
     "cdp on demo/web --every 100ms --keep all:1h,1s:1d,1m:7d,1h:30d\n"
     "cdp on demo/db --every-write",
     OPTIONS({"every", "INTERVAL", "a snapshot every so often, from 1ms (default 10ms)"},
             {"every-batch", NULL, "one for all that is acknowledged at once"},
             {"every-write", NULL, "one for each write"},
             {"keep", "TIERS",
              "EVERY:FOR,..., finest first: all for an hour, one a second for a day and so on; or "
              "all (default " PLX_TIERS_DEFAULT ")"},
             {"on-full", "WHAT",
              "when the store is full: shorten (default), the oldest snapshots go before their "
              "time; or keep, and writes fail"}),
     plx_cmd_cdp_on},
    {"cdp", "off", "STORE/VDI", "Stop protecting a virtual disk; its snapshots stay.", NULL,
     "cdp off demo/web", NULL, plx_cmd_cdp_off},
    {"cdp", "status", "[STORE[/VDI]]", "Show what is protected, how, and since when.",
     "The oldest snapshot is how far back one can go; the window is how long ago that was, and "
     "warns "
     "when the store was too full for what is to be kept. Held are snapshots that somebody reads. "
     "Without a virtual disk: those that are protected.",
     "cdp status\n"
     "cdp status demo/web --json",
     NULL, plx_cmd_cdp_status},
    {"cdp", "apply", "STORE/VDI", "Let go now of the snapshots that are not to be kept.",
     "A handler that has a protected virtual disk open does that by itself; this is for one that "
     "is "
     "closed, or not protected any more, and for who does not want to wait.",
     "cdp apply demo/web", NULL, plx_cmd_cdp_apply},
    {"cdp", "resume", "STORE[/VDI]", "Say that the clock is right: let snapshots go by time again.",
     "When the wall clock has jumped by more than a minute, the machine has started with an "
     "earlier time or long after the last, or the newest snapshot lies in the future, no snapshot "
     "is let go by time, and new ones are a nanosecond apart; 'cdp status' says so. That ends by "
     "itself when the clock is right again. If it is right as it is now, say so: of this virtual "
     "disk, or of all in a store. Tells what goes then. Snapshots keep their times; those in the "
     "future, and those taken in doubt, stay until they are old enough for sure.",
     "cdp resume demo/web --dry-run\n"
     "cdp resume demo/web\n"
     "cdp resume demo --json",
     OPTIONS({"dry-run", NULL, "only tell what would go"}), plx_cmd_cdp_resume},
    {"cdp", "timeline", "STORE/VDI",
     "Draw how much was written when, and which instants there are.",
     "Each column is a stretch of time: above what was written to new blocks, below how many "
     "snapshots there are, and labels.",
     "cdp timeline demo/web\n"
     "cdp timeline demo/web --last 15m\n"
     "cdp timeline demo/web --svg web.svg",
     OPTIONS({"last", "DURATION", "only so far back from the newest, such as 90s or 2h"},
             {"svg", "FILE", "write a drawing instead; '-' for standard output"},
             {"force", NULL, "overwrite FILE when it exists"}),
     plx_cmd_cdp_timeline},

    {"gc", NULL, "STORE", "Collect what no virtual disk uses any more.",
     "Space of deleted virtual disks, and what crashes left allocated, comes back. Virtual disks "
     "go on meanwhile. A handler that has the store open does it by itself a minute or so after "
     "something was deleted; this is for at once, and for stores that no handler has open. Broken "
     "off, it goes on the next time.",
     "gc demo\n"
     "gc demo --dry-run\n"
     "gc demo --rate 50M --memory 64M --json",
     OPTIONS(
         {"dry-run", NULL, "only tell how much there is"},
         {"rate", "SIZE", "read at most so much metadata a second"},
         {"memory", "SIZE", "for one bit a block (default 256M); with less it works in slices"}),
     plx_cmd_gc},
    {"dedup", NULL, "STORE", "Let equal blocks of virtual disks share their space.",
     "Blocks of one or several virtual disks that are equal, byte by byte, become one; a write to "
     "one of them does not show in the others. Contents stay as they are, and disks go on "
     "meanwhile. Blocks that a snapshot or a clone sees stay where they are, so of a disk that "
     "takes snapshots by itself hardly any is shared; and so do blocks that were overwritten in "
     "place, until they move or are written anew. The virtual disks are those that a handler of "
     "this host has open, or all of the store when none has the store open. Metadata is read "
     "once, or more often with little memory, and then the blocks that may have an equal. No "
     "collection is under way meanwhile. May be interrupted and begun again at any time. Handlers "
     "from before there was this command cannot open the store afterwards.",
     "dedup demo --dry-run\n"
     "dedup demo --rate 50M\n"
     "dedup demo --memory 64M --json",
     OPTIONS(
         {"dry-run", NULL, "only tell how much would be shared"},
         {"rate", "SIZE", "read at most so much data a second"},
         {"memory", "SIZE", "for 24 bytes a block (default 256M); with less it works in slices"}),
     plx_cmd_dedup},
    {"du", NULL, "STORE[/VDI[@A..B]]", "Show what uses a store's space, and what deleting frees.",
     "Of each virtual disk with its snapshots: all its blocks, those that nobody else has (what "
     "deleting it and 'gc' would free), and those that others have, too; likewise of families, "
     "which "
     "are disks that come from each other by cloning. Garbage is what no disk uses any more. With "
     "snapshots: what deleting these would free. Reads all metadata; disks may be open meanwhile.",
     "du demo\n"
     "du demo/web --json\n"
     "du demo/web@monday..friday",
     NULL, plx_cmd_du},
    {"tree", NULL, "[STORE]", "Show virtual disks, labelled snapshots and clones as a tree.", NULL,
     "tree demo\n"
     "tree demo --dot | dot -Tsvg > demo.svg",
     OPTIONS({"dot", NULL, "as a graph for Graphviz"}), plx_cmd_tree},

    {"lun", "create", "STORE/VDI[@SNAPSHOT]",
     "Export a virtual disk over iSCSI; prints its address.",
     "Makes the backstore, target, portal and LUN in the kernel's target (LIO) and saves them "
     "so that they come back after a restart. Who may log in has to be said: --initiator, or "
     "--any-initiator. A target that is there already gets the LUN, and ACLs for the "
     "initiators that are named; its own rules, portals and ACLs stay as they are, and it is "
     "refused where they differ from what is asked for. Snapshots are read-only. Needs root "
     "and tcmu-runner.",
     "lun create demo/web --initiator iqn.2026-11.org.example:host7\n"
     "lun create demo/web@before-upgrade --any-initiator --portal 192.0.2.7\n"
     "lun create demo/db --target iqn.2026-11.org.example:all --initiator "
     "iqn.2026-11.org.example:host7",
     OPTIONS({"target", "IQN", "default: iqn.2026-11.org.parallax:STORE.VDI"},
             {"portal", "IP[:PORT]...", "listen here (default 0.0.0.0:3260)"},
             {"lun", "N", "LUN number (default: the first free one)"},
             {"initiator", "IQN...", "let these log in"},
             {"any-initiator", NULL, "let anybody log in who reaches the portal"},
             {"read-only", NULL, "write protected"}),
     plx_cmd_lun_create},
    {"lun", "list", "[STORE]", "List what is exported.", NULL,
     "lun list\n"
     "lun list demo --json",
     NULL, plx_cmd_lun_list},
    {"lun", "delete", "STORE/VDI[@SNAPSHOT]", "Stop exporting; the virtual disk stays.",
     "Refused while an initiator is logged in, unless --force is given. What 'lun create' made "
     "goes as well when it is left without LUNs: the ACL, the target.",
     "lun delete demo/web",
     OPTIONS({"target", "IQN", "only from this target"},
             {"force", NULL, "although initiators are logged in"}),
     plx_cmd_lun_delete},

    {"help", NULL, "[NOUN] [VERB]", "Show help on everything, a noun or a command.", NULL,
     "help\n"
     "help vdi create",
     NULL, cmd_help},
    {"version", NULL, NULL, "Show the version.", NULL, "version", NULL, cmd_version},
    {"__complete", NULL, "[WORD] [WORD]", NULL, NULL, NULL, NULL, cmd_complete},
    {NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL},
};

volatile sig_atomic_t plx_interrupted;
bool plx_pipe_ends;
static bool was_cut_short;

static void on_signal(int number)
{
    plx_interrupted = number;
}

bool plx_session_stopped(void)
{
    was_cut_short |= plx_interrupted != 0;
    return plx_interrupted != 0;
}

static void set_signals(void)
{
    struct sigaction stop = {.sa_handler = on_signal, .sa_flags = (int)SA_RESETHAND};
    struct sigaction ignore = {.sa_handler = SIG_IGN}, pipe;

    /* No SA_RESTART: a read from a terminal or pipe ends, too. A second signal kills. */
    sigaction(SIGINT, &stop, NULL);
    sigaction(SIGTERM, &stop, NULL);
    sigaction(SIGPIPE, &ignore, &pipe);
    plx_pipe_ends = pipe.sa_handler != SIG_IGN;
}

/* M3 */
static int die_of_pipe(void)
{
    signal(SIGPIPE, SIG_DFL);
    raise(SIGPIPE);
    return PLX_EXIT_SIGNAL + SIGPIPE; /* it is blocked */
}

static int run(struct plx_cli *cli, int argc, char **argv)
{
    int rc = plx_cli_parse(cli, argc, argv);

    if (rc)
        return rc;
    if (cli->help)
        return plx_cli_help(cli, cli->command ? cli->command->noun : cli->arguments[0],
                            cli->command ? cli->command->verb : NULL);
    rc = cli->command->run(cli);
    struct plx_fault said = cli->fault;
    int closed = plx_session_close(cli);
    if (!rc || closed == PLX_ERR_FENCED)
        return closed;
    cli->fault = said;
    return rc;
}

int main(int argc, char **argv)
{
    static struct plx_cli cli;
    static char *const version[] = {NULL, "version", NULL};

    setlocale(LC_CTYPE, ""); /* tree asks for the character set; numbers stay plain */
    set_signals();
    if (argc == 2 && !strcmp(argv[1], "--version"))
        argv = (char **)version;
    int rc = run(&cli, argc, argv);
    struct plx_fault said = cli.fault;
    bool cut_short = plx_interrupted == SIGPIPE;
    int finished = plx_out_finish(&cli);
    if (plx_interrupted == SIGPIPE && (cut_short || !rc))
        return die_of_pipe();
    if (rc)
        cli.fault = said;
    rc = rc ? rc : finished;
    if (plx_interrupted && (rc || was_cut_short))
        rc = plx_cli_interrupted(&cli, rc);
    return rc ? plx_out_error(&cli, rc) : PLX_EXIT_OK;
}
