/* What slurmctld knows of a job, and its comment.  A user can say anything in his job's variables;
 * this is asked for at the source. */
#include "runtime/slurm/plugin.h"

#include <slurm/slurm.h>
#include <slurm/slurm_errno.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { TRIES = 5, COMMENT = 1024 };

static int load(uint32_t job, job_info_msg_t **out, struct tl_error *err)
{
    *out = NULL;
    if (slurm_load_job(out, job, SHOW_ALL) != SLURM_SUCCESS || *out == NULL)
        return tl_error_set(err, -EIO, "slurmctld says nothing of job %u: %s", job,
                            slurm_strerror(slurm_get_errno()));
    if ((*out)->record_count == 0) {
        slurm_free_job_info_msg(*out);
        return tl_error_set(err, -ENOENT, "slurmctld knows no job %u", job);
    }
    return 0;
}

int plugin_job_class(const struct plugin_config *c, uint32_t job, const struct plugin_class **out,
                     struct tl_error *err)
{
    job_info_msg_t *info;
    *out = NULL;
    if (c->first == NULL) /* nothing could fit */
        return 0;
    int rc = load(job, &info, err);
    if (rc < 0)
        return rc;
    *out = plugin_find(c, info->job_array[0].partition, info->job_array[0].qos);
    slurm_free_job_info_msg(info);
    return 0;
}

/* The comment as it is; empty if there is none. */
static int read_comment(enum plugin_comment where, uint32_t job, char text[COMMENT],
                        struct tl_error *err)
{
    job_info_msg_t *info;
    int rc = load(job, &info, err);
    if (rc < 0)
        return rc;
    const slurm_job_info_t *j = &info->job_array[0];
    const char *is = where == PLUGIN_ADMIN_COMMENT ? j->admin_comment : j->comment;
    snprintf(text, COMMENT, "%s", is != NULL ? is : "");
    slurm_free_job_info_msg(info);
    return 0;
}

/* -ESTALE: the job has ended as far as slurmctld is concerned, which then changes it no more. */
static int write_comment(enum plugin_comment where, uint32_t job, char *text, struct tl_error *err)
{
    job_desc_msg_t update;
    slurm_init_job_desc_msg(&update);
    update.job_id = job;
    if (where == PLUGIN_ADMIN_COMMENT)
        update.admin_comment = text;
    else
        update.comment = text;
    if (slurm_update_job(&update) == SLURM_SUCCESS)
        return 0;
    int why = slurm_get_errno();
    return tl_error_set(err, why == ESLURM_JOB_FINISHED ? -ESTALE : -EIO,
                        "the comment of job %u cannot be written: %s", job, slurm_strerror(why));
}

/* A comment with `text` in it, in the place of what begins and ends with the same words, or behind
 * everything: "the user's; tally: 1.234 s of gpus on node1, 5 preemptions". */
static void replace(char *out, size_t size, const char *is, const struct plugin_note *note)
{
    size_t n = 0;
    bool is_placed = false;
    out[0] = 0;
    for (const char *part = is; *part != 0;) {
        size_t bytes = strcspn(part, ";");
        char copy[COMMENT];
        snprintf(copy, sizeof copy, "%.*s", (int)bytes, part);
        bool is_ours = strncmp(copy, "tally: ", 7) == 0 && strstr(copy, note->where) != NULL;
        if (!is_ours || !is_placed)
            n += (size_t)snprintf(out + n, size - n, "%s%s", n > 0 ? "; " : "",
                                  is_ours ? note->text : copy);
        is_placed |= is_ours;
        part += bytes;
        part += strspn(part, "; ");
        if (n >= size)
            return;
    }
    if (!is_placed)
        snprintf(out + n, size - n, "%s%s", n > 0 ? "; " : "", note->text);
}

/* Nodes of one job do this at the same time, and slurmctld only replaces: so it is looked whether
 * what was written has stayed. */
int plugin_job_comment(enum plugin_comment where, uint32_t job, const struct plugin_note *note,
                       struct tl_error *err)
{
    char is[COMMENT], becomes[2 * COMMENT];
    for (int i = 0; i < TRIES; i++) {
        int rc = read_comment(where, job, is, err);
        if (rc < 0 || strstr(is, note->text) != NULL)
            return rc;
        replace(becomes, sizeof becomes, is, note);
        rc = write_comment(where, job, becomes, err);
        if (rc == -ESTALE)
            return plugin_record_comment(where, job, becomes, err);
        if (rc < 0)
            return rc;
    }
    return tl_error_set(err, -EAGAIN, "the comment of job %u is written by others all the time",
                        job);
}
