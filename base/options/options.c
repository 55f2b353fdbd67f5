/* argp with what all our programs add to it: the version in one form, and the tables themselves
 * for programs to read. */
#include "tally/options.h"

#include "tally/base.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- the tables ------------------------------------------------------------------------------- */

/* Text in one line, without tabs. */
static void print_text(const char *text)
{
    for (; text != NULL && *text != 0; text++)
        putchar(*text == '\t' || *text == '\n' ? ' ' : *text);
}

/* argp takes a key for a letter if it can be printed. */
static bool is_letter(int key)
{
    return key > 0 && key < 128 && isprint(key);
}

/* argp's table ends with an option that has nothing. */
static bool is_end(const struct argp_option *o)
{
    return o->name == NULL && o->key == 0 && o->doc == NULL && o->group == 0;
}

void tl_options_print(const struct argp_option *table)
{
    const struct argp_option *real = NULL; /* what an alias is another name of */
    for (const struct argp_option *o = table; o != NULL && !is_end(o); o++) {
        bool is_alias = (o->flags & OPTION_ALIAS) != 0;
        if (!is_alias)
            real = o;
        if ((o->flags & OPTION_HIDDEN) != 0 || (o->name == NULL && o->key == 0))
            continue;
        const struct argp_option *told = is_alias && real != NULL ? real : o;
        fputs("option\t", stdout);
        if (is_letter(o->key))
            printf("-%c", o->key);
        printf("\t%s%s\t", o->name != NULL ? "--" : "", o->name != NULL ? o->name : "");
        print_text(told->arg);
        putchar('\t');
        print_text(told->doc);
        putchar('\n');
    }
}

void tl_options_print_command(const char *name, const char *text)
{
    printf("command\t%s\t", name);
    print_text(text);
    putchar('\n');
}

void tl_options_print_arguments(const char *text)
{
    fputs("arguments\t", stdout);
    print_text(text);
    putchar('\n');
}

/* Those that argp adds; its letter for --version is free for others to take. */
static void print_added(const struct argp_option *table, bool has_version)
{
    static const struct argp_option help[] = {
        {"help", '?', NULL, 0, "Give this help list", 0},
        {"usage", 0, NULL, 0, "Give a short usage message", 0},
        {0}};
    struct argp_option version[] = {{"version", 'V', NULL, 0, "Print program version", 0}, {0}};
    for (const struct argp_option *o = table; o != NULL && !is_end(o); o++)
        if (o->key == 'V')
            version[0].key = 0;
    tl_options_print(help);
    if (has_version)
        tl_options_print(version);
}

/* --- parsing ---------------------------------------------------------------------------------- */

/* argp's call for the version has no word of whose: a program has one name. */
static const char *program_name;

static void print_version(FILE *to, struct argp_state *state)
{
    (void)state;
    fprintf(to, "%s %s\n", program_name, tl_version);
}

error_t tl_options_parse(const char *program, const struct argp *argp, int argc, char **argv,
                         unsigned flags, int *first, void *input)
{
    if (argc == 2 && strcmp(argv[1], "--print-options") == 0) {
        tl_options_print(argp->options);
        print_added(argp->options, program != NULL);
        if (argp->args_doc != NULL)
            tl_options_print_arguments(argp->args_doc);
        exit(fflush(stdout) == 0 ? 0 : 1);
    }
    program_name = program;
    argp_program_version_hook = program != NULL ? print_version : NULL;
    return argp_parse(argp, argc, argv, flags, first, input);
}

error_t tl_options_only(int key, const char *arg, struct argp_state *state)
{
    if (key != ARGP_KEY_ARG)
        return ARGP_ERR_UNKNOWN;
    argp_error(state, "'%s' is not an option", arg);
    return EINVAL;
}
