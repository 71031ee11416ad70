# Run "make" for a list of the targets. README.md needs none of them.

GOLANGCI_LINT := go run github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

# The modules beside the root that are linted and compiled for other platforms as the root is.
WINGS := admission/audit admission/webhook admission/rego admission/kubewarden cmd/kubewasm cmd/kubewasm-webhook \
  examples/admission examples/endpoint-picker examples/hooks examples/sched

.DEFAULT_GOAL := help

.PHONY: help
help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-12s %s\n", $$1, $$2}' $(firstword $(MAKEFILE_LIST))

.PHONY: all
all: lint test ## Run what a change needs before it is pushed: lint and test.

.PHONY: check
check: ## Run all that .ci/run runs. It takes an hour on two cores and installs Debian packages.
	.ci/run

.PHONY: test
test: ## Run the tests that need nothing but Go: README.md's second command.
	go test ./...

.PHONY: cover
cover: ## Run the tests and write the coverage of all packages to cover.out.
	go test -coverpkg=./... -coverprofile=cover.out ./...
	go tool cover -func=cover.out | tail -n 1

# The packages in which goroutines meet, those that take minutes first.
.PHONY: race race-library race-adapters
race: race-library race-adapters ## Run all tests of these under the race detector, which needs a C compiler: 25 minutes.
race-library:
	CGO_ENABLED=1 go test -race -timeout 50m ./host ./admission ./hooks/... ./host/... ./admission/... ./codec/... ./abi ./internal/diskcache ./internal/snapmem ./internal/objects
	for mod in admission/audit admission/webhook hooks/runtime admission/rego admission/kubewarden; do (cd $$mod && CGO_ENABLED=1 go test -race -timeout 50m ./...) || exit 1; done
race-adapters:
	cd sched/kube137 && CGO_ENABLED=1 go test -race -timeout 50m .
	CGO_ENABLED=1 go test -race -timeout 50m -run TestCountPods ./sched
	cd host/oci/e2e && CGO_ENABLED=1 go test -race -timeout 50m -run 'Storm|ManySources' .

# Of packages whose tests take minutes, the tests in which many goroutines work on one thing; of the
# others all but those that search recordings for secrets, thousands of them one after the other. The
# forge runs all of both in the night.
HAMMERS := Hammer|Swap|Storm|Shadow|Parallel|Beside|InTurn

.PHONY: hammers hammers-library hammers-adapters
hammers: hammers-library hammers-adapters ## Run what make race finds most with: 6 minutes. .ci/run leaves the adapters to the night.
hammers-library:
	CGO_ENABLED=1 go test -race -timeout 50m -skip TellNoSecrets ./internal/recording ./host/shadow ./host/service ./host/oci ./host/hostmetrics ./host/hosttrace \
	  ./hooks ./hooks/nodewatch ./hooks/cgroup ./hooks/internal/... ./internal/diskcache ./internal/snapmem ./internal/objects
	CGO_ENABLED=1 go test -C admission/audit -race -timeout 50m .
	CGO_ENABLED=1 go test -C admission/webhook -race -timeout 50m ./...
	cd hooks/runtime && CGO_ENABLED=1 go test -race -timeout 50m ./proxy && CGO_ENABLED=1 go test -race -timeout 50m -run '$(HAMMERS)' ./standalone
	cd admission/kubewarden && CGO_ENABLED=1 go test -race -timeout 50m ./capabilities ./policyserver && CGO_ENABLED=1 go test -race -timeout 50m -run '$(HAMMERS)' ./internal/policies
	CGO_ENABLED=1 go test -race -timeout 50m -run '$(HAMMERS)' ./host ./admission ./sched
hammers-adapters:
	cd sched/kube137 && CGO_ENABLED=1 go test -race -timeout 50m -run '$(HAMMERS)' .
	CGO_ENABLED=1 go test -race -timeout 50m -run TestCountPods ./sched
	cd host/oci/e2e && CGO_ENABLED=1 go test -race -timeout 50m -run 'Storm|ManySources' .

# What is tested of guests in this process, with each of them in a process of its own. make kubernetes
# compares such guests with the scheduler's plugins, too.
.PHONY: isolation isolation-quick
isolation: ## Run the conformance suite, hostile guests, replays and the packages with guests at isolation: process: 15 minutes.
	KUBEWASM_DEBUG=process go test -timeout 90m ./host ./host/service ./host/shadow ./abi/conformance ./admission ./hooks ./sched ./internal/replay
	cd hooks/runtime && KUBEWASM_DEBUG=process go test -timeout 30m -run ARecordingOf ./standalone
	cd sched/kube137 && KUBEWASM_DEBUG=process go test -timeout 30m -run ARecordingOf .
