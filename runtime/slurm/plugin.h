/* The SPANK plugin tally.so: jobs of Slurm that share GPUs by priority.
 *
 *     runtime/slurm/spank.c     Slurm's hooks
 *     runtime/slurm/config.c    the configuration: what partitions and QOS have, and may ask for
 *     runtime/slurm/wishes.c    --tally-priority, --tally-memory, --tally-slo; what comes of them
 *     runtime/slurm/controller.c what slurmctld knows of a job, and its comment
 *     runtime/slurm/node.c      tally-run and tallyd on the node
 *
 * What concerns a job is decided on its node, by root's slurmstepd, from what slurmctld says of the
 * job: its partition and its QOS.  The job's own variables are wishes and nothing else. */
#ifndef TALLY_RUNTIME_SLURM_PLUGIN_H
#define TALLY_RUNTIME_SLURM_PLUGIN_H

#include "runtime/job/admit.h"
#include "runtime/job/settings.h"

enum { PLUGIN_NAME = 64, PLUGIN_VALUE = 32, PLUGIN_PATH = 1024, PLUGIN_MESSAGE = 512 };

/* --- wishes (runtime/slurm/wishes.c) ---------------------------------------------------------- */

enum plugin_option { PLUGIN_PRIORITY, PLUGIN_MEMORY, PLUGIN_SLO, PLUGIN_OPTIONS };

/* What a job asks for, or has without asking; texts as tally-run takes them, empty if not said. */
struct plugin_wishes {
    char value[PLUGIN_OPTIONS][PLUGIN_VALUE];
};

/* "tally-priority" and so on. */
const char *plugin_option_name(enum plugin_option o);
/* Takes a value.  0, or -EINVAL with a message that names the option and what it may be. */
int plugin_wish(struct plugin_wishes *w, enum plugin_option o, const char *text,
                struct tl_error *err);
bool plugin_has_wishes(const struct plugin_wishes *w);

/* --- the configuration (runtime/slurm/config.c) ----------------------------------------------- */

enum plugin_kind { PLUGIN_QOS, PLUGIN_PARTITION, PLUGIN_EVERYBODY };
enum plugin_comment { PLUGIN_NO_COMMENT, PLUGIN_COMMENT, PLUGIN_ADMIN_COMMENT };

/* A line of it. */
struct plugin_class {
    struct plugin_class *next;
    enum plugin_kind kind;
    char name[PLUGIN_NAME];
    bool is_off;                  /* Tally has nothing to do with these */
    struct plugin_wishes usual;   /* what they have if they do not ask */
    int highest;                  /* level that they may ask for */
    char more[TL_ADMIT_LINE / 2]; /* limits besides, as in the rules of tallyd */
};

struct plugin_config {
    char socket[TL_SOCKET_PATH_BYTES];
    char prefix[PLUGIN_PATH]; /* where bin/tally-run is; empty: to be looked for */
    enum plugin_comment comment;
    bool is_closed; /* without Tally, a job that Tally concerns does not run */
    struct plugin_class *first, **end;
};

#define PLUGIN_CONFIG "/etc/tally/slurm"

void plugin_config_init(struct plugin_config *c);
void plugin_config_finish(struct plugin_config *c);
/* Takes a text of lines.  0, or a negative errno value with a message that names path and line;
 * what stands above it holds. */
int plugin_config_parse(struct plugin_config *c, const char *text, const char *path,
                        struct tl_error *err);
/* The arguments in plugstack.conf: config=PATH and prefix=DIR.  Reads the file; that the usual one
 * is not there is no error.  0, or a negative errno value with a message. */
int plugin_config_read(struct plugin_config *c, int argc, char **argv, struct tl_error *err);
/* The first line that fits, or NULL. */
const struct plugin_class *plugin_find(const struct plugin_config *c, const char *partition,
                                       const char *qos);

/* --- what comes of both (runtime/slurm/wishes.c) ---------------------------------------------- */

struct plugin_plan {
    bool is_concerned;           /* else nothing is done */
    bool is_admitted;            /* an account and rights of its own; else tallyd's rules hold */
    struct plugin_wishes has;    /* what its processes are started with */
    struct tl_admission rights;  /* if admitted */
    char remark[PLUGIN_MESSAGE]; /* for the user: he asked for more than he gets; or empty */
};
void plugin_decide(const struct plugin_class *c, const struct plugin_wishes *asked, uint32_t job,
                   struct plugin_plan *out);

/* --- slurmctld (runtime/slurm/controller.c) --------------------------------------------------- */

/* 0, or a negative errno value with a message. */
int plugin_job_class(const struct plugin_config *c, uint32_t job, const struct plugin_class **out,
                     struct tl_error *err);
/* What is noted of a job on a node: a text that has " on NODE," in it. */
struct plugin_note {
    char text[256], where[128];
};
/* Puts it into the job's comment: in the place of an earlier one of the same node, or behind what
 * is there.  For a job that has ended it goes into the database, if there is one. */
int plugin_job_comment(enum plugin_comment where, uint32_t job, const struct plugin_note *note,
                       struct tl_error *err);

/* --- the node (runtime/slurm/node.c) ---------------------------------------------------------- */

/* Finds a program of Tally: below the prefix, beside this plugin, or in the usual places.  0 or
 * -ENOENT with a message. */
int plugin_find_program(const struct plugin_config *c, const char *name, char path[PLUGIN_PATH],
                        struct tl_error *err);
/* Starts tallyd for all users, unless one listens. */
int plugin_see_to_daemon(const struct plugin_config *c, struct tl_error *err);
/* The environment that tally-run would give a program, as texts NAME=VALUE with a 0 behind each,
 * `*n` bytes; the caller's to free. */
int plugin_environment(const struct plugin_config *c, const struct plugin_wishes *has,
                       const char *job, char **environment, const char *program, char **out,
                       size_t *n, struct tl_error *err);
/* What the processes of an account used on this node, as a text for people.  0, or -ENOENT if there
 * were none, or another negative errno value with a message. */
int plugin_account(const struct plugin_config *c, const char *account, struct plugin_note *note,
                   struct tl_error *err);
/* Sets the comment of a job that has ended, by sacctmgr. */
int plugin_record_comment(enum plugin_comment where, uint32_t job, const char *text,
                          struct tl_error *err);

#endif
