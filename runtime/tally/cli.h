/* The `tally` command: what its subcommands share.  Unlike the libraries, they may print and give
 * up. */
#ifndef TALLY_RUNTIME_TALLY_CLI_H
#define TALLY_RUNTIME_TALLY_CLI_H

#include "tally/base.h"
#include "tally/text.h"

enum cli_status { CLI_OK = 0, CLI_FAILED = 1, CLI_USAGE = 2 };

/* Subcommands: argv[0] is the name to use in messages, e.g. "tally inspect".  They return an exit
 * status. */
int cli_cdi(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_inspect(int argc, char **argv);
int cli_mps(int argc, char **argv);
int cli_plan(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_ps(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_set(int argc, char **argv);
int cli_policy(int argc, char **argv);
int cli_account(int argc, char **argv);

/* Prints "tally: MESSAGE" on standard error. */
void cli_complain(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* The pointer, or the end of the program if it is NULL: for memory only. */
void *cli_must(void *memory);

/* --- a progress line on standard error, if that is a terminal --- */

struct cli_progress {
    bool is_enabled, is_shown;
    uint64_t next_ns; /* not before */
};

void cli_progress_init(struct cli_progress *p);
/* Shows the line, a few times a second at most, and not at all in the first moments. */
void cli_progress_show(struct cli_progress *p, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Takes the line away, so that something else can be printed. */
void cli_progress_clear(struct cli_progress *p);

#endif
