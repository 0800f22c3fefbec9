# unspool: `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := build
.DELETE_ON_ERROR:

GO       ?= go
PREFIX   ?= /usr/local
# Where sysprofd of a prefix looks for its helper.
LIBEXECDIR ?= $(PREFIX)/libexec
DESTDIR  ?=
# In a source archive, version and commit are in a file that make dist has put there.
STAMP    := $(wildcard .ci/package/stamp)
VERSION  ?= $(if $(STAMP),$(word 1,$(shell cat $(STAMP))),$(shell git describe --tags --always --dirty 2>/dev/null || echo devel))
COMMIT   ?= $(if $(STAMP),$(word 2,$(shell cat $(STAMP))),$(shell git rev-parse HEAD 2>/dev/null))
# Options for the linker.
LDFLAGS  ?=
# A number of inputs, not of seconds: go test sometimes reports the end of the time as a failure (go.dev/issue/75804).
FUZZTIME ?= 20000x
# What bench-fuzz gives a target at most: inputs, and CPU time for them.
INPUTS    ?= 10000000
FUZZLIMIT ?= 10m
# The tests behind the rows of bench/ATTACKS.md.
ATTACKS  := ^Test(Machine(Attacks|FilesThatClaimMuch|StormOf|RecordingBesideAFileThatHangs)|ReaderThatStopsReading|$\
	StoppedAndContinued|NamesThatAreMadeToMislead|KilledRecordingIsReadable|FullDisk|ClosedPipe|$\
	ServeReadsNoFilesForOthers|MappedFileIsTheOneThatIsRead|JitdumpThatHangs|FileThatHangs|DebugFileOf700MB|$\
	ClaimsOfASparseFile|FewerDescriptors|DescriptorsOfTwoUsers|FileIsCutShort|PerfMaps|UnpackingIsBounded)
# What `make demo` records, in seconds.
DEMO_SECONDS ?= 3
STATICCHECK  := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOLANGCILINT := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# ./... leaves out directories named testdata. The package whose tests take longest comes first.
PACKAGES := ./cmd/unspool ./... ./testdata/programs ./testdata/browser ./testdata/costs ./testdata/inputs \
	./testdata/lane ./testdata/machine ./testdata/oldkernel ./testdata/recordings
