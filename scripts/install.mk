# Completion for shells, and what `make install` puts where.

# --- completion -----------------------------------------------------------------------------------

# From the tables of the programs themselves, so they are asked.
COMPLETION_FILES := $(foreach p,$(PROGRAMS),$(B)/share/bash-completion/completions/$(p) \
    $(B)/share/zsh/site-functions/_$(p))
$(COMPLETION_FILES) &: $(BIN_FILES) scripts/gen-completion scripts/completion.bash
	$(say) GEN "$(B)/share/{bash-completion,zsh}"
	$(Q)scripts/gen-completion $(B)/bin $(B)/share
all: $(COMPLETION_FILES)

# --- install --------------------------------------------------------------------------------------

# Packagers may say other places; lib/tally stays beside bin, where the programs look for it.
prefix := $(PREFIX:%/=%)
bindir := $(prefix)/bin
LIBDIR ?= $(prefix)/lib
MANDIR ?= $(prefix)/share/man
DOCDIR ?= $(prefix)/share/doc/tally
UNITDIR ?= $(prefix)/lib/systemd/user
BASHDIR ?= $(prefix)/share/bash-completion/completions
ZSHDIR ?= $(prefix)/share/zsh/site-functions
# What was installed is listed there, for `make uninstall`; packages say MANIFEST= (none).
MANIFEST ?= $(prefix)/share/tally/manifest
# XLA wants libdevice beside ptxas.  In the build folder that is a link to the CUDA toolkit that was
# found; installed, it is a copy, since a link may point nowhere later.  Packages, which are not for
# this machine only, say LIBDEVICE=no: frameworks from PyPI bring their own.
LIBDEVICE ?= yes

# Where Slurm looks for plugins: a link to ours is put there, unless Tally goes where nobody looks
# anyway.  Packages, which are for any Slurm or none, say SLURM= (none) and have no plugin.
SLURM_PLUGINS := $(patsubst %/,%,$(firstword $(dir $(wildcard $(addsuffix /select_cons_tres.so, \
    /usr/lib/*/slurm-wlm /usr/lib/*/slurm /usr/lib64/slurm /usr/lib/slurm /usr/local/lib/slurm)))))
SLURM_PLUGINDIR ?= $(if $(filter /usr /usr/local,$(prefix)),$(SLURM_PLUGINS))

# For programs that use our code: reading images, rewriting PTX, policies, and marking requests,
# which needs no library.  The other archives are parts of our programs and no interface, and what
# the headers that are left out here declare is in those.
DEV_LIBRARIES := tally_cubin tally_image tally_ptx tally_sched tally_base
DEV_HEADERS := $(filter-out $(addprefix include/tally/,effort.h kernel_params.h options.h),$(wildcard include/tally/*.h))

# Files in which the places are written.
$(B)/install/tallyd.service: runtime/systemd/tallyd.service FORCE
	@mkdir -p $(@D)
	@sed 's|^ExecStart=tallyd|ExecStart=$(bindir)/tallyd|' $< >$@
$(B)/install/tally.pc: scripts/tally.pc.in VERSION FORCE
	@mkdir -p $(@D)
	@sed -e 's|@PREFIX@|$(prefix)|' -e 's|@LIBDIR@|$(LIBDIR)|' -e 's|@VERSION@|$(VERSION)|' \
	    -e 's|@LIBRARIES@|$(addprefix -l,$(DEV_LIBRARIES))|' $< >$@
INSTALL_MADE := $(addprefix $(B)/install/,tallyd.service tally.pc)

# Mode, source and place of each file.  What was left out of the build (manual pages without scdoc,
# the libraries without CUDA's headers) is left out here.
install_to = $(foreach f,$(2),$(1) $(f) $(3)/$(notdir $(f)))
LIBDEVICE_DIR := lib/tally/cuda/nvvm/libdevice
LIBDEVICE_FILES = $(if $(filter yes,$(LIBDEVICE)),$(wildcard $(B)/$(LIBDEVICE_DIR)/*.bc))
DRIVER_LINK := lib/tally/device/libcuda.so
INSTALL_LIST = \
    $(call install_to,755,$(BIN_FILES),$(bindir)) \
    $(foreach f,$(wildcard $(SHARED_FILES) $(PTXAS_STANDIN) $(CONTAINER_CHECK) $(CONTAINER_PRELOAD)), \
        $(if $(filter %/bin/ptxas %/container-check,$(f)),755,644) $(f) $(prefix)/lib/$(f:$(B)/lib/%=%)) \
    $(if $(wildcard $(B)/$(DRIVER_LINK)),link libcuda.so.1 $(prefix)/$(DRIVER_LINK)) \
    $(if $(wildcard $(B)/lib/tally/slurm/tally.so),$(if $(SLURM_PLUGINDIR), \
        link $(prefix)/lib/tally/slurm/tally.so $(SLURM_PLUGINDIR)/tally.so)) \
    $(call install_to,644,$(LIBDEVICE_FILES),$(prefix)/$(LIBDEVICE_DIR)) \
    $(call install_to,644,$(wildcard $(MAN_FILES)),$(MANDIR)/man1) \
    $(foreach p,$(PROGRAMS), \
        644 $(B)/share/bash-completion/completions/$(p) $(BASHDIR)/$(p) \
        644 $(B)/share/zsh/site-functions/_$(p) $(ZSHDIR)/_$(p)) \
    $(call install_to,644,$(B)/install/tallyd.service runtime/systemd/tallyd.socket,$(UNITDIR)) \
    $(call install_to,644,runtime/systemd/rules.example,$(DOCDIR)) \
    $(call install_to,644,$(wildcard runtime/python/*.py),$(prefix)/share/tally/python) \
    $(call install_to,644,$(wildcard runtime/kubernetes/*.yaml),$(DOCDIR)/kubernetes) \
    $(call install_to,644,$(wildcard runtime/monitoring/*),$(prefix)/share/tally/monitoring) \
    $(call install_to,644,$(DEV_HEADERS),$(prefix)/include/tally) \
    $(call install_to,644,$(call libs,$(DEV_LIBRARIES)),$(LIBDIR)) \
    $(call install_to,644,$(B)/install/tally.pc,$(LIBDIR)/pkgconfig)

install: all
	@$(MAKE) --no-print-directory install-files
# The same of what is built already.
install-files: $(INSTALL_MADE)
	@printf '%s\t%s\t%s\n' $(INSTALL_LIST) | DESTDIR='$(DESTDIR)' scripts/install put '$(MANIFEST)'
uninstall:
	@DESTDIR='$(DESTDIR)' scripts/install remove '$(MANIFEST)'
.PHONY: install install-files uninstall
