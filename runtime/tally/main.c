/* `tally COMMAND ...`: finds the command and hands over to it. */
#include "runtime/tally/cli.h"
#include "tally/options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct command {
    const char *name;
    const char *full_name; /* for its messages */
    int (*run)(int argc, char **argv);
    const char *summary;
} commands[] = {
#ifdef TL_HAS_DOCTOR
    {"doctor", "tally doctor", cli_doctor,
     "examine driver and GPUs, and tell what Tally can do there"},
#endif
    {"inspect", "tally inspect", cli_inspect,
     "show the GPU code in files and how much of it is preemptible"},
    {"report", "tally report", cli_report, "show what happened in jobs, kernel by kernel"},
    {"ps", "tally ps", cli_ps, "list the jobs that share the device"},
    {"top", "tally top", cli_top, "watch the jobs that share the device, and change them"},
    {"set", "tally set", cli_set, "change a running job: priority, SLO, pause"},
    {"account", "tally account", cli_account, "tell what a job of an engine has used"},
    {"plan", "tally plan", cli_plan,
     "plan which parts of GPUs serve which models within their SLOs"},
    {"mps", "tally mps", cli_mps, "NVIDIA's multi-process service: does it run, start it, stop it"},
    {"cdi", "tally cdi", cli_cdi, "write the file by which containers get a share of the device"},
    {"policy", "tally policy", cli_policy, "show or change how the device is shared"},
};

enum { COMMANDS = sizeof commands / sizeof commands[0], LONGEST_NAME = 31 };

/* For the completion of shells: --help below is written for people. */
static int print_options(void)
{
    static const struct argp_option table[] = {{"help", 'h', NULL, 0, "List the commands", 0},
                                               {"version", 'V', NULL, 0, "Print the version", 0},
                                               {0}};
    tl_options_print(table);
    for (size_t i = 0; i < COMMANDS; i++)
        tl_options_print_command(commands[i].name, commands[i].summary);
    return fflush(stdout) == 0 ? CLI_OK : CLI_FAILED;
}

static void print_help(FILE *to)
{
    fprintf(to, "usage: tally COMMAND [OPTION...] [ARGUMENT...]\n\ncommands:\n");
    for (size_t i = 0; i < COMMANDS; i++)
        fprintf(to, "  %-10s %s\n", commands[i].name, commands[i].summary);
    fprintf(to, "\n`tally COMMAND --help` tells more; `tally --version` prints the version.\n");
}

static const struct command *find_command(const char *name)
{
    for (size_t i = 0; i < COMMANDS; i++)
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    return NULL;
}

/* How many letters have to be changed, added or dropped to make one word of the other
 * (Levenshtein's distance). */
static size_t distance(const char *a, const char *b)
{
    size_t row[LONGEST_NAME + 1];
    size_t n = strlen(b);
    if (strlen(a) > LONGEST_NAME || n > LONGEST_NAME)
        return SIZE_MAX;
    for (size_t j = 0; j <= n; j++)
        row[j] = j;
    for (size_t i = 0; a[i] != 0; i++) {
        size_t diagonal = row[0]; /* of the row above, one to the left */
        row[0] = i + 1;
        for (size_t j = 0; j < n; j++) {
            size_t changed = diagonal + (a[i] != b[j]);
            size_t shorter = row[j] < row[j + 1] ? row[j] : row[j + 1];
            diagonal = row[j + 1];
            row[j + 1] = changed < shorter + 1 ? changed : shorter + 1;
        }
    }
    return row[n];
}

/* The command that was probably meant, or NULL. */
static const char *suggestion(const char *name)
{
    const char *best = NULL;
    size_t least = 4; /* further away is something else */
    for (size_t i = 0; i < COMMANDS; i++) {
        size_t d = distance(name, commands[i].name);
        bool is_prefix = name[0] != 0 && strncmp(name, commands[i].name, strlen(name)) == 0;
        if (is_prefix || d < least) {
            best = commands[i].name;
            least = is_prefix ? 0 : d;
        }
    }
    return best;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--version") == 0 || strcmp(argv[1], "-V") == 0) {
        printf("tally %s\n", tl_version);
        return CLI_OK;
    }
    if (strcmp(argv[1], "--print-options") == 0)
        return print_options();
    const struct command *command = find_command(argv[1]);
    if (command == NULL) {
        const char *meant = suggestion(argv[1]);
        if (meant != NULL)
            cli_complain("there is no command '%s'; did you mean '%s'?", argv[1], meant);
        else
            cli_complain("there is no command '%s'; `tally --help` lists them", argv[1]);
        return CLI_USAGE;
    }
    argv[1] = (char *)command->full_name;
    return command->run(argc - 1, argv + 1);
}