isolation-quick: ## Run what make isolation finds most with: 2 minutes.
	KUBEWASM_DEBUG=process go test -short ./host -run 'TestWASI|TestWorkOfWASI|TestStateOfWASI|TestReset|TestDialect|TestSession|TestHammerOfTraps|TestHostile/(bomb|bulk|recursion|stack|wasi-path)'
	KUBEWASM_DEBUG=process go test -run ARecordingOf ./admission ./hooks ./host/service
	KUBEWASM_DEBUG=process go test -run 'TestConversions|TestHook' ./abi/conformance

# Rust of Debian 12, the oldest that the crate supports, before one of the user's own.
.PHONY: languages
languages: ## Test new plugins of each kind, and the SDKs of other languages than Go at length, which needs their toolchains: 2 minutes.
	cd guest/rust && PATH="/usr/bin:$$PATH" cargo test --offline --quiet --target-dir "$${XDG_CACHE_HOME:-$$HOME/.cache}/kubewasm/rust-native"
	KUBEWASM_LANGUAGES=1 go test -timeout 20m -run 'TestStacks|TestMetadataOfEach|TestReaders|TestMalformedMessages|TestSizesOfModules' \
	  ./admission ./internal/guestbuild ./guest/c ./abi/conformance ./internal/testkit/readme
	KUBEWASM_LANGUAGES=1 go test -C cmd/kubewasm -timeout 20m -run 'TestReaders|TestGeneratedCodeCompiles|TestNewPlugins|TestBuildWithoutANetwork|TestMessagesOf' ./...
	KUBEWASM_LANGUAGES=1 go test -C admission/kubewarden -timeout 20m -run 'TestKubewardenWASI' ./internal/policies

# Most of the guides are not in README.md's second command: programs that embed
# Kubernetes, and plugins that are built again and again.
.PHONY: guides
guides: ## Run all that the documents say to paste: 2 minutes, longer when it builds Kubernetes for the first time.
	KUBEWASM_GUIDES=1 go test -timeout 30m -run TestPaste ./internal/testkit/readme

# The modules inside this one are apart so that an importer of kubewasm does not see
# what they need: Kubernetes itself, other plugin systems, container runtimes.
# What make kubernetes runs. .ci/run leaves more out.
MODULES_LEFT := internal/testkit/e2e

# With make -j 2 --output-sync=target two of them are tested at once, those that take longest first.
MODULES := $(addprefix modules/,$(shell git ls-files '*/go.mod' | grep -vE '^($(MODULES_LEFT))/' | xargs -n 1 dirname))

.PHONY: modules $(MODULES)
modules: $(filter %/release %/kubewasm-controller %/kubewasm-webhook,$(MODULES)) $(MODULES) ## Run the tests of the nested modules, but for internal/testkit/e2e: that is make kubernetes.
$(MODULES): modules/%:
	cd $* && GOWORK=off go test -timeout 50m ./...

.PHONY: vet-modules
vet-modules: ## Vet the nested modules, and what is compiled with the schedulers of other minors.
	for mod in $$(git ls-files '*/go.mod'); do (cd $$(dirname $$mod) && go vet ./...) || exit 1; done
	for minor in 135 136 138; do \
	  (cd internal/testkit/e2e && go vet -modfile=go$$minor.mod -tags=kube$$minor ./...) || exit 1; \
	done

# The modules with golden objects and configurations.
GOLDEN = cmd/kubewasm-controller cmd/kubewasm-agent cmd/kubewasm-policy-server internal/testkit/schemas

.PHONY: golden
golden: ## Make the golden files for the next version the set NAME, such as v0.2, with the resources of now.
	for mod in $(GOLDEN); do go test -C $$mod -count 1 -run 'TestGoldenConfigurations|TestGoldenObjectsHaveAllFields' . -golden $(NAME) || exit 1; done

.PHONY: release-snapshot
release-snapshot: ## Prepare the release of VERSION in the new repository DIR with its files in DIR/dist, and print what to push: 10 minutes, an hour with a cold build cache. With PROGRAMS=kubewasm-webhook, or several with commas, of these and for Linux alone.
	go run -C internal/testkit/release . $(if $(KEY),-key $(abspath $(KEY))) $(if $(PROGRAMS),-programs $(PROGRAMS)) $(VERSION) $(abspath $(DIR))

.PHONY: vulnerabilities
vulnerabilities: ## Look for known vulnerabilities in the programs, which needs the network.
	for mod in . $(WINGS) cmd/kubewasm-agent cmd/kubewasm-policy-server cmd/kubewasm-scheduler; do \
	  (cd $$mod && go run golang.org/x/vuln/cmd/govulncheck@v1.9.0 ./...) || exit 1; \
	done

