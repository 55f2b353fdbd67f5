# Kubernetes' device plugin, where nghttp2, protobuf-c and its compiler are (scripts/setup --with-engines).  Packages say
# DEVICE_PLUGIN=no: they need no libraries but those of all programs.
DEVICE_PLUGIN ?= $(if $(filter portable,$(FLAVOUR)),no,yes)
ifeq ($(DEVICE_PLUGIN),yes)
DEVICE_PLUGIN_LIBS := $(shell pkg-config --libs libnghttp2 libprotobuf-c 2>/dev/null)
PROTOC_C := $(and $(DEVICE_PLUGIN_LIBS),$(shell command -v protoc-c))
endif
ifneq ($(PROTOC_C),)
PROGRAMS += tally-device-plugin
tally-device-plugin_SRCS := $(wildcard runtime/tally-device-plugin/*.c)
tally-device-plugin_LIBS := tally_options tally_job tally_base
$(B)/bin/tally-device-plugin: $(B)/obj/gen/device_plugin.pb-c.o
$(B)/bin/tally-device-plugin: EXTRA_LIBS = $(DEVICE_PLUGIN_LIBS) -ldl
# The messages only: of services protoc-c makes no gRPC, and a method called Register no C.
DEVICE_PLUGIN_MESSAGES := $(B)/gen/device_plugin.pb-c.h
$(DEVICE_PLUGIN_MESSAGES): runtime/tally-device-plugin/device_plugin.proto
	$(say) GEN $@
	@mkdir -p $(@D)
	$(Q)sed '/^service /,/^}/d' $< >$(@D)/device_plugin.proto
	$(Q)$(PROTOC_C) --c_out=$(@D) -I$(@D) $(@D)/device_plugin.proto
$(call objs,$(tally-device-plugin_SRCS)): EXTRA_CFLAGS = -I$(B)/gen
$(call objs,$(tally-device-plugin_SRCS)): | $(DEVICE_PLUGIN_MESSAGES)
$(B)/obj/gen/device_plugin.pb-c.o: $(DEVICE_PLUGIN_MESSAGES)
	@mkdir -p $(@D)
	$(Q)$(COMPILE) -w -c -o $@ $(<:.h=.c)
endif
