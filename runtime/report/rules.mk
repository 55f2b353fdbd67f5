# Reads what jobs wrote down, and makes text, JSON, a page or a trace of it.
LIBRARIES += tally_report
tally_report_SRCS := $(wildcard runtime/report/*.c)
