# What a contributor runs. Everything here needs Go 1.26, make and a POSIX shell, and installs nothing: "make lint"
# lets Go fetch the two tools pinned below through its module proxy, into Go's own cache.

GO ?= go
# Packages that test, bench and fuzz look at.
PKG ?= ./...
# Longest run of one package's tests.
TEST_TIMEOUT ?= 10m
# More flags for go test, such as -run or -v.
TESTFLAGS ?=
# Benchmarks to run, how long each, and how often (10 for benchstat).
BENCH ?= .
BENCHTIME ?= 1s
COUNT ?= 1
# Fuzz targets to run, and how long each.
FUZZ ?= ^Fuzz
FUZZTIME ?= 20s

# Outside go.mod, so that nobody who imports the library sees them.
STATICCHECK := honnef.co/go/tools/cmd/staticcheck@v0.8.2
GOVULNCHECK := golang.org/x/vuln/cmd/govulncheck@v1.9.0
# Beyond the defaults: package comments (ST1000) and the form of doc comments (ST1020-ST1022).
STATICCHECKS := inherit,ST1000,ST1020,ST1021,ST1022

.DEFAULT_GOAL := help
.PHONY: help test lint lint-format lint-vet lint-staticcheck lint-imports lint-files lint-vulnerabilities bench fuzz

help: ## Print this list.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

# The race detector needs cgo and a C compiler that works: the probe builds the one package that needs both. Where
# it fails cgo is off too, for a compiler without its headers would break every package that imports net.
# HEADGATE_REQUIRE_SERVERS=1 turns all that is left out for want of a program into a failure, this too.
test: ## Run every test, with the race detector where there is a C compiler.
	@race=-race; \
	if ! why=$$($(GO) build -race runtime/cgo 2>&1); then \
		race=; \
		cc=$$($(GO) env CC); \
		if command -v "$${cc%% *}" >/dev/null; then \
			why="the race detector does not build here ($$(printf '%s' "$$why" | tail -n 1))"; \
		else \
			why="C compiler not found ($${cc%% *})"; \
		fi; \
		if [ "$$HEADGATE_REQUIRE_SERVERS" = 1 ]; then \
			echo "test: $$why, and HEADGATE_REQUIRE_SERVERS=1 requires -race" >&2; \
			exit 1; \
		fi; \
		echo "test: $$why: running without -race"; \
		export CGO_ENABLED=0; \
	fi; \
	$(GO) run ./internal/tools/racetest $(GO) test $$race -shuffle=on -timeout $(TEST_TIMEOUT) $(TESTFLAGS) -- $(PKG)

lint: ## Check form, common mistakes, import rules and known vulnerabilities.
lint: lint-format lint-vet lint-staticcheck lint-imports lint-files lint-vulnerabilities

lint-format:
	@files=$$("$$($(GO) env GOROOT)/bin/gofmt" -l .) || exit 1; \
	if [ -n "$$files" ]; then \
		printf 'gofmt: not formatted:\n%s\n' "$$files" >&2; \
		exit 1; \
	fi; \
	echo "gofmt: every file is formatted"

lint-vet:
	@$(GO) vet ./... && echo "go vet: no finding"

lint-staticcheck:
	@$(GO) run $(STATICCHECK) -checks $(STATICCHECKS) ./... && echo "staticcheck: no finding"

lint-imports:
	@$(GO) run ./internal/tools/importcheck

lint-files:
	@$(GO) run ./internal/tools/filecheck

lint-vulnerabilities:
	@$(GO) run ./internal/tools/vulncheck -tool $(GOVULNCHECK)

# discover sets the shell variable found to "package name" pairs, one for each benchmark or fuzz target whose name
# matches a pattern: go test -list prints the names of a package before the line that closes it.
discover = list=$$($(GO) test -list '$(1)' $(PKG)) || { printf '%s\n' "$$list"; exit 1; }; \
	found=$$(printf '%s\n' "$$list" | awk '/^$(2)/ { name[++n] = $$1 } \
		$$1 == "ok" { for (i = 1; i <= n; i++) print $$2, name[i]; n = 0 }')

bench: ## Run the benchmarks: BENCH=regexp BENCHTIME=1s COUNT=1 PKG=./...
	@$(call discover,^Benchmark,Benchmark); \
	packages=$$(printf '%s\n' "$$found" | cut -d ' ' -f 1 | uniq); \
	if [ -z "$$packages" ]; then \
		echo "bench: no benchmark in $(PKG)"; \
		exit 0; \
	fi; \
	$(GO) test -run '^$$' -bench '$(BENCH)' -benchmem -benchtime $(BENCHTIME) -count $(COUNT) -timeout 0 $$packages

fuzz: ## Run the fuzz targets one after another: FUZZ=regexp FUZZTIME=20s PKG=./...
	@$(call discover,$(FUZZ),Fuzz); \
	set -- $$found; \
	total=$$(($$# / 2)) n=0 failed=; \
	while [ $$# -gt 0 ]; do \
		n=$$((n + 1)); \
		echo "fuzz: $$n of $$total: $$2 in $$1, $(FUZZTIME)"; \
		$(GO) test -run '^$$' -fuzz "^$$2\$$" -fuzztime $(FUZZTIME) $$1 || failed="$$failed $$2"; \
		shift 2; \
	done; \
	if [ -n "$$failed" ]; then \
		echo "fuzz: failed:$$failed" >&2; \
		exit 1; \
	fi; \
	echo "fuzz: $$total targets, no failure"
