# The simulator: the policies of sched/ on a virtual clock.  main.c stays out of the library, so that tests can link the rest; so do
# trace*.c and scenario.c, which alone need the readers of records and of JSON.
LIBRARIES += tally_sim
tally_sim_SRCS := $(filter-out sim/main.c sim/trace%.c sim/scenario.c,$(wildcard sim/*.c))

PROGRAMS += tally-sim
tally-sim_SRCS := $(wildcard sim/main.c sim/trace*.c sim/scenario.c)
tally-sim_LIBS := tally_options tally_sim tally_report tally_sched tally_base
$(B)/bin/tally-sim: EXTRA_LIBS = -lm

# The published comparisons beside ours, as a page and as docs/results.md.
results: $(B)/bin/tally-sim
	@TALLY_BUILD=$(B) scripts/results
.PHONY: results

# What the policies of other systems do for live jobs; `results` takes what they wrote.
bench-salus bench-memory bench-gpulet: all jobs
	@TALLY_BUILD=$(B) scripts/bench-policies $(@:bench-%=%) $(BENCH_ARGS)
.PHONY: bench-salus bench-memory bench-gpulet
