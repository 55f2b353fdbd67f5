/* The same of a job that gives way, whose calls go through the best-effort part. */
#define LEVEL "low"
#include "test/unit/intercept/memory/limit_test.c" /* NOLINT(bugprone-suspicious-include) */
