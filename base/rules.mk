# What every part needs: libc only.
LIBRARIES += tally_base
tally_base_SRCS := $(wildcard base/*.c)

# The version, from the one file that has it.
VERSION := $(firstword $(shell cat VERSION))
VERSION_HEADER := $(B)/gen/version.h
$(VERSION_HEADER): VERSION
	$(say) GEN $@
	@mkdir -p $(@D)
	@echo '#define TL_VERSION "$(VERSION)"' >$@
$(B)/obj/base/version.o: EXTRA_CFLAGS = -I$(B)/gen
$(B)/obj/base/version.o: $(VERSION_HEADER)
