# Archives and packages, all into $(B)/dist: `make dist`, `make deb`, `make wheel`; `make packages-test` installs them where nothing
# else is.
DIST := build/dist

# What is committed, and nothing else.
dist:
	@mkdir -p $(DIST)
	@git archive --prefix=tally-$(VERSION)/ HEAD | gzip -9n >$(DIST)/tally-$(VERSION).tar.gz
	@echo "$(DIST)/tally-$(VERSION).tar.gz: $$(du -k $(DIST)/tally-$(VERSION).tar.gz | cut -f1) KB"

deb: $(call setup_for,package)
	@CUDA_INCLUDE=$(abspath $(CUDA_INCLUDE)) scripts/package/deb $(VERSION) $(abspath $(DIST))

# Everything but the C library is inside: LLVM too, as far as it is needed.
wheel:
	@rm -rf build/portable/stage
	@$(MAKE) --no-print-directory B=build/portable FLAVOUR=portable PREFIX=/ DESTDIR=$(abspath build/portable/stage) MANIFEST= \
	    LIBDEVICE=no install >build/portable.log 2>&1 || { tail -n 20 build/portable.log; exit 1; }
	@find build/portable/stage -type f \( -path '*/bin/*' -o -name '*.so' -o -name '*.so.1' \) -exec strip --strip-unneeded {} +
	@scripts/package/wheel build/portable/stage $(VERSION) $(DIST)

.PHONY: dist deb wheel

# Each where nothing else is installed, and no compiler: as root, and the wheel as a user.
packages-test: deb wheel jobs
	@scripts/fresh --no-clone $$(printf ' --give=%s' $(DIST)/tally-gpu*_$(VERSION)_amd64.deb) --give=build/workloads/jobs/train \
	    --give=scripts/package/test-deb "/given/test-deb /given"
	@scripts/fresh --no-clone --user $$(printf ' --give=%s' $(DIST)/tally_gpu-$(VERSION)-*.whl) --give=workloads/frameworks/numba_kernels.py \
	    --give=scripts/package/test-wheel "/given/test-wheel /given"
.PHONY: packages-test
