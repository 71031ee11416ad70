# What a developer runs by hand; README.md needs none of it.

.PHONY: all test race modules lint generate quickstart bench nightly

all: lint test

test:
	go test ./...

# The packages in which goroutines meet, under the race detector, which needs a C
# compiler. It takes six minutes on two quiet cores.
race:
	CGO_ENABLED=1 go test -race -timeout 50m ./abi ./codec/... ./host/... ./internal/snapmem ./sched ./admission/... ./hooks/...

# The modules inside this one: they are apart so that an importer of kubewasm does not see
# what they need, Kubernetes itself, other plugin systems, container runtimes. Their
# first build takes minutes.
modules:
	for mod in $$(git ls-files '*/go.mod'); do \
	  (cd "$$(dirname "$$mod")" && GOWORK=off go test -timeout 50m ./...) || exit 1; \
	done

# What .ci/run checks before the tests, as far as it needs nothing but Go.
lint:
	test -z "$$(gofmt -l .)" || (gofmt -l . && false)
	go vet ./...
	go run honnef.co/go/tools/cmd/staticcheck@v0.8.2 ./...

# Rebuilds what is built and checked in: the views of Kubernetes objects, from the
# .proto files in the modules that go.mod requires, and the small modules that
# tests load, from the WebAssembly text beside them (wat2wasm is in the package
# wabt).
WAT := $(shell find . -path '*/testdata/*.wat')
generate: $(WAT:.wat=.wasm)
	go generate ./...
	go generate ./guest/api

%.wasm: %.wat
	wat2wasm --debug-names $< -o $@

quickstart:
	go run ./examples/quickstart

bench:
	go run ./internal/bench

# What is too long for every change: rewritten guests against plain ones, on modules that
# nobody wrote (wasm-opt is in the package binaryen), and the fuzz targets.
nightly:
	go test ./internal/wasmbin -run TestDifferential -timeout 5h -v -differential 100000 -differential.seed $$(date +%Y%m%d000000)
	for package in $$(git grep -l 'func Fuzz' -- '*_test.go' ':!*/go.mod' | xargs -n 1 dirname | sort -u); do \
	  for target in $$(git grep -ho 'func Fuzz[A-Za-z0-9]*' -- $$package/'*_test.go' | cut -c6-); do \
	    (cd $$package && go test -run '^$$' -fuzz "^$$target$$" -fuzztime 2m .) || exit 1; \
	  done; \
	done
