/* iscsi_target.h - an iSCSI target that does what the test tells it to.
 *
 * It is a thread with a disk in memory, on a port of the loopback that the kernel chose. It knows
 * of iSCSI and SCSI what libiscsi asks of it.
 */
#ifndef PLX_UNIT_ISCSI_TARGET_H
#define PLX_UNIT_ISCSI_TARGET_H

#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define DISK_BYTES (2u << 20)
#define CONNECTIONS 8
#define WRITES 128
#define PATIENCE_S 30 /* more than anything here takes */
#define TARGET "iqn.2026-11.org.example:disk"
#define CHAP_PASSWORD "open-sesame-1"

/* How patient libiscsi is, whatever the device asks of it; 0: as the device says. */
extern int tries_max, timeout_max;

struct answer {
    uint8_t status, key;
    uint16_t code; /* additional sense code and qualifier */
};

/* A write of which data is still to come. */
struct writing {
    uint32_t tag, bytes, have;
    uint8_t *to; /* NULL: free */
};

struct connection {
    int fd; /* -1: none */
    uint32_t status_number, expected_command;
    bool proven; /* that the initiator knows the password */
    struct writing writes[WRITES];
};

/* What the test sets, it sets before it starts the target, but for the atomics and answers. */
struct target {
    uint32_t block_size, transfer_max; /* the latter in blocks */
    int write_cache;                   /* -1: there is no such page */
    bool hides_capacity, wants_chap;
    const char *proof_user, *proof_password; /* it proves itself by these; NULL: it does not */
    atomic_bool must_prove;                  /* the initiator wants the target to know a password */
    atomic_uchar login_status;               /* its class; 0: success */
    atomic_bool mute;                        /* reads get no answer */
    atomic_bool drops_reads;                 /* the connection ends instead */
    atomic_bool sends_away;                  /* the initiator is asked to log out instead, once */
    atomic_uint short_by;                    /* so many bytes less are read, and it says so */
    atomic_uint logins, reads, writes, flushes, longest;
    pthread_mutex_t mutex;
    struct answer answers[8]; /* instead of executing the next commands */
    unsigned answers_left;
    uint8_t disk[DISK_BYTES];
    struct connection connections[CONNECTIONS];
    struct sockaddr_in address;
    int reserved, listener, stop; /* the first holds the port while the target is away */
    pthread_t thread;
};
extern struct target target;

/* Before each test. */
void target_new(void);
void target_delete(void);
void target_comes(void);
void target_goes(void);
void target_answers(const struct answer *answers, unsigned count);

#define MD5_BYTES 16
/* bytes: there is room for 72 more behind them. */
void md5(uint8_t *bytes, size_t count, uint8_t ret_sum[MD5_BYTES]);

#endif