.PHONY: replays
replays: ## Record 100,000 calls of each kind and repeat them, the scheduler's in a control plane: 10 minutes.
	KUBEWASM_REPLAY_CALLS=110000 go test -timeout 30m -run ARecordingOf ./admission ./hooks ./host/service
	cd hooks/runtime && KUBEWASM_REPLAY_CALLS=110000 go test -timeout 30m -run ARecordingOf ./standalone
	cd sched/kube137 && KUBEWASM_REPLAY_CALLS=110000 go test -timeout 30m -run ARecordingOf .
	cd internal/testkit/e2e && KUBEWASM_REPLAY_CALLS=100000 go test -timeout 30m -run TestScheduler ./scheduler

.PHONY: kubernetes kubernetes-newest
kubernetes-newest: ## Test the newest Kubernetes minor: 7 minutes.
	go run ./internal/testkit/compatibility -quick -minors=1.37
kubernetes: ## Test each Kubernetes minor and write docs/compatibility.md. The first build of a minor takes minutes.
	go run ./internal/testkit/compatibility

# The version before this one: a tag or a commit.
PREVIOUS = $(shell git describe --tags --abbrev=0 --match 'v*' 2>/dev/null || git rev-parse HEAD~40)

.PHONY: upgrades
upgrades: ## Replace each program by that of PREVIOUS and back, under load: 10 minutes, longer when it builds Kubernetes for the first time.
	dir=$$(mktemp -d) && git worktree add --quiet --detach $$dir/previous $(PREVIOUS) && trap "git worktree remove --force $$dir/previous; rmdir $$dir" EXIT && \
	  KUBEWASM_PREVIOUS=$$dir/previous go test -C internal/testkit/e2e -count 1 -timeout 50m -v -run TestUpgradeAndDowngrade ./declared

.PHONY: lint
lint: ## Check the format and run go vet and the linters of .golangci.yml.
	test -z "$$(gofmt -l .)" || (gofmt -l . && false)
	go vet ./...
	$(GOLANGCI_LINT) run ./...
	for mod in $(WINGS); do (cd $$mod && go vet ./... && $(GOLANGCI_LINT) run ./...) || exit 1; done

.PHONY: house
house: ## Print how large the house is: lines, packages, exported names, arrows between its rooms, and their bounds.
	go run ./internal/testkit/house -v

# The host and what depends on the processor beside it. The forge runs all tests, and the
# comparison of rewritten guests, on a machine of this kind. Left out are tests that compile guests of
# megabytes, which takes minutes under qemu, and tests that measure the memory of the process,
# which is that of qemu.
ARM64_PACKAGES := ./host ./abi ./internal/snapmem ./internal/replay
ARM64_SKIP := StandardGo|HighestLimits|TestProgram$$|TestHostile/many-functions|PrivateMemory|ZerosAreNotStored|NothingLeaks|KilledRecorder|ChangedGuests

.PHONY: arm64
arm64: ## Run tests for linux/arm64 under qemu, which needs qemu-user-static: 3 minutes.
	KUBEWASM_TEST_EMULATOR=qemu-aarch64-static GOARCH=arm64 CGO_ENABLED=0 go test -exec qemu-aarch64-static -timeout 30m -skip '$(ARM64_SKIP)' $(ARM64_PACKAGES)

# Where wazero interprets, and the byte order is another one than a guest's. Left out are tests
# of the compiler, of recursions deeper than the interpreter's 2,000 calls, of times, and of the
# kernel's list of pages, which qemu passes on in the machine's byte order.
S390X_SKIP := $(ARM64_SKIP)|Stack|TestTrap|DoesNotAllocate|TestHostile|FuelIsExact|Go[A-Z]|Snapshot|RealGuest|Profiles?Of|MapsOnLinux|KeepsPages

.PHONY: s390x
s390x: ## Run the host's tests for linux/s390x under qemu, which needs qemu-user-static: 2 minutes.
	KUBEWASM_TEST_EMULATOR=qemu-s390x-static GOARCH=s390x CGO_ENABLED=0 go test -exec qemu-s390x-static -timeout 30m -skip '$(S390X_SKIP)' ./abi ./internal/objects ./internal/snapmem ./host

.PHONY: platforms
platforms: ## Check the types of everything for the other platforms. The forge compiles it for each.
	KUBEWASM_PLATFORMS=". $(WINGS)" go test -count 1 -timeout 20m -run '^TestPlatforms$$' ./internal/testkit/layout

.PHONY: chart
chart: ## Check the chart: lint and render it for the values in its ci, decode the objects, and have the programs read their configurations.
	go test -C charts -count 1 -timeout 20m ./...

WAT := $(shell find . -path '*/testdata/*.wat') internal/wasmbin/profiler.wat

# The modules with generated files beside the root. Their commands find kubewasm on the PATH.
GENERATING := charts cmd/kubewasm internal/testkit/newestapi internal/testkit/schemas cmd/kubewasm-controller/api internal/testkit/alerts internal/bench \
  examples/admission examples/controller examples/endpoint-picker examples/sched

