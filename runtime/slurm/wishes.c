/* What users may say to srun, sbatch and salloc, and what comes of it beside the configuration. */
#include "runtime/slurm/plugin.h"
#include "tally/level.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *may_be;
} options[PLUGIN_OPTIONS] = {
    [PLUGIN_PRIORITY] = {"tally-priority", "high, low, or a number from -100 to 100"},
    [PLUGIN_MEMORY] = {"tally-memory", "a size of device memory such as 8G or 512M"},
    [PLUGIN_SLO] = {"tally-slo", "a percentile and a time such as p99:8ms"},
};

const char *plugin_option_name(enum plugin_option o)
{
    return options[o].name;
}

static int check(enum plugin_option o, const char *text)
{
    uint64_t n;
    uint32_t percentile;
    int level;
    switch (o) {
    case PLUGIN_PRIORITY:
        return tl_level_parse(text, &level);
    case PLUGIN_MEMORY:
        return tl_settings_bytes(text, &n) == 0 && n != 0 ? 0 : -EINVAL;
    case PLUGIN_SLO:
        return tl_settings_slo(text, &percentile, &n);
    case PLUGIN_OPTIONS:
        break;
    }
    return -EINVAL;
}

int plugin_wish(struct plugin_wishes *w, enum plugin_option o, const char *text,
                struct tl_error *err)
{
    if (text == NULL || strlen(text) >= PLUGIN_VALUE || check(o, text) < 0)
        return tl_error_set(err, -EINVAL, "--%s=%s: it may be %s", options[o].name,
                            text != NULL ? text : "", options[o].may_be);
    strcpy(w->value[o], text);
    return 0;
}

bool plugin_has_wishes(const struct plugin_wishes *w)
{
    for (int o = 0; o < PLUGIN_OPTIONS; o++)
        if (w->value[o][0] != 0)
            return true;
    return false;
}

/* --- deciding --------------------------------------------------------------------------------- */

/* Levels and memory beyond what the line allows are cut, and the user is told; tallyd would do the
 * same, but only his program would hear it. */
static void cut(const struct plugin_class *c, struct plugin_plan *p)
{
    char *priority = p->has.value[PLUGIN_PRIORITY], *memory = p->has.value[PLUGIN_MEMORY];
    const char *most = c->usual.value[PLUGIN_MEMORY];
    uint64_t wanted = 0, limit = 0;
    int level = 0;
    if (tl_level_parse(priority, &level) == 0 && level > c->highest) {
        snprintf(p->remark, sizeof p->remark,
                 "--tally-priority=%s is more than its %s '%s' may have; it is %d now", priority,
                 c->kind == PLUGIN_QOS ? "QOS" : "partition", c->name, c->highest);
        snprintf(priority, PLUGIN_VALUE, "%d", c->highest);
    }
    if (most[0] != 0 && tl_settings_bytes(memory, &wanted) == 0 &&
        tl_settings_bytes(most, &limit) == 0 && wanted > limit) {
        size_t n = strlen(p->remark);
        snprintf(p->remark + n, sizeof p->remark - n,
                 "%s--tally-memory=%s is more than its %s '%s' may have; it is %s now",
                 n > 0 ? "; " : "", memory, c->kind == PLUGIN_QOS ? "QOS" : "partition", c->name,
                 most);
        strcpy(memory, most);
    }
}

/* The limit of memory of the line, or the lower one that was asked for, is forced: by a variable
 * alone it would be a wish. */
static void grant(const struct plugin_class *c, uint32_t job, struct plugin_plan *p)
{
    const char *memory = p->has.value[PLUGIN_MEMORY];
    snprintf(p->rights.account, sizeof p->rights.account, "slurm:%u", job);
    snprintf(p->rights.rights, sizeof p->rights.rights, "%d%s%s%s%s%s", c->highest,
             memory[0] != 0 ? " memory=" : "", memory,
             p->has.value[PLUGIN_SLO][0] != 0 && c->usual.value[PLUGIN_SLO][0] != 0 ? " slo" : "",
             c->more[0] != 0 ? " " : "", c->more);
    p->is_admitted = true;
}

void plugin_decide(const struct plugin_class *c, const struct plugin_wishes *asked, uint32_t job,
                   struct plugin_plan *out)
{
    memset(out, 0, sizeof *out);
    if (c != NULL && c->is_off) {
        if (plugin_has_wishes(asked))
            snprintf(out->remark, sizeof out->remark, "Tally is off in its %s '%s'",
                     c->kind == PLUGIN_QOS ? "QOS" : "partition", c->name);
        return;
    }
    out->is_concerned = c != NULL || plugin_has_wishes(asked);
    if (!out->is_concerned)
        return;
    for (int o = 0; o < PLUGIN_OPTIONS; o++)
        strcpy(out->has.value[o], asked->value[o][0] != 0 ? asked->value[o]
                                  : c != NULL             ? c->usual.value[o]
                                                          : "");
    if (c == NULL)
        return;
    cut(c, out);
    grant(c, job, out);
}
