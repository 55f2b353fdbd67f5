/* The report for programs. */
#include <stdlib.h>
#include <string.h>

#include "runtime/doctor/doctor.h"

/* As a number if it is one. */
static void put_value(struct tl_json *j, const char *key, const char *text)
{
    char *end;
    double n = strtod(text, &end);
    tl_json_key(j, key);
    if (end != text && *end == 0 && n >= 0 && n < 9e15 && n == (double)(uint64_t)n &&
        strchr(text, '.') == NULL)
        tl_json_uint(j, (uint64_t)n);
    else
        tl_json_str(j, tl_str_of(text));
}

static void put_facts(const struct tl_doctor *d, int gpu, struct tl_json *j)
{
    tl_json_key(j, "facts");
    tl_json_object(j);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind == TL_DOC_FACT && f->gpu == gpu && strcmp(f->name, "missing") != 0)
            put_value(j, f->name, f->text);
    }
    tl_json_end_object(j);
}

static void put_missing(const struct tl_doctor *d, struct tl_json *j)
{
    tl_json_key(j, "missing");
    tl_json_array(j);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind != TL_DOC_FACT || strcmp(f->name, "missing") != 0)
            continue;
        const char *colon = strstr(f->text, ": ");
        uint32_t n = colon != NULL ? (uint32_t)(colon - f->text) : (uint32_t)strlen(f->text);
        tl_json_object(j);
        tl_json_key(j, "function");
        tl_json_str(j, (struct tl_str){f->text, n});
        tl_json_key_str(j, "lost", colon != NULL ? colon + 2 : "");
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
}

static void put_checks(const struct tl_doctor *d, int gpu, struct tl_json *j)
{
    tl_json_key(j, "checks");
    tl_json_array(j);
    for (uint32_t i = 0; i < d->n; i++) {
        const struct tl_doc_finding *f = &d->findings[i];
        if (f->kind != TL_DOC_CHECK || f->gpu != gpu)
            continue;
        tl_json_object(j);
        tl_json_key_str(j, "group", f->group);
        tl_json_key_str(j, "name", f->name);
        tl_json_key_str(j, "verdict", tl_verdict_name((enum tl_verdict)f->verdict));
        tl_json_key_bool(j, "costs", f->costs != 0);
        tl_json_key_str(j, "text", f->text);
        tl_json_key(j, "numbers");
        tl_json_object(j);
        for (uint32_t k = 0; k < f->n_numbers; k++)
            tl_json_key_double(j, f->numbers[k].key, f->numbers[k].value);
        tl_json_end_object(j);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
}

static void put_rungs(const struct tl_doctor *d, int gpu, struct tl_json *j)
{
    tl_json_key(j, "rungs");
    tl_json_object(j);
    for (int r = 0; r < TL_QUALIFIED_RUNGS; r++) {
        char why[512];
        enum tl_verdict v = tl_doctor_rung(d, gpu, (enum tl_qualified_rung)r, why, sizeof why);
        tl_json_key(j, tl_qualified_rung_name((enum tl_qualified_rung)r));
        tl_json_object(j);
        tl_json_key_str(j, "verdict", tl_verdict_name(v));
        tl_json_key_str(j, "why", why);
        tl_json_end_object(j);
    }
    tl_json_end_object(j);
}

void tl_doctor_json(const struct tl_doctor *d, struct tl_json *j)
{
    const char *gpus = tl_doctor_fact(d, -1, "gpus");
    int n = gpus != NULL ? atoi(gpus) : 0;
    tl_json_key_uint(j, "format", 1);
    tl_json_key_int(j, "status", tl_doctor_status(d));
    tl_json_key_uint(j, "seed", d->seed);
    tl_json_key_str(j, "driver", d->driver);
    tl_json_key_str(j, "driver_why", d->why);
    put_facts(d, -1, j);
    put_missing(d, j);
    put_checks(d, -1, j);
    tl_json_key(j, "gpus");
    tl_json_array(j);
    for (int gpu = 0; gpu < n; gpu++) {
        if (d->gpu >= 0 && d->gpu != gpu)
            continue;
        tl_json_object(j);
        tl_json_key_int(j, "number", gpu);
        put_facts(d, gpu, j);
        put_rungs(d, gpu, j);
        put_checks(d, gpu, j);
        tl_json_end_object(j);
    }
    tl_json_end_array(j);
}
