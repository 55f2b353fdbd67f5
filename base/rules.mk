# What every part needs: libc only.
LIBRARIES += tally_base
tally_base_SRCS := $(wildcard base/*.c)
