# `make` alone lists the targets.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

COMMIT := $(shell git describe --always --dirty --abbrev=12 2>/dev/null || echo unknown)
LDFLAGS := -X github.com/faas-infer/faas-infer/command/report.Commit=$(COMMIT)

# LDFLAGS link the commit in. Go would ask git for it again, which fails if the
# checkout belongs to another user, as on many CI machines.
export GOFLAGS := -buildvcs=false $(GOFLAGS)
# The binding to ONNX Runtime is cgo.
export CGO_ENABLED := 1

# The end-to-end tests start real processes on fixed ports, so they run alone.
E2E := $(if $(wildcard e2e/*.go),./e2e)
# Kubernetes' client takes minutes to build with the race detector. So packages that
# import it are tested without, as are the tests on the cluster.
CLUSTER := /(kubernetes|objects|deployments|bundle/image)(/|$$)
# These packages start no goroutine and import none that does, so they cannot race; a test
# checks this. Their searches take five times as long with the race detector, and linking a test
# with it takes seconds. Packages that use them concurrently, above all the provider's, are tested with it.
SEQUENTIAL := ^github.com/faas-infer/faas-infer/((batching|coldstart|papers/(asyfunc/(pairing|shadow)|gillis/partition)|scaling|variant)(/|$$)|profiler($$|/(cop|correction|database|operator|regression)$$)|model($$|/(adapt|cut|savedmodel|shape|tensor|zoo)$$)|instance/(frame|labelled|pixels|protocol|python/environment|shared|tensorjson)$$|provider/(annotation|async/retry|async/spare)$$|(papers/infaas/registration|cluster|cluster/membership|command/report/plot|gpu|postmortem)$$)
# These tests take long, and several times as long with the race detector. So they are tested
# without. Those of onnxruntime use one goroutine. Those of control load a controller for minutes of
# virtual time; 200 shorter tests run the same code with the race detector. A test checks that
# SEQUENTIAL_IN has their packages, and that they start no goroutine themselves.
SEQUENTIAL_TESTS := ^(TestPartsAnswerAsTheWhole|TestSeparateGroupsAnswerAsTheWhole|TestGroupsOfTheOptimisedGraph|TestSegmentsKeepTheBits|TestAsyFuncModelsRun|TestRandomNetworksInParts|TestShapesAreTheEngines|TestCheapestAccurateVariantAnswers|TestPreferredAccuracyAnswers|TestSlowExecutionsTakeNoCapacity)$$
SEQUENTIAL_IN := ./instance/onnxruntime ./provider/control
# The tests of these packages start a Kubernetes, which takes minutes to build, so they
# belong to test-kubernetes. A test compares this list with what the packages import.
ON_KUBERNETES := ./command/kubernetes/nodeagent
LAB_ON_KUBERNETES := ./kubelet ./kubernetes ./kubernetes/gpus
NOT_HERE := /e2e(/kubernetes.*)?$$|/lab/kubernetes|/command/kubernetes/nodeagent$$
UNIT = $$(go list ./... | grep -Ev '$(NOT_HERE)' | grep -Ev '$(CLUSTER)|$(SEQUENTIAL)')
UNIT_PLAIN = $$(go list ./... | grep -Ev '$(NOT_HERE)' | grep -E '$(CLUSTER)|$(SEQUENTIAL)')
# The lab is a module of its own. It is tested without the race detector, too.
LAB = $$(go list -C lab ./... | grep -Ev '$(NOT_HERE)')
# Many tests wait, so one package more than there are cores is tested at a time.
AT_A_TIME = -p $$(($$(nproc) + 1))
# go test runs packages in this order, so the longest come first and none is left alone at the end.
LONGEST := ./command ./provider/control ./provider/async ./instance/python/convert ./cluster/local ./instance/onnxruntime ./instance/upstream
LONGEST_PLAIN := ./scaling
LONGEST_LAB := ./figure ./sim
# Prints how long a part took, if that was 5 s or more, and records it for .ci/run's table.
TIMED := scripts/timed.sh
# Runs go test, and tests that failed again. It appends tests that passed only then to this file,
# which is printed at the end of the whole, here or by the caller that chose the file.
GOTEST := scripts/gotest.py
export FAAS_INFER_FLAKY ?= bin/flaky
LIST_FLAKY := $(if $(filter file,$(origin FAAS_INFER_FLAKY)),[[ ! -e bin/flaky ]] || cat bin/flaky)

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## Build all, deploy stack.yml, send load for 20 s, print a table
	@$(MAKE) --no-print-directory -j3 ready
	@bin/faas-infer up --demo

.PHONY: up
up: ## Build all, start it, deploy stack.yml, stay until Ctrl-C
	@$(MAKE) --no-print-directory -j3 ready
	@bin/faas-infer up

.PHONY: test
test: ## Check formatting, vet, run all tests, with the race detector where packages can race
	@echo "[1/4] requirements: the binary, ONNX Runtime, OpenFaaS, Chromium, a collector, Prometheus, an ACME authority, Python packages"
	@$(MAKE) --no-print-directory -j4 ready gateway faas-cli grpcurl chromium axe minilm collector prometheus pebble versitygw python
	@echo "[2/4] gofmt, vet and the links of the pages"
	@$(MAKE) --no-print-directory formatted vet docs
	@rm -f bin/flaky
	@echo "[3/4] tests of the packages"
	@$(MAKE) --no-print-directory -j1 test-packages
	@echo "[4/4] end-to-end tests"
	@$(MAKE) --no-print-directory test-end-to-end
	@$(LIST_FLAKY)
	@echo "All tests passed."

# With make -k a failed test does not end the rest.
.PHONY: test-packages test-raced test-unraced test-end-to-end
test-packages: test-raced test-unraced
test-raced:
	@$(TIMED) "compiling with the race detector" go list -race -test -export -deps -f '{{""}}' $(UNIT)
	@$(TIMED) "tests of packages, with the race detector" $(GOTEST) $(AT_A_TIME) -race -vet=off -timeout 15m -skip '$(SEQUENTIAL_TESTS)' -- $(LONGEST) $(UNIT)
test-unraced:
	@$(TIMED) "tests of packages, without the race detector" $(GOTEST) $(AT_A_TIME) -vet=off -timeout 10m -- $(LONGEST_PLAIN) $(UNIT_PLAIN)
	@$(TIMED) "tests of the lab" $(GOTEST) -C lab $(AT_A_TIME) -vet=off -timeout 10m -- $(LONGEST_LAB) $(LAB)
	@$(TIMED) "long tests, without the race detector" $(GOTEST) -vet=off -timeout 10m -run '$(SEQUENTIAL_TESTS)' -- $(SEQUENTIAL_IN)
# The tests themselves run without the race detector, as their load would take the cores from
# what they test. They build the provider with it where it is to be seen.
test-end-to-end:
	@$(if $(E2E),$(TIMED) "end-to-end tests" $(GOTEST) -vet=off -count=1 -timeout 50m -- $(E2E))
	@$(TIMED) "end-to-end tests of the lab" $(GOTEST) -C lab -vet=off -count=1 -timeout 10m -- ./e2e

# Two clusters at a time, each in its own namespaces: two lists of about the same length run beside
# each other. These tests take half of their package's time, so they are in the other list: three of them
# need a cluster of their own, for which the other tests would lose the one that they share.
# Without the race detector, with which Kubernetes' client takes minutes to build.
KUBERNETES := $(GOTEST) -vet=off -count=1 -p 1 -timeout 40m
LONG_ON_KUBERNETES := ^(TestInstalled|TestUpgrade|TestIPv6|TestEndToEnd)$$
.PHONY: test-kubernetes
test-kubernetes: ## Test on a real Kubernetes built from source, its kubelet and containerd in namespaces
	@echo "[1/2] requirements: Kubernetes, ONNX Runtime, the gateway, Chromium"
	@$(MAKE) --no-print-directory kubernetes onnxruntime gateway faas-cli chromium axe
	@rm -f bin/flaky
	@echo "[2/2] tests on Kubernetes"
	@$(TIMED) "compiling for Kubernetes" go list -test -export -deps -f '{{""}}' ./e2e/kubernetes/... $(ON_KUBERNETES)
	@$(TIMED) "compiling the lab for Kubernetes" go list -C lab -test -export -deps -f '{{""}}' $(LAB_ON_KUBERNETES)
	@$(TIMED) "tests on Kubernetes" $(MAKE) --no-print-directory -k -j2 test-kubernetes-usage test-kubernetes-others
	@$(LIST_FLAKY)
	@echo "All tests on Kubernetes passed."

.PHONY: test-kubernetes-usage test-kubernetes-others
test-kubernetes-usage:
	@status=0; $(KUBERNETES) -skip '$(LONG_ON_KUBERNETES)' -- ./e2e/kubernetes ./e2e/kubernetes/failures ./e2e/kubernetes/objects ./e2e/kubernetes/backend/... || status=1; \
	$(GOTEST) -C lab -vet=off -count=1 -p 1 -timeout 40m -- $(LAB_ON_KUBERNETES) || status=1; \
	exit $$status
test-kubernetes-others:
	@status=0; $(KUBERNETES) -run '$(LONG_ON_KUBERNETES)' -- ./e2e/kubernetes || status=1; \
	$(KUBERNETES) -- $$(go list ./e2e/kubernetes/... | grep -Ev '/e2e/kubernetes(/failures|/objects|/backend.*)?$$') $(ON_KUBERNETES) || status=1; \
	exit $$status

# Karpenter takes as long to build as the rest of a test, so it has a target of its own.
.PHONY: test-karpenter
test-karpenter: kubernetes ## Build Karpenter, and test that it adds and removes nodes for the provider's placeholders
	@$(TIMED) "Karpenter" scripts/karpenter.sh >/dev/null
	@FAAS_INFER_KARPENTER=1 go test -vet=off -count=1 -v -run Karpenter ./e2e/kubernetes/backend

# Traefik takes minutes to build, too.
.PHONY: test-ingress
test-ingress: kubernetes onnxruntime faas-cli ## Build Traefik, and test that it leads to the provider by the chart's Ingress and HTTPRoute
	@$(TIMED) "Traefik" scripts/traefik.sh >/dev/null
	@FAAS_INFER_TRAEFIK=1 go test -vet=off -count=1 -v -run TestControllerLeadsToProvider ./e2e/kubernetes

# The tests that it skips are those of the papers' rooms.
.PHONY: test-without-papers
test-without-papers: ready faas-cli chromium axe minilm python ## Run the end-to-end tests of the core on a program without the papers' rooms
	@FAAS_INFER_E2E_TAGS=nopapers $(TIMED) "end-to-end tests without papers" $(GOTEST) -vet=off -count=1 -timeout 50m \
		-skip '^TestALargeModelIsCut$$|^TestCheapestWayUnderBurst$$|^TestShadowsKilledUnderLoad$$|^TestGuide$$/./^(partition|variants)$$' -- ./e2e

.PHONY: bench
bench: ready gateway build-lab ## Run every bench command on the binary
	@for model in dssm lstm mnist; do bin/faas-infer-lab bench throughput --model $$model --slo 50ms; done
	@for model in mnist resnet-50; do bin/faas-infer-lab bench coldstart --model $$model; done
	@for model in resnet-50 bert-v1; do bin/faas-infer-lab bench sharing --model $$model; done
	@bin/faas-infer-lab bench memory
	@bin/faas-infer-lab bench functions
	@bin/faas-infer-lab bench restart
	@bin/faas-infer-lab bench async
	@bin/faas-infer-lab bench dataplane
	@scripts/python.sh tensorflow >/dev/null
	@bin/faas-infer-lab bench python
	@bin/faas-infer-lab bench batch-model
	@bin/faas-infer-lab bench attainment
	@bin/faas-infer-lab bench faults --repeat 1
	@bin/faas-infer-lab bench peers
	@scripts/python.sh quantise >/dev/null
	@bin/faas-infer-lab bench int8
	@bin/faas-infer-lab bench switch
	@bin/faas-infer-lab bench strangers

.PHONY: build
build: ## Build bin/faas-infer
	@command -v $${CC:-gcc} >/dev/null || { echo "A C compiler is needed: apt-get install gcc libc6-dev" >&2; exit 1; }
	@echo "Building bin/faas-infer"
	@$(TIMED) "bin/faas-infer" go build -trimpath -ldflags '$(LDFLAGS)' -o bin/faas-infer .

MAN ?= dist/man1
.PHONY: man
man: ## Write a man page for each command into dist/man1 (MAN=DIR for another directory)
	@go run -ldflags '$(LDFLAGS)' ./scripts/man $(MAN)

.PHONY: build-lab
build-lab: ## Build bin/faas-infer-lab: the simulator and the benchmarks
	@echo "Building bin/faas-infer-lab"
	@$(TIMED) "bin/faas-infer-lab" go build -C lab -trimpath -ldflags '$(LDFLAGS)' -o ../bin/faas-infer-lab .

.PHONY: build-kubernetes
build-kubernetes: ## Build bin/faas-infer-kubernetes
	@echo "Building bin/faas-infer-kubernetes"
	@go build -trimpath -ldflags '$(LDFLAGS)' -o bin/faas-infer-kubernetes ./command/kubernetes/program

.PHONY: onnxruntime
onnxruntime: ## Fetch the ONNX Runtime library into the user's cache
	@$(TIMED) "ONNX Runtime" scripts/onnxruntime.sh >/dev/null

.PHONY: onnxruntime-cuda
onnxruntime-cuda: ## Fetch ONNX Runtime for GPUs with CUDA and cuDNN (1.3 GB, 2.1 GB on the disk)
	@$(TIMED) "ONNX Runtime for GPUs" scripts/onnxruntime.sh cuda >/dev/null

.PHONY: gateway
gateway: ## Build the stock OpenFaaS gateway, for up --gateway stock, into the user's cache
	@$(TIMED) "the gateway" scripts/gateway.sh >/dev/null

.PHONY: faas-cli
faas-cli: ## Build the stock faas-cli into the user's cache
	@$(TIMED) "faas-cli" scripts/faas-cli.sh >/dev/null

.PHONY: pebble
pebble: ## Build pebble, from which tests get certificates, into the user's cache
	@$(TIMED) "pebble" scripts/pebble.sh >/dev/null

.PHONY: versitygw
versitygw: ## Build versitygw, a server of S3 for tests, into the user's cache
	@$(TIMED) "versitygw" scripts/versitygw.sh >/dev/null

.PHONY: grpcurl
grpcurl: ## Build grpcurl into the user's cache
	@$(TIMED) "grpcurl" scripts/grpcurl.sh >/dev/null

# As scripts/release.sh --help says.
.PHONY: release
release: ## Make the release VERSION=v1.2.3 in dist/: programs, packages, images, chart, checksums, signature
	@scripts/release.sh "$${VERSION-}"

.PHONY: test-arm64
test-arm64: ## Test the program for arm64 under qemu: its packages, model check, a first function
	@$(TIMED) "tests for arm64" scripts/test-arm64.sh

.PHONY: images
images: ## Build the container images of faas-infer into dist/ (scripts/image.sh --push pushes them)
	@scripts/image.sh

# make -j builds them in parallel.
ENVIRONMENTS := python tensorflow triton mlserver convert-tensorflow convert-torch convert-tabular quantise
.PHONY: python
python: $(ENVIRONMENTS:%=python-%) python-clients python-text-clients python-scikit-learn ## Make the virtual environments of the tests in the user's cache (4 GB to fetch, 10 GB)

.PHONY: python-clients python-text-clients python-scikit-learn $(ENVIRONMENTS:%=python-%)
python-clients:
	@$(TIMED) "Python: clients" scripts/python.sh python command/testdata/clients.txt >/dev/null
python-text-clients:
	@$(TIMED) "Python: clients of texts" scripts/python.sh python e2e/testdata/text-clients.txt >/dev/null
python-scikit-learn:
	@$(TIMED) "Python: scikit-learn" scripts/python.sh python e2e/testdata/scikit-learn.txt >/dev/null
$(ENVIRONMENTS:%=python-%): python-%:
	@$(TIMED) "Python: $*" scripts/python.sh $* >/dev/null

.PHONY: kubernetes
kubernetes: ## Build Kubernetes from source into the user's cache (8 minutes the first time)
	@$(TIMED) "Kubernetes" scripts/kubernetes.sh >/dev/null
	@$(TIMED) "metrics server" scripts/metrics-server.sh >/dev/null
	@$(TIMED) "services" scripts/services.sh >/dev/null
	@$(TIMED) "Helm" scripts/helm.sh >/dev/null
	@$(TIMED) "definitions of others" scripts/definitions.sh >/dev/null

.PHONY: chromium
chromium: ## Find or fetch a Chromium to test web pages
	@$(TIMED) "Chromium" scripts/chromium.sh >/dev/null

.PHONY: minilm
minilm: ## Fetch the weights of a model of texts (83 MB) into the user's cache
	@$(TIMED) "MiniLM" scripts/minilm.sh >/dev/null

.PHONY: axe
axe: ## Fetch axe-core, which checks the console's pages, into the user's cache
	@$(TIMED) "axe-core" scripts/axe.sh >/dev/null

.PHONY: collector
collector: ## Build OpenTelemetry's collector, which a test sends traces to, into the user's cache
	@$(TIMED) "OpenTelemetry's collector" scripts/collector.sh >/dev/null

.PHONY: prometheus
prometheus: ## Build what tests the dashboard and the alerts into the user's cache: Prometheus, Grafana's schema
	@$(TIMED) "Prometheus" scripts/prometheus.sh >/dev/null
	@$(TIMED) "Grafana's schema" scripts/dashboard.sh >/dev/null

# mkdocs itself counts the warnings only if it prints them.
.PHONY: docs
docs: ## Build the pages as a site in bin/site, and check its links
	@python=$$($(TIMED) "Python: the site" scripts/python.sh python scripts/site.txt); \
	text=$$(NO_MKDOCS_2_WARNING=1 "$$python" -m mkdocs build 2>&1) || { echo "$$text"; exit 1; }

# The same commands and views as in the test, which compares the pictures.
.PHONY: screenshots
screenshots: ready chromium ## Make the pictures of docs/images by following docs/tutorial.md
	@FAAS_INFER_PICTURES=$(CURDIR)/docs/images go test -vet=off -count=1 -timeout 20m -run '^TestGuide$$/^default$$/^tutorial$$' ./e2e

# Everything that runs. make -j builds it in parallel.
.PHONY: ready
ready: build onnxruntime

.PHONY: generate
generate: ## Regenerate generated code (needs protoc and protoc-gen-go)
	@go generate ./...

.PHONY: fmt
fmt: ## Format the source
	@gofmt -w .

.PHONY: formatted
formatted:
	@files=$$(gofmt -l .); [[ -z $$files ]] || { echo "Not formatted; run make fmt:"; echo "$$files"; exit 1; }

# Go's test cache knows what changed and what depends on it.
.PHONY: check
check: ## Check formatting, vet, run the unit tests of what changed, within 5 minutes
	@$(MAKE) --no-print-directory -j4 ready python
	@$(MAKE) --no-print-directory subjects formatted vet
	@rm -f bin/flaky
	@$(MAKE) --no-print-directory -j1 test-packages
	@$(LIST_FLAKY)
	@echo "All checks passed. make test runs the end-to-end tests, too."

# The subjects of commits that BASE lacks have at most 60 characters.
BASE ?= origin/main
.PHONY: subjects
subjects:
	@! git rev-parse -q --verify $(BASE) >/dev/null || git log --no-merges --format=%s $(BASE)..HEAD | \
		awk 'length > 60 { print "commit subject of " length " characters, more than 60: " $$0; bad = 1 } END { exit bad }'

.PHONY: vet
vet: ## Run go vet
	@go vet ./...
	@go vet -C lab ./...

.PHONY: clean
clean: ## Remove bin and dist; caches stay
	@rm -rf bin dist
