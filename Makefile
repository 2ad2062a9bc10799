# Thin wrappers: what they call works without make too.
.DEFAULT_GOAL := help
.PHONY: help build test race fuzz lint bench soak interop verify

VERSION := $(shell git describe --always --dirty --tags 2>/dev/null || echo unknown)
KILLS ?= 200
WHAT ?= kills
FOR ?= 5m
ENGINE ?= sqlite
DAEMONS ?= 1
CUTS ?= 10000
PROVE := go test -v -count 1 -timeout 0

help: ## print the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

build: ## write bin/soma
	CGO_ENABLED=0 go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/soma ./cmd/soma

test: ## all checks, as CI runs them
	./test

race: ## the Go tests with the race detector
	go test -race ./...

fuzz: FOR = 10s
fuzz: ## each fuzz target for FOR (10s)
	@set -e; grep -rlE '^func Fuzz' --include='*_test.go' . | while read -r file; do \
		for name in $$(sed -nE 's/^func (Fuzz[A-Za-z0-9_]*)\(.*/\1/p' "$$file"); do \
			echo "== $$file $$name"; go test -run '^$$' -fuzz "^$$name\$$" -fuzztime $(FOR) "./$$(dirname "$$file")"; \
		done; \
	done

lint: ## vet and staticcheck
	go vet ./... && go tool -modfile=tools/go.mod staticcheck ./...

bench: ## the figures, one JSON line each
	@go run ./bench

soak: ## random kills: make soak KILLS=200, or ENGINE=postgres DAEMONS=3 FOR=5m; or WHAT=link CUTS=10000; or WHAT=size, model, clients, power FOR=5m
	@case "$(WHAT)" in \
	model) exec $(PROVE) ./tests/durable -run '^TestModel' -for $(FOR) ;; \
	link) exec $(PROVE) ./tests/link -cuts $(CUTS) -kills $(KILLS) ;; \
	clients) exec $(PROVE) ./tests/durable -run '^TestLinearizable$$' -for $(FOR) ;; \
	power) exec $(PROVE) ./tests/durable/power -run '^TestPowerLoss$$' -for $(FOR) ;; \
	*) exec go run ./tests/soak -what $(WHAT) -kills $(KILLS) -for $(FOR) -engine $(ENGINE) -daemons $(DAEMONS) ;; \
	esac

interop: ## soma mcp with the official TypeScript clients of both eras (Node 18 or later)
	tests/interop/run

verify: ## every row marked done in docs/spec names a test that carries it
	go run ./internal/specrows verify
