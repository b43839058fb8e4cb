# Rollscope's tasks. A person needs two: `make demo` and `make test`.
SHELL       := /bin/bash
export CGO_ENABLED ?= 0
# One set of flags for builds, tests and lint: each other set would compile all dependencies once more.
export GOFLAGS     := -trimpath
GO          ?= go
VERSION     ?= $(shell git describe --tags --always --dirty 2>/dev/null || echo unknown)
LDFLAGS     := -s -w -X main.version=$(VERSION)
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
FUZZTIME    ?= 5m

# Packages that link neither Prometheus nor the collector: the race detector is affordable there.
LIGHT = $(shell $(GO) list -f '{{.ImportPath}} {{join .Deps " "}}' ./... | \
	grep -v -e 'prometheus/prometheus/' -e 'go.opentelemetry.io/collector' | cut -d' ' -f1)

.PHONY: help build ui demo test test-deps test-ui test-go test-race test-browser test-collector bench soak fuzz lint vuln generate release clean

help: ## list the tasks
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

## ---- building ----------------------------------------------------------------------------------

web/node_modules/.package-lock.json: web/package.json web/package-lock.json
	cd web && npm ci --no-audit --no-fund --loglevel=error
	@touch $@

ui: web/node_modules/.package-lock.json ## build the page into internal/web/dist
	cd web && npm run --silent build

build: ui ## build bin/rollscope, page included
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/rollscope ./cmd/rollscope

release: ui ## build both release files: the small one, and the one with Kubernetes and DNS discovery
	$(GO) build -ldflags '$(LDFLAGS)' -o bin/rollscope ./cmd/rollscope
	$(GO) build -ldflags '$(LDFLAGS)' -tags discovery_full -o bin/rollscope-full ./cmd/rollscope
	@ls -l bin/

demo: build ## a simulated fleet, recorded and shown on http://127.0.0.1:9090
	./bin/rollscope demo

## ---- testing -----------------------------------------------------------------------------------

test-deps: ## install what the tests need and is missing
	./tools/test-deps.sh

test: test-deps test-ui test-go test-race test-browser ## everything: page, Go, race detector, real servers, browser

test-ui: web/node_modules/.package-lock.json
	cd web && npm run --silent test

# ROLLSCOPE_TEST_STRICT turns "this server is not installed" from a skip into a failure.
test-go: ui
	ROLLSCOPE_TEST_STRICT=1 $(GO) test -timeout 12m -json ./... | $(GO) run ./tools/testreport

# Tests of one goroutine over large or hostile input: the race detector makes them ten times slower and finds nothing.
ALONE = TestDecodeDamaged|TestSpill|TestBuildLarge|TestHostileCarriers|TestHostileSharing|TestSizeEqualsZlib|TestCutEverywhere|TestPython|TestTorchLoads|TestOverlay|TestOverlayStops

test-race:
	CGO_ENABLED=1 $(GO) test -race -skip '^($(ALONE))$$' -timeout 8m -json $(LIGHT) | $(GO) run ./tools/testreport

test-browser: build
	./web/e2e/run.sh ./bin/rollscope

test-collector: ## the recorder beside an OpenTelemetry Collector and its load generator (a module of its own)
	cd test/collector && ROLLSCOPE_TEST_STRICT=1 $(GO) test -timeout 20m -count=1 ./...

bench: build ## speed and size, each figure with its aim and its peer
	$(GO) run ./tools/bench ./bin/rollscope

soak: ## the kill tests, 20 rounds instead of 3, and a minute of forward passes at 5,000 a second
	ROLLSCOPE_TEST_STRICT=1 ROLLSCOPE_KILL_ROUNDS=20 $(GO) test -count=1 -timeout 60m -run Kill ./cmd/rollscope/ ./internal/metricstore/ ./internal/rolloutstore/ ./internal/dumps/ ./internal/eventstore/ ./internal/holdlog/ ./internal/app/
	ROLLSCOPE_TEST_STRICT=1 ROLLSCOPE_SOAK=60 $(GO) test -count=1 -timeout 20m -run 'Soak|ReceiverProcess' ./internal/fpmbus/

fuzz: ## every fuzz target for FUZZTIME (5m)
	@set -e; for p in $$(grep -rl --include='*_test.go' '^func Fuzz' . | grep -v node_modules | xargs -n1 dirname | sort -u); do \
	  for f in $$(grep -h '^func Fuzz' $$p/*_test.go | sed -E 's/func (Fuzz[A-Za-z0-9_]*).*/\1/'); do \
	    echo "== $$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p; done; done

lint: web/node_modules/.package-lock.json ## gofmt, vet, staticcheck, tsc
	@bad=$$(gofmt -l cmd internal test tools torchfile trace); if [ -n "$$bad" ]; then echo "not gofmt-ed:"; echo "$$bad"; exit 1; fi
	$(GO) vet ./...
	$(GO) run $(STATICCHECK) ./...
	cd web && npm run --silent check

vuln: ## known vulnerabilities in what is linked (exit 3: the database could not be read)
	@$(GO) run $(GOVULNCHECK) ./... > /tmp/rollscope-vuln.$$$$ 2>&1; rc=$$?; cat /tmp/rollscope-vuln.$$$$; \
	  if [ $$rc -ne 0 ] && ! grep -q 'Vulnerability #' /tmp/rollscope-vuln.$$$$; then rc=3; echo "could not be determined: the vulnerability database was not reached"; fi; \
	  rm -f /tmp/rollscope-vuln.$$$$; exit $$rc

generate: ## docs/metrics.md and the page's types, from the Go sources
	$(GO) run ./tools/gents
	$(GO) test ./internal/signal/ -run TestDocs -update

clean: ## remove what was built
	rm -rf bin internal/web/dist/* web/node_modules
	touch internal/web/dist/.keep
