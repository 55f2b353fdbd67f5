# `tally`, a tool of several commands: cli_main.c dispatches, each command is a cli_NAME.c.
PROGRAMS += tally
tally_SRCS := $(if $(wildcard runtime/cli_main.c),$(wildcard runtime/cli_*.c))
tally_LIBS := tally_options tally_image tally_ptx tally_report tally_sched tally_client tally_base

# What happened in a job: record_*.c writes it (libc only; the shim compiles it once more as position-independent code),
# report_*.c reads it and makes text, JSON, a page or a trace of it.
LIBRARIES += tally_record tally_report
tally_record_SRCS := $(wildcard runtime/record*.c)
tally_report_SRCS := $(wildcard runtime/report_*.c)
$(B)/bin/tally $(B)/test/record_test $(B)/test/report_test $(B)/test/record-sample $(B)/record_fuzz: EXTRA_LIBS += -lm
# Writes records of an invented server and trainer, for the tests of the report and for looking at its page.
$(B)/test/record-sample: $(B)/obj/test/standin/records.o $(B)/lib/libtally_record.a $(B)/lib/libtally_base.a
	$(link_it)
ALL_SRCS += test/standin/records.c
tests: $(B)/test/record-sample
# Their tests need nothing else, and also run under TSan.
$(B)/test/record_test $(B)/test/report_test: $(B)/test/%_test: $(B)/obj/test/unit/%_test.o $(B)/obj/unity.o \
    $(foreach l,tally_report tally_record tally_sched tally_base,$(B)/lib/lib$(l).a)
	$(link_it)

# What a job has of the runtime, libc only: it is also part of the shim.
LIBRARIES += tally_client
tally_client_SRCS := $(addprefix runtime/,settings.c share.c wire.c) $(wildcard runtime/client*.c)

# The arbiter, and what starts jobs under it.
PROGRAMS += tallyd tally-run
tallyd_SRCS := $(if $(wildcard runtime/daemon_main.c),$(wildcard runtime/daemon_*.c))
tallyd_LIBS := tally_options tally_sched tally_client tally_base
tally-run_SRCS := $(if $(wildcard runtime/run_main.c),$(wildcard runtime/run_*.c) device/jit_cache.c device/jit_digest.c)
tally-run_LIBS := tally_options tally_client tally_base

# The best-effort part of jobs.
include runtime/effort.mk
# Their tests start it.
$(B)/test/client_test $(B)/test/daemon_test $(B)/test/daemon_harm_test $(B)/test/daemon_soak_test: | $(B)/bin/tallyd
