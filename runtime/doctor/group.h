/* A group of checks: what its process has, and how it tells what it found. */
#ifndef TALLY_RUNTIME_DOCTOR_GROUP_H
#define TALLY_RUNTIME_DOCTOR_GROUP_H

#include "runtime/doctor/doctor.h"

/* In the child. */
struct tl_doc_exam {
    const char *driver;
    uint64_t random;            /* state of tl_doc_random */
    int gpu;                    /* -1: none is chosen */
    int out;                    /* the pipe */
    struct tl_doc_finding next; /* group, and numbers for the next finding */
};

struct tl_doc_group {
    const char *name;
    void (*run)(struct tl_doc_exam *e);
};

/* Runs it in a child, on that GPU, and adds what it tells to the findings. */
void tl_doc_group_run(struct tl_doctor *d, const struct tl_doc_group *g, int gpu);
/* Adds a finding of this process. */
void tl_doc_add(struct tl_doctor *d, const struct tl_doc_finding *f);

/* --- in the child: what was found --- */
void tl_doc_begin(struct tl_doc_exam *e, const char *name);
/* A number that goes with the next fact or check. */
void tl_doc_number(struct tl_doc_exam *e, const char *key, double value);
void tl_doc_fact(struct tl_doc_exam *e, int gpu, const char *name, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tl_doc_works(struct tl_doc_exam *e, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* `costs`: Tally can do less without it. */
void tl_doc_refused(struct tl_doc_exam *e, const char *name, bool costs, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
void tl_doc_wrong(struct tl_doc_exam *e, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* --- the groups --- */
extern const struct tl_doc_group tl_doc_facts_group, tl_doc_memory_group, tl_doc_slice_group,
    tl_doc_ticket_group, tl_doc_persistent_group, tl_doc_gate_group, tl_doc_streams_group,
    tl_doc_cap_group;

/* Loads the driver and makes the GPU's primary context current.  If that fails, it is told as a
 * check of the group, and false. */
bool tl_doc_open(struct tl_doc_exam *e);

/* What the machine tells, without the driver (host.c). */
void tl_doc_host_facts(struct tl_doctor *d);

#endif
