# Millwright's one entrance for people and for CI. `make help` lists the targets.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TOOL := go tool -modfile=tools.mod
LINT := go tool -modfile=$(CURDIR)/tools.mod golangci-lint run --config $(CURDIR)/.golangci.yml
# Modules of their own, with dependencies that only their users need. deploy/render is one, too: make generate and make test need it.
MODULES := deploy/release devstack/mcm provider/incus provider/mcmdriver provider/mcmdriver/azure examples/provider-libvirt test/gitops
# The module that needs more than a Go toolchain (root, Debian's packages, namespaces). No other module needs it.
LAB := devstack/lab
# One tier of the tests. Its table goes to bin/, as JSON. ONLY=regexp of packages and commands; STRESS=n busy loops beside the tests.
TIER = go run -tags integration ./test/tiers --only '$(ONLY)' --stress $(or $(STRESS),0) --out bin/$@.json
# What make quick tests. Every room uses decide/, and each test binary outside links client-go and Temporal's SDK, 5 s of a core. So
# while decide/ alone differs from the last commit, its own tests run, and the recorded histories; the rest runs once it is committed.
ROOMS := ./observe/... ./activities/... ./workflows/...
CHANGED = $(filter-out %.md,$(shell git diff --name-only HEAD 2>/dev/null; git ls-files --others --exclude-standard 2>/dev/null))
QUICK = ./decide/... $(if $(CHANGED),$(if $(filter-out decide/%,$(CHANGED)),$(ROOMS),./workflows),$(ROOMS))
BINARIES := ./worker ./k8sbridge ./starter/millwright ./devstack ./devstack/virtualcloud

.PHONY: help build fmt quick test test-all test-cluster-api demo demo-real up lab down generate golden replay record promise bench chaos chaos-report endurance fleet mutate upgrade lint lint-all generate-check verify vulncheck stack release module-path

