# The plugin for Slurm, where Slurm's headers are.  Its own names come from the process that loads it, so some stay undefined until
# then; it has nothing of a sanitizer, since Slurm's programs have none.
LIBRARIES += tally_slurm
tally_slurm_SRCS := runtime/slurm/config.c runtime/slurm/wishes.c
SLURM ?= yes
SLURM_HEADER := $(if $(SLURM),$(firstword $(wildcard /usr/include/slurm/spank.h /usr/local/include/slurm/spank.h)))
SLURM_SRCS := runtime/slurm/spank.c runtime/slurm/controller.c runtime/slurm/node.c
ifeq ($(FLAVOUR),)
ifneq ($(SLURM_HEADER),)
SHARED += slurm/tally.so
slurm/tally.so_SRCS := $(SLURM_SRCS)
slurm/tally.so_LIBS := tally_slurm tally_job tally_base
slurm/tally.so_FLAGS := -Wl,-z,undefs -Wl,-z,lazy
slurm/tally.so_SYSTEM := -ldl
endif
endif
