# `tally`, a tool of several commands: main.c dispatches, each command is a file of its own.
PROGRAMS += tally
# Without the CUDA headers there is no examination.
tally_SRCS := $(filter-out $(if $(CUDA_INCLUDE),,runtime/tally/doctor.c),$(wildcard runtime/tally/*.c))
$(B)/obj/runtime/tally/main.o: EXTRA_CFLAGS = $(if $(CUDA_INCLUDE),-DTL_HAS_DOCTOR)
tally_LIBS := tally_options tally_doctor tally_cubin tally_image tally_ptx tally_report tally_sched tally_job tally_base
$(B)/bin/tally: EXTRA_LIBS = -lm