help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  \033[1m%-12s\033[0m %s\n", $$1, $$2}'

build: ## our binaries, into bin/
	go build -trimpath -o bin/ $(BINARIES)
	@ln -sf millwright bin/starter # its former name, for one version

fmt: ## format the code of all modules: gofumpt, imports, 120 columns
	$(TOOL) golangci-lint fmt ./...

quick: ## at each save: vet, unit tests of decide, observe, activities and workflows, and the recorded histories
	go vet $(QUICK)
	go test -short -vet=off -ldflags=-s $(QUICK) # most of the time is that of the linker

test: stack ## unit tests with the race detector, and the core of the integration tests; ONLY=regexp, STRESS=n
	$(TIER) test

test-all: stack ## all tests, also those that need root, Debian's packages, MCM or Incus; ONLY=regexp, STRESS=n
	$(TIER) $(addprefix --nested ,$(MODULES) $(LAB)) all

test-cluster-api: stack ## the core of the tests of Cluster API's kinds, with the two older minor versions of Cluster API
	for release in 1.13 1.12; do \
		echo "Cluster API $$release"; MILLWRIGHT_CLUSTER_API_RELEASE=$$release $(TIER) --only 'integration/capi$$' test || exit 1; \
	done

stack: build ## the heavy binaries of the local stack, once; cached by version outside this folder
	bin/devstack build

up: stack ## start the local stack and leave it running
	bin/devstack up

lab: build ## the program of the lab, into bin/
	cd $(LAB) && go build -trimpath -o $(CURDIR)/bin/ .

down: ## stop the local stack; leaves no process
	@if [ -x bin/lab ]; then bin/lab down; fi # it also removes what a killed server of Incus left behind
	@if [ -x bin/devstack ]; then bin/devstack down; else echo "nothing to stop: bin/devstack was never built"; fi

demo: up ## three machines on the local stack, then 3 -> 5 -> 2; leaves it running
	@bin/millwright demo --kubeconfig "$$(bin/devstack kubeconfig)"
	@echo; bin/devstack up

demo-real: stack lab ## the same with real kubelets and real pods; as root, on Linux with Debian's packages
	bin/lab up --nodes=incus
	bin/lab machine-class | bin/devstack kubectl -- apply --server-side -f -
	@bin/millwright demo --kubeconfig "$$(bin/devstack kubeconfig)" --file examples/real/real.yaml
	bin/devstack kubectl -- rollout status deployment/web
	bin/devstack kubectl -- get nodes -o wide --selector pool=real
	bin/devstack kubectl -- get pods -o wide --selector app=web
	bin/devstack kubectl -- logs --selector app=web --prefix

generate: ## generated code, CRDs, the manifests of kustomize from the chart, docs/reference
	./api/generate.sh
	cd deploy/render && go run .
	go run ./test/reference

golden: stack ## rewrite the golden files; read the diff as prose
	go test -tags integration -count=1 ./test/integration/admission -update

replay: ## replay the recorded histories against today's workflows; check that none was changed or deleted
	go test -run 'TestReplayRecordedHistories|Recorded' ./workflows

endurance: stack ## a hundred machines, changed, paused, cancelled and killed at random; then 10,000 machines, or ENDURANCE_MACHINES=n; BENCH_OUT=file.json
	go test -tags integration,endurance -count=1 -timeout 40m -v -run TestEndurance ./test/integration/rollouts ./test/integration/chaos ./test/integration/seeds ./test/integration/capi
	@$(MAKE) --no-print-directory fleet

fleet: stack ## the last part of endurance: what 10,000 machines cost, or ENDURANCE_MACHINES=n; BENCH_OUT=file.json
	BENCH_COMMIT=$$(git rev-parse --short HEAD) go test -tags integration,endurance -count=1 -timeout 120m -v -run TestEndurance ./test/integration/bench

chaos: stack ## random loads and faults with everything checked: CHAOS_SEED=n CHAOS_SEEDS=k CHAOS_TIME=10m CHAOS_CLOCK=10m CHAOS_LOGS=folder
	go test -tags integration,chaos -count=1 -timeout 0 -v -run 'TestConsecutiveSeeds$$' ./test/integration/seeds

chaos-report: ## table of the seeds that CHAOS_LOGS=folder has reports of: faults by loads
	@go run ./test/chaosreport

mutate: ## break the product in known ways; the tests must notice each. Some minutes; MUTATIONS=regexp runs some
	go run ./test/mutate --run "$(MUTATIONS)"

upgrade: stack ## another version and this one take over each other's work: UPGRADE_FROM=commit
	go test -tags integration,upgrade -count=1 -timeout 30m -v ./test/integration/upgrade

bench: stack ## measure loads, on an otherwise quiet machine; BENCH=regexp of some, BENCH_OUT=file.json, BENCH_BASE=earlier.json
	BENCH_COMMIT=$$(git rev-parse --short HEAD) go test -tags integration,bench -count=1 -timeout 60m -v -run "$(or $(BENCH),.)" ./test/integration/bench

record: RECORD ?= $(shell git log -1 --format=%cs-%h)
record: stack ## add histories to workflows/testdata/replay; RECORD=name of their folder, ONLY=regexp of those to keep
	go test -tags integration -p 1 -parallel 8 -count=1 -timeout 40m -run '^TestRecord' ./test/integration/record ./test/integration/capi -record '$(RECORD)' -record-only '$(ONLY)'
	@echo "all histories of $(RECORD):"; cut -d ' ' -f 3 workflows/testdata/replay/$(RECORD).sum

promise: generate ## before a version is tagged: write down what it promises and record its histories anew; VERSION=v0.1
	@[ -n "$(VERSION)" ] || { echo "which version? make promise VERSION=v0.1" >&2; exit 2; }
	go run ./test/reference --promise $(VERSION) # refuses a version that is released
	rm -rf workflows/testdata/replay/$(VERSION) workflows/testdata/replay/$(VERSION).sum
	@$(MAKE) --no-print-directory record RECORD=$(VERSION)

release: ## make all files of a release in bin/release/VERSION, without a registry; VERSION=v0.1.0, PLATFORMS=linux/amd64 for a part of it
	@[ -n "$(VERSION)" ] || { (cd deploy/release && go run . --help) >&2; exit 2; }
	@cd deploy/release && go run . $(if $(PLATFORMS),--platforms '$(PLATFORMS)') '$(VERSION)'

module-path: ## change the path of our Go modules everywhere; NEW=example.com/org/millwright
	@[ -n "$(NEW)" ] || { echo "which path? make module-path NEW=example.com/org/millwright" >&2; exit 2; }
	go run ./test/modulepath '$(NEW)'

lint: ## golangci-lint with the import rules, in the root module and in deploy/render, and workflowcheck
	$(LINT) ./... # with all tags at once
	cd deploy/render && $(LINT) ./...
	$(TOOL) workflowcheck ./workflows/...

lint-all: ## the linter in the other modules, and go vet of the tests that one tag alone selects
	@for module in $(MODULES) $(LAB); do (cd $$module && echo "in $$module:" && $(LINT) ./...) || exit 1; done
	@for tag in bench endurance chaos upgrade; do go vet -tags integration,$$tag ./test/integration/... || exit 1; done

vulncheck: ## known vulnerabilities in what we import
	$(TOOL) govulncheck ./...

generate-check: ## make generate leaves no difference
	@before=$$(git status --porcelain | sha256sum); diff=$$(git diff | sha256sum); $(MAKE) --no-print-directory generate; \
	if [ "$$before" != "$$(git status --porcelain | sha256sum)" ] || [ "$$diff" != "$$(git diff | sha256sum)" ]; then \
		echo "make generate changed files: commit what it made" >&2; git status --short >&2; exit 1; fi

verify: generate-check lint ## before every commit, beside make test: generated files are up to date, and the linters