# The programs whose tests write their rows of docs/metrics.md.
WITH_METRICS := cmd/kubewasm-agent cmd/kubewasm-controller cmd/kubewasm-policy-server cmd/kubewasm-scheduler cmd/kubewasm-webhook

.PHONY: generate
generate: $(WAT:.wat=.wasm) ## Rebuild the generated views and the .wasm of tests, which needs wat2wasm.
	bin=$$(mktemp -d) && trap "rm -r $$bin" EXIT && go build -C cmd/kubewasm -o $$bin . && export PATH="$$bin:$$PATH" && \
	  go generate ./... ./abi/conformance/testdata/quotes ./host/service/testdata/testservice ./host/service/testdata/evolution/*/ && \
	  for mod in $(GENERATING); do (cd $$mod && go generate ./...) || exit 1; done
	for program in $(WITH_METRICS); do (cd $$program && KUBEWASM_WRITE_METRICS=1 go test -count 1 -run 'TestMetricsPage$$' .) || exit 1; done

%.wasm: %.wat
	wat2wasm --debug-names $< -o $@

SITE := /tmp/kubewasm-site

.PHONY: site
site: ## Build the documentation site in SITE, check its links, and open its pages in chromium, which needs npm: 2 minutes.
	go run ./internal/testkit/site $(SITE_FLAGS) $(SITE)
	KUBEWASM_SITE=$(SITE) go test -count 1 -run '^TestInABrowser$$' ./internal/testkit/site

.PHONY: pictures
pictures: ## Write the screenshots and the recorded terminal of docs/images, which needs chromium and the newest kubectl.
	export KUBEWASM_PICTURES=$(CURDIR)/docs/images CI=1 && \
	  go test -C cmd/kubewasm-webhook -count=1 -run '^TestStatus$$' . && go test -C cmd/kubewasm -count=1 -run '^TestReportsForABrowser$$' . && \
	  go test -C internal/testkit/e2e -count=1 -v -run '^TestRecording$$' ./declared && go test -count=1 -run '^TestRecordings$$' ./internal/testkit/site

.PHONY: cosign
cosign: ## Let cosign sign the fixtures of host/oci anew. It is built first, which takes 5 minutes.
	bin=$$(mktemp -d) && trap "rm -r $$bin" EXIT && \
	  GOBIN=$$bin go install github.com/sigstore/cosign/v3/cmd/cosign@v3.1.3 && \
	  COSIGN=$$bin/cosign go test -C host/oci/e2e -count 1 -run 'TestUpdateFixtures|TestCosign' -update . && \
	  COSIGN=$$bin/cosign go test -C host/oci/sigstore -count 1 -run TestSignatureByCosign -update .

.PHONY: quickstart
quickstart: ## Run README.md's first command.
	go run ./examples/quickstart

.PHONY: bench
bench: ## Measure kubewasm beside its alternatives: 5 minutes on a quiet machine.
	go run -C internal/bench .

FUZZTIME := 2m

.PHONY: fuzz
fuzz: ## Run each fuzz target for FUZZTIME.
	for package in $$(git grep -l 'func Fuzz' -- '*_test.go' | xargs -n 1 dirname | sort -u); do \
	  for target in $$(git grep -ho 'func Fuzz[A-Za-z0-9]*' -- $$package/'*_test.go' | cut -c6-); do \
	    echo "== $$package $$target"; \
	    (cd $$package && KUBEWASM_LANGUAGES=1 go test -run '^$$' -fuzz "^$$target$$" -fuzztime $(FUZZTIME) .) || exit 1; \
	  done; \
	done

.PHONY: nightly
nightly: fuzz ## Run the fuzz targets, libFuzzer for 10 minutes, 10,000 histories of a policy, 100,000 recorded calls of each kind with canaries, ten minutes of pods that come and go under the node agent, large modules for the estimate of the compiler's memory, and 100,000 rewritten modules, which needs wasm-opt.
	KUBEWASM_LANGUAGES=1 KUBEWASM_FUZZTIME=600 go test ./guest/c -timeout 30m -run TestReadersUnderLibFuzzer
	go test -C admission/webhook ./manage -run 'TestHistories$$' -timeout 1h -histories 10000
	for package in ./admission ./sched ./hooks ./host/service; do go test $$package -run TellNoSecrets -timeout 2h -canaries 100000 || exit 1; done
	go test ./internal/wasmbin -run 'TestComplexityOfFamilies|TestListsOfManyFunctions' -timeout 2h -v -families 3
	KUBEWASM_CHURN=10m go test ./hooks/internal/churn -timeout 30m -v
	go test ./internal/wasmbin -run TestDifferential -timeout 5h -v -differential 100000 -differential.seed $$(date +%Y%m%d000000)
