/* `tally plan --place`. */
#ifndef TALLY_RUNTIME_TALLY_PLAN_PLACE_H
#define TALLY_RUNTIME_TALLY_PLAN_PLACE_H

#include "sched/place.h"
#include "tally/json.h"

/* Places the jobs of a file that has been read and prints where they go.  `gpus`: 0 if the file
 * says how many.  The exit status: CLI_FAILED if one waits. */
int cli_plan_place(const struct tl_json_value *root, const char *file, enum tl_placer placer,
                   uint32_t gpus, bool is_json);

#endif
