/* The file of models that `tally plan` reads.  It may hold anything. */
#include "runtime/tally/plan_models.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* No rate, bound or latency is larger: what is computed of them stays finite. */
static const double MOST = 1e9;

static bool is_positive(double x)
{
    return x > 0 && x <= MOST;
}

static bool is_amount(double x)
{
    return x >= 0 && x <= MOST;
}

/* A table over the profiled batches from the measured ones: linear between them, in proportion
 * outside. */
static bool read_batches(const struct tl_json_value *j, double out[TL_GPULET_BATCHES])
{
    double batches[32], values[32];
    uint32_t n = 0;
    for (const struct tl_json_value *m = j->first; j->kind == TL_JSON_OBJECT && m != NULL && n < 32;
         m = m->next) {
        double batch = strtod(m->key.p, NULL); /* a quote ends it */
        if (m->kind != TL_JSON_NUMBER || !(batch >= 1) || batch > MOST || !is_positive(m->number))
            return false;
        uint32_t at = n++;
        for (; at > 0 && batches[at - 1] > batch; at--) {
            batches[at] = batches[at - 1];
            values[at] = values[at - 1];
        }
        batches[at] = batch;
        values[at] = m->number;
    }
    double batch = 1;
    for (int i = 0; n > 0 && i < TL_GPULET_BATCHES; i++, batch *= 2) {
        uint32_t high = 0;
        while (high < n && batches[high] < batch)
            high++;
        if (high == n)
            out[i] = values[n - 1] * batch / batches[n - 1];
        else if (high == 0 || batches[high] == batch)
            out[i] = values[high];
        else
            out[i] = values[high - 1] + (values[high] - values[high - 1]) *
                                            (batch - batches[high - 1]) /
                                            (batches[high] - batches[high - 1]);
    }
    return n > 0;
}

/* Sizes that were not measured are taken from the next larger one that was, longer in proportion;
 * the largest must be there. */
static bool read_latencies(const struct tl_json_value *j, struct tl_gpulet_model *m)
{
    bool is_known[TL_GPULET_SIZES] = {false};
    for (int i = 0; i < TL_GPULET_SIZES; i++) {
        char key[16];
        snprintf(key, sizeof key, "%u", tl_gpulet_sizes[i]);
        const struct tl_json_value *row = tl_json_get(j, key);
        if (row != NULL && !read_batches(row, m->profile_ms[i]))
            return false;
        is_known[i] = row != NULL;
    }
    if (!is_known[TL_GPULET_SIZES - 1])
        return false;
    for (int i = TL_GPULET_SIZES - 2; i >= 0; i--)
        for (int b = 0; !is_known[i] && b < TL_GPULET_BATCHES; b++)
            m->profile_ms[i][b] = m->profile_ms[i + 1][b] * tl_gpulet_sizes[i + 1] /
                                  tl_gpulet_sizes[i];
    return true;
}

/* One model of the file; what it leaves out is that of the built-in one of its name, if there is
 * one.  0 or -EINVAL. */
static int read_model(const struct tl_json_value *j, struct tl_gpulet_model *m,
                      struct cli_models *models, struct tl_error *err)
{
    const struct tl_json_value *name = tl_json_get(j, "name"),
                               *latency = tl_json_get(j, "latency_ms");
    char text[sizeof m->name];
    if (name == NULL || name->kind != TL_JSON_TEXT || name->text.n >= sizeof text)
        return tl_error_set(err, -EINVAL, "a model needs a \"name\" of at most %zu letters",
                            sizeof text - 1);
    memset(text, 0, sizeof text);
    snprintf(text, sizeof text, TL_STR_FMT, TL_STR_ARG(name->text));
    bool is_builtin = tl_gpulet_builtin(text, m);
    if (!is_builtin)
        memset(m, 0, sizeof *m);
    memcpy(m->name, text, sizeof text);
    m->rate = tl_json_number(j, "rate", 0);
    m->slo_ms = tl_json_number(j, "slo_ms", m->slo_ms);
    m->memory_mb = tl_json_number(j, "memory_mb", m->memory_mb);
    if (!is_positive(m->rate) || !is_positive(m->slo_ms))
        return tl_error_set(err, -EINVAL,
                            "model '%s' needs a \"rate\" and a \"slo_ms\" above 0 (at most %.0g)",
                            text, MOST);
    if (!is_amount(m->memory_mb))
        return tl_error_set(err, -EINVAL, "\"memory_mb\" of '%s' is no amount of memory", text);
    if (latency != NULL) {
        memset(m->batching_ms, 0, sizeof m->batching_ms); /* what was measured includes it */
        if (!read_latencies(latency, m))
            return tl_error_set(
                err, -EINVAL,
                "\"latency_ms\" of '%s' must be {\"100\": {\"1\": MS, ...}, ...}, with size 100",
                text);
    } else if (!is_builtin) {
        return tl_error_set(err, -EINVAL, "model '%s' is not built in and needs \"latency_ms\"",
                            text);
    } else {
        models->has_stand_ins = true;
    }
    return 0;
}

int cli_models_read(struct cli_models *out, const struct tl_json_value *root, struct tl_error *err)
{
    int rc = 0;
    *out = (struct cli_models){0};
    out->gpus = (uint32_t)tl_json_whole(root, "gpus", 1, UINT32_MAX);
    out->gpu_memory_mb = tl_json_number(root, "gpu_memory_mb", 0);
    if (!is_amount(out->gpu_memory_mb))
        return tl_error_set(err, -EINVAL, "\"gpu_memory_mb\" is no amount of memory");
    const struct tl_json_value *list = tl_json_get(root, "models");
    for (const struct tl_json_value *m = list != NULL ? list->first : NULL; rc == 0 && m != NULL;
         m = m->next) {
        if (out->n == TL_GPULET_MODELS)
            rc = tl_error_set(err, -EINVAL, "more than %d models", TL_GPULET_MODELS);
        else
            rc = read_model(m, &out->models[out->n++], out, err);
    }
    if (rc == 0 && out->n == 0)
        rc = tl_error_set(err, -EINVAL, "no \"models\" in it");
    return rc;
}