# A module of its own: programs that only tests start, with the packages that only they import.
READERS  := testdata/readers
SOURCES  := $(shell find . -name '*.go' -not -name '*_test.go' -not -path './testdata/*' 2>/dev/null) go.mod go.sum \
	$(wildcard cmd/unspool/manual/* capture/*/*/page/*)

# No frame pointers, no debug information, and no tail calls, which would drop
# frames that a reader of the call tree expects.
DEMO_FLAGS := -O2 -fomit-frame-pointer -fno-optimize-sibling-calls -pthread -Wall -Wextra
DEMO_PARTS := $(patsubst testdata/demo/%,dist/demo/%.o,$(wildcard testdata/demo/*.c testdata/demo/*.cc))

# Only tests that match, as in `make test RUN=TestReport`.
RUN ?=

# How tests are compiled. Without debugging information, which no test reads of itself, linking takes a third less,
# and with less garbage collection compiling a sixth; the tests themselves run with Go's defaults.
TESTING = GOGC=800 $(GO) test -count=1 -timeout 20m -vet=off -v -ldflags=-w -exec 'env -u GOGC' \
	$(if $(RUN),-run '$(RUN)')

# Runs the tests of both modules with the options $(1), those of the second also if some of the first fail.
# The build-ID cache of the tests is their own.
define test_modules
{ status=0; mkdir -p dist; rm -rf dist/buildid-cache; \
	printf '[buildid]\n\tdir = %s\n' '$(CURDIR)/dist/buildid-cache' >dist/perfconfig; \
	export PERF_CONFIG='$(CURDIR)/dist/perfconfig'; \
	$(TESTING) $(1) $(PACKAGES) || status=$$?; \
	(cd $(READERS) && $(TESTING) $(1) ./...) || status=$$?; \
	exit $$status; } 2>&1
endef

.PHONY: build demo test golden test-machine test-smoke test-sysprof test-sid test-kernels race lint simulate bench-scale fuzz bench-fuzz attacks bench bench-stacks bench-joins install dist test-dist clean help FORCE

build: bin/unspool ## build bin/unspool (the default)

# Without cgo: one static file, which runs wherever it is copied to, and no C library that takes address
# space for each thread.
bin/unspool: $(SOURCES) dist/version
	@version=$$($(GO) version 2>&1 || true); case "$$version" in *' go1.1'[0-9]*|*' go1.20'*|*'not found') \
		echo "unspool needs Go >= 1.21, which fetches the version in go.mod; here is: $$version." \
		"Debian 12: apt install -t bookworm-backports golang-go"; exit 1; esac
	CGO_ENABLED=0 $(GO) build -trimpath -ldflags '$(LDFLAGS) -X main.version=$(VERSION) -X main.commit=$(COMMIT)' -o $@ ./cmd/unspool

# Changes when a commit or a tag changes the version.
dist/version: FORCE
	@mkdir -p $(@D)
	@echo '$(VERSION)' | cmp -s - $@ || echo '$(VERSION)' >$@

demo: bin/unspool ## record a sample workload for DEMO_SECONDS=3 seconds and print its call tree
	@CC='$(CC)' CXX='$(CXX)' .ci/setup demo
	@$(MAKE) -s dist/demo-workload
	@echo 'bin/unspool record -o dist/demo.data -- dist/demo-workload $(DEMO_SECONDS)'
	@bin/unspool record -o dist/demo.data -- dist/demo-workload $(DEMO_SECONDS) || { bin/unspool doctor; exit 1; }
	bin/unspool report dist/demo.data
	bin/unspool convert -q dist/demo.data -o dist/demo.html
	@echo; echo "dist/demo.html is the same as a flame graph: open it in a browser."

dist/demo-workload: $(DEMO_PARTS)
	$(CXX) -pthread -o $@ $^ -lm

dist/demo/%.c.o: testdata/demo/%.c testdata/demo/demo.h
	@mkdir -p $(@D)
	$(CC) $(DEMO_FLAGS) -c -o $@ $<

dist/demo/%.cc.o: testdata/demo/%.cc testdata/demo/demo.h
	@mkdir -p $(@D)
	$(CXX) $(DEMO_FLAGS) -c -o $@ $<

test: bin/unspool ## install what the tests need, then all tests that do not judge by time (RUN=Name: only these)
	@.ci/setup test
	@mkdir -p dist
	@echo 'go test on all packages; all that it prints goes to dist/test.log'
	@# As bin/unspool is compiled, so that what it consists of is compiled once. vet is one of the linters of make lint.
	@export CGO_ENABLED=0 UNSPOOL_BINARY='$(CURDIR)/bin/unspool'; \
	$(call test_modules,-trimpath -p 3 -parallel 4) | tee dist/test.log | awk -f .ci/digest.awk

# Tests that compare with golden files, and write these by -update.
GOLDEN := ^Test(Mistakes|Scripts|Report|Difference|JSON)$$

golden: bin/unspool ## write the golden files of all tests again: git diff shows what has changed
	@UNSPOOL_BINARY='$(CURDIR)/bin/unspool' CGO_ENABLED=0 $(GO) test -trimpath -count=1 -vet=off -ldflags=-w \
		-run '$(GOLDEN)' $$(grep -rl --include='*_test.go' 'Bool("update"' ./cmd ./capture | xargs -n 1 dirname | sort -u) -update

# A part of the timed lane that takes three minutes.
SMOKE := ^TestMachine(DemoStacksAreComplete|PerfAsFrontEnd|KilledRecording|FileOfAServer|$\
	StormOfProcesses|GapsAreClosedSoon|ExceptionsUnderWay)$$

test-machine: bin/unspool ## the tests that judge by time, one at a time, on an idle machine (RUN=Name: only these)
	@.ci/setup test
	@.ci/machine '$(RUN)'

test-smoke: bin/unspool ## a few of test-machine
	@.ci/setup test
	@.ci/machine '$(SMOKE)'

# Where the tables of test-sysprof go.
SYSPROF_TABLES ?= bench/SPEED.md

test-sysprof: bin/unspool ## record by Sysprof 48 and 51 with its helper and with unspool, in roots below dist that it makes
	@mkdir -p dist
	$(GO) build -o dist/bench-sysprof ./bench/sysprof
	@dist/bench-sysprof -o '$(SYSPROF_TABLES)' || { [ $$? = 2 ] && echo 'test-sysprof: left out'; }

# What Debian's sid has newer than this machine: perf, Hotspot, samply.
SID_TESTS := Perf|Convert|Event|Killed|Compressed|Hotspot|Samply|Demo|Describes|SeveralFiles|LastFiles|Pipe|$\
	GeneratedCode|FullDisk|ReadBy|Cut|Follow|Leaves|RawStacks|KernelRecords

test-sid: bin/unspool ## the tests that use perf, with perf, Hotspot and samply of Debian sid, in the root of test-sysprof
	@mkdir -p dist
	@bench/sysprof/bootstrap sid dist/_sysprof/sid || { echo 'test-sid: left out'; exit 0; }; \
	bench/sysprof/commands dist/_sysprof/sid dist/_sysprof/commands; \
	export PATH="$(CURDIR)/dist/_sysprof/commands:$$PATH"; \
	$(GO) test -ldflags=-w -count=1 -vet=off -v -p 1 -parallel 6 -run '$(SID_TESTS)' ./capture/perfdata \
		./capture/profile ./capture/session ./capture/live ./capture/recorded ./cmd/unspool 2>&1 | tee dist/sid.log | awk -f .ci/digest.awk

# The releases of Debian whose kernels are tried. With others than these, or with RUN, bench/KERNELS.md stays as it is.
KERNELS ?= bullseye bookworm trixie trixie-backports sid

test-kernels: bin/unspool ## what depends on the kernel, by Debian's KERNELS in qemu, in roots of their releases (RUN=Name: other tests)
	@mkdir -p dist
	@CGO_ENABLED=0 $(GO) test -c -trimpath -vet=off -ldflags=-w -o dist/kernels.test ./cmd/unspool
	@export UNSPOOL_BINARY="$${UNSPOOL_BINARY:-$(CURDIR)/bin/unspool}"; $(if $(RUN),\
	for suite in $(KERNELS); do .ci/kernel $$suite / sh -c \
		'uname -sr; echo 2 >/proc/sys/kernel/perf_event_paranoid; cd cmd/unspool && exec ../../dist/kernels.test -test.v \
		-test.parallel 1 -test.run "$$0"' '$(RUN)' || echo "FAIL .ci/kernel: status $$?"; done 2>&1 | \
	tee dist/kernels.log | awk -f .ci/digest.awk,\
	$(GO) build -o dist/bench-kernels ./bench/kernels; dist/bench-kernels -kernels '$(KERNELS)' \
		$(if $(filter file,$(origin KERNELS)),-o bench/KERNELS.md) || { [ $$? = 2 ] && echo 'test-kernels: left out'; })

# Without the tests of the command line: the program that these start has no race detector.
race: PACKAGES := $$($(GO) list $(PACKAGES) | grep -vx unspool/cmd/unspool)
race: ## the tests of make test with the race detector, the longest ones shortened, without those of the command line
	@mkdir -p dist
	@echo 'go test -race on all packages but cmd/unspool; all that it prints goes to dist/race.log'
	@$(call test_modules,-race -short -p 2 -parallel 4) | tee dist/race.log | awk -f .ci/digest.awk

# Building golangci-lint takes some minutes of processor time, once. Its configuration says why each linter is there.
lint: ## gofmt, vet, staticcheck, and golangci-lint with the linters of .ci/golangci.yml
	@unformatted=$$(gofmt -l .); \
	if [ -n "$$unformatted" ]; then echo "gofmt would change: $$unformatted"; exit 1; fi
	$(GO) vet $(PACKAGES)
	$(GO) vet -C $(READERS) ./...
	@# What is about the machine that we run on has the architecture in its name, and nothing else depends on it.
	GOARCH=arm64 $(GO) vet $(PACKAGES)
	@# GOGC: collecting less garbage takes a fifth off its processor time
	GOGC=300 $(GO) run $(STATICCHECK) $(PACKAGES)
	cd $(READERS) && GOGC=300 $(GO) run $(STATICCHECK) ./...
	$(GO) run $(GOLANGCILINT) run -c .ci/golangci.yml $(PACKAGES)
	cd $(READERS) && $(GO) run $(GOLANGCILINT) run -c $(CURDIR)/.ci/golangci.yml ./...

# How many machines are simulated, and from which seed on.
SEEDS ?= 1000
FROM  ?= 1

simulate: ## simulate SEEDS=1000 machines FROM=1 on, and say the shortest plan of those that fail
	CGO_ENABLED=0 $(GO) test -trimpath -vet=off -count=1 -v -timeout 24h -run '^TestSimulate$$' ./testdata/machine -args \
		-seeds $(SEEDS) -from $(FROM)

bench-scale: ## simulate large machines, and print the tables of bench/SIMULATION.md
	@CGO_ENABLED=0 $(GO) test -trimpath -vet=off -count=1 -v -timeout 1h -run '^TestScale$$' ./testdata/machine -args -scale

fuzz: ## run every fuzz target for FUZZTIME=20000x, a number of inputs
	@grep -rHo --include='*_test.go' --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]*' . | \
	while IFS=: read -r file func; do \
		echo "== $${file%/*} $${func#func }"; \
		$(GO) test -run '^$$' -fuzz "^$${func#func }\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 10x "$${file%/*}" </dev/null; \
	done

bench-fuzz: ## give every fuzz target INPUTS=10000000 inputs, or what FUZZLIMIT=10m is enough for, and write bench/FUZZ.md
	$(GO) run ./bench/fuzz -inputs $(INPUTS) -time $(FUZZLIMIT) -o bench/FUZZ.md

attacks: bin/unspool ## run the attacks in bold of bench/ATTACKS.md, one at a time, and print what they measure
	@UNSPOOL_LANE=machine UNSPOOL_BINARY='$(CURDIR)/bin/unspool' CGO_ENABLED=0 $(GO) test -count=1 -v -timeout 30m -p 1 -parallel 1 \
		-run '$(ATTACKS)' ./cmd/unspool ./capture/live ./capture/symbols ./unwind ./unwind/image | \
	grep --line-buffered -v '^=== \|^edges: '

bench: ## measure the speed of walks, convert and record on real programs, which it installs, and write bench/SPEED.md
	$(GO) run ./bench/speed -o bench/SPEED.md

bench-stacks: ## record real programs, which it installs, and write bench/STACKS.md
	$(GO) run ./bench/stacks -o bench/STACKS.md

bench-joins: ## record real programs, cut their stacks, and write bench/JOINS.md about how they are completed
	$(GO) run ./bench/joins -o bench/JOINS.md

install: bin/unspool ## install the binary, Sysprof's link, manual pages and completions below PREFIX=/usr/local (and DESTDIR=)
	install -D -m 755 bin/unspool '$(DESTDIR)$(PREFIX)/bin/unspool'
	install -d '$(DESTDIR)$(LIBEXECDIR)'
	ln -sf '$(PREFIX)/bin/unspool' '$(DESTDIR)$(LIBEXECDIR)/sysprof-live-unwinder'
	install -d '$(DESTDIR)$(PREFIX)/share/man/man1' '$(DESTDIR)$(PREFIX)/share/bash-completion/completions' \
		'$(DESTDIR)$(PREFIX)/share/zsh/site-functions' '$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d'
	bin/unspool man '$(DESTDIR)$(PREFIX)/share/man/man1'
	bin/unspool completion bash >'$(DESTDIR)$(PREFIX)/share/bash-completion/completions/unspool'
	bin/unspool completion zsh >'$(DESTDIR)$(PREFIX)/share/zsh/site-functions/_unspool'
	bin/unspool completion fish >'$(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d/unspool.fish'

dist: ## make archives, packages and sums of the commit HEAD in dist/release
	@.ci/package/build dist/release
	@ls dist/release

test-dist: ## make dist twice, compare, and install the packages in roots of Debian 12 and 13 and by rpm; needs root
	@.ci/package/test

clean: ## remove bin and dist
	rm -rf bin dist

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
