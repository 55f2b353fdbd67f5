/* The compiler service with a stand-in for the translator, in a folder of its own, for tests. */
#ifndef TALLY_TEST_UNIT_DEVICE_SERVICE_HELP_H
#define TALLY_TEST_UNIT_DEVICE_SERVICE_HELP_H

#include "tally/base.h"

#include <sys/types.h>

/* Where sockets and the cache are, and which program serves. */
extern char service_folder[512], service_cache[600], service_program[1024];
extern const uint32_t service_block[3];

/* Sets the environment for all of it; nothing is started yet. */
void service_set_up(void);
/* Ends the service and removes the folder. */
void service_tear_down(void);

/* A module with that kernel; valid until the thread asks again. */
const char *service_ptx(const char *kernel);
/* What `tally-jit status` or `stop` says. */
const char *service_says(const char *command);
/* The number in front of that word, as `tally-jit status` says it; -1 if there is none. */
long service_number(const char *word);
/* Waits until that number is at least so large; a test that would wait for ever fails. */
void service_wait_number(const char *word, long least);
pid_t service_pid(void); /* -1: there is none */
void service_wait(bool is_there);
void service_sleep_ms(long ms); /* between two looks at something that is waited for */

#endif
