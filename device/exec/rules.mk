# Runs compiled kernels: workers, fibers, the shared device.  libc only.
LIBRARIES += tally_exec
tally_exec_SRCS := $(wildcard device/exec/*.c)
