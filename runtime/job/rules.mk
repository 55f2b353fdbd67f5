# What a job has of the runtime: its settings, its page, its line to tallyd.  libc only: it is part of the shim.
LIBRARIES += tally_job
tally_job_SRCS := $(wildcard runtime/job/*.c)
