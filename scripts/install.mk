# Completion for shells, and what `make install` puts where.

# --- completion -----------------------------------------------------------------------------------

# From the tables of the programs themselves, so they are asked.
COMPLETION_FILES := $(foreach p,$(BUILT_PROGRAMS),$(B)/share/bash-completion/completions/$(p) \
    $(B)/share/zsh/site-functions/_$(p))
$(COMPLETION_FILES) &: $(BIN_FILES) scripts/gen-completion scripts/completion.bash
	$(say) GEN "$(B)/share/{bash-completion,zsh}"
	$(Q)scripts/gen-completion $(B)/bin $(B)/share
all: $(COMPLETION_FILES)
