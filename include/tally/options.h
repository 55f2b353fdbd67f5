/* Command lines. Every program describes its options by tables for argp(3), and everything that is
 * told about them comes from those: --help, --usage, and the completion of shells
 * (scripts/gen-completion), which reads what --print-options prints.
 *
 * What the argument of an option is called tells what it may be: words in small letters between
 * bars are the values themselves ("open|closed"), words in capitals stand for something
 * ("high|low|N"). FILE, DIR and PATH are names of files, POLICY is one of those that `tally policy
 * --list` shows. */
#ifndef TALLY_OPTIONS_H
#define TALLY_OPTIONS_H

#include <argp.h>

/* As argp_parse does it, with its meaning of `flags` and `first`: a wrong command line, --help,
 * --version and --print-options end the program. `program` is its name for --version; with NULL
 * there is no such option. An error of the parser is returned. */
error_t tl_options_parse(const char *program, const struct argp *argp, int argc, char **argv,
                         unsigned flags, int *first, void *input);

/* What a parser of a program that takes options only does with keys that it does not know: an
 * argument is a mistake of the user's. */
error_t tl_options_only(int key, const char *arg, struct argp_state *state);

/* What --print-options prints, for programs that do not leave all of it to tl_options_parse. Lines
 * of fields between tabs: "option", letter, name, argument, text; "command", name, text;
 * "arguments", text. Letters and names begin with their hyphens. */
void tl_options_print(const struct argp_option *table);
void tl_options_print_command(const char *name, const char *text);
void tl_options_print_arguments(const char *text);

#endif
