# Writes down what happens in a job.  libc only: it is part of the shim.
LIBRARIES += tally_record
tally_record_SRCS := $(wildcard runtime/record/*.c)
