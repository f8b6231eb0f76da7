/* queue.c - see queue.h. */
#include "queue.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

static struct job {
    struct plx_request request;
    struct iovec iov;
    bool busy;
} jobs[BENCH_DEPTH];

static void job_done(struct plx_request *request)
{
    struct job *job = request->owner;

    if (request->result) {
        fprintf(stderr, "a request failed: %s\n", request->fault.text);
        exit(1);
    }
    job->busy = false;
}

static void turn(struct plx_store *store)
{
    if (!plx_store_tick(store))
        plx_store_wait(store);
}

static struct job *free_job(struct plx_store *store)
{
    for (;;) {
        for (unsigned i = 0; i < BENCH_DEPTH; i++)
            if (!jobs[i].busy)
                return &jobs[i];
        turn(store);
    }
}

void bench_submit(struct plx_store *store, struct plx_vdi *vdi, enum plx_request_op op,
                  uint64_t offset, uint64_t length, void *data)
{
    struct job *job = free_job(store);

    job->busy = true;
    job->iov = (struct iovec){data, length};
    job->request = (struct plx_request){.op = op,
                                        .offset = offset,
                                        .length = length,
                                        .iov = &job->iov,
                                        .iovcnt = data != NULL,
                                        .done = job_done,
                                        .owner = job};
    plx_vdi_submit(vdi, &job->request);
}

void bench_drain(struct plx_store *store)
{
    for (unsigned i = 0; i < BENCH_DEPTH; i++)
        while (jobs[i].busy)
            turn(store);
}
