# `make` or `make help` lists what there is to do.

PREFIX ?= /usr/local
DESTDIR ?=
# More options for every swift build and test, e.g. SWIFTFLAGS="--disable-default-traits".
SWIFTFLAGS ?=
# The same for make bench, whose package is another one.
BENCHFLAGS ?=

# SwiftPM remembers what a manifest came to by the manifest's text and the environment. Ours also looks for libdeflate and
# libprotobuf-c, so where they are goes into the environment: else SwiftPM would not notice that they came or went. Not
# `:=`, for this is looked up anew when the dependencies have been installed.
export HHSOCKET_HEADERS = $(shell for folder in /usr/include /usr/local/include /opt/homebrew/include /opt/local/include; \
	do ls $$folder/libdeflate.h $$folder/protobuf-c/protobuf-c.h 2>/dev/null; done)

# SwiftPM hands a package's traits to the compiler in the order in which a set has them, which without this is another one
# each time that it plans: with two traits half of all plans would compile everything of ours and swift-protobuf's anew.
export SWIFT_DETERMINISTIC_HASHING = 1

# For make allocations and make bench-report: an hhsocket-cli that is built for release already. Else they build it.
PROGRAM ?=
# More options for Scripts/bench-report, e.g. REPORT="--rounds 1 --seconds 0.5".
REPORT ?=

# How long make fuzz runs, after it has built.
FUZZ_SECONDS ?= 60

# Python may be done without elsewhere, so that its lack is not found out before.
needs_python = @command -v python3 >/dev/null 2>&1 || \
	{ echo 'make $@ needs Python 3: python3 is not in PATH.' >&2; exit 1; }

FORMATTED = Package.swift Sources $(filter-out Tests/ReferenceMessages,$(wildcard Tests/*)) Plugins Examples/Chat Examples/Feed/Package.swift Examples/Feed/Sources Benchmarks/Package.swift Benchmarks/Benchmarks/HHSocketBenchmarks Fuzz/Package.swift Fuzz/Sources Outbox/Package.swift Outbox/Sources Outbox/Tests

.DEFAULT_GOAL := help
.PHONY: help demo test build-tests test-network test-outbox test-feed soak bench bench-report allocations fuzz generate descriptor-sets test-plugins install lint format dependencies clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

# SwiftPM goes on with its last plan when neither the manifest nor the environment has changed, and a plan for one product has
# every target of the packages that we name among its own: with it a build of the tests would compile the protoc that
# swift-protobuf carries, which takes ten minutes. So these have an environment of their own.
demo generate install: export HHSOCKET_PLAN = product

demo: dependencies ## build the command line tool and let it show what the framework does, over real TCP
	@echo 'Building hhsocket-cli; the first time takes some minutes.' >&2
	@swift build $(SWIFTFLAGS) --quiet --product hhsocket-cli
	@"$$(swift build $(SWIFTFLAGS) --show-bin-path)/hhsocket-cli" demo

test: programs = python3 protoc:protobuf-compiler
# One test after the other: many of them wait for a connection or a process of their own, and on two cores all at once
# keep each other waiting.
test: dependencies ## build and run every test
	swift test --no-parallel $(SWIFTFLAGS)

build-tests: dependencies ## build what make test runs, and run nothing
	swift build --build-tests $(SWIFTFLAGS)

test-network: dependencies ## pull cables between two network namespaces; as root, or it says that it cannot
	sh Scripts/test-network $(SWIFTFLAGS)

test-plugins: programs = protoc:protobuf-compiler
test-plugins: dependencies ## build and run a package that uses the SwiftPM plugins
	sh Scripts/test-plugins $(SWIFTFLAGS)

test-outbox: programs = sqlite3.h:libsqlite3-dev
test-outbox: dependencies ## build and test the durable outbox, which is a package of its own and needs SQLite
	swift test --package-path Outbox --no-parallel $(SWIFTFLAGS)

test-feed: programs = sqlite3.h:libsqlite3-dev
test-feed: dependencies ## build Examples/Feed and have it do what it should
	sh Scripts/test-feed $(SWIFTFLAGS)

soak: dependencies ## run ten times as many random histories as the tests do, and hostile clients for ten minutes
	HHSOCKET_HISTORIES=100000 HHSOCKET_HOSTILE_SECONDS=600 swift test --no-parallel $(SWIFTFLAGS) \
		--filter "RandomHistoryTests|ClientModelTests|CacheModelTests|HostileCrowdTests"

bench: dependencies ## measure the framework's parts, each alone; with BENCH_QUICK=1 they are only run
	swift package --package-path Benchmarks $(BENCHFLAGS) benchmark --no-progress

bench-report: programs = python3
bench-report: dependencies ## measure calls and write Docs/Performance.md; PEERS=FILE puts those of others beside them
	$(needs_python)
	Scripts/bench-report $(if $(PROGRAM),--program "$(PROGRAM)") $(REPORT)

allocations: programs = python3
allocations: dependencies ## count what a call allocates, and fail if it is more than it may (Linux)
	$(needs_python)
	Scripts/allocations $(if $(PROGRAM),--program "$(PROGRAM)")

fuzz: dependencies ## feed the decoders with what libFuzzer makes up, for FUZZ_SECONDS (60)
	sh Fuzz/run $(FUZZ_SECONDS)

generate: programs = protoc:protobuf-compiler
generate: dependencies ## write the code that is generated and committed anew, after a .proto or the generator was changed
	swift build $(SWIFTFLAGS) --product protoc-gen-hhsocket
	Scripts/generated-code $(CHECK) "$$(swift build $(SWIFTFLAGS) --show-bin-path)/protoc-gen-hhsocket"

descriptor-sets: ## write anew what the generator's tests read, after Tests/CodegenTests/Protos was changed
	sh Scripts/descriptor-sets

install: dependencies ## install the command hhsocket into PREFIX/bin (PREFIX is /usr/local)
	swift build $(SWIFTFLAGS) -c release --product hhsocket-cli
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$$(swift build $(SWIFTFLAGS) -c release --show-bin-path)/hhsocket-cli" \
		"$(DESTDIR)$(PREFIX)/bin/hhsocket"

lint: ## check the format of the sources
	swift format lint --strict --parallel --recursive $(FORMATTED)

format: ## format the sources
	swift format --in-place --parallel --recursive $(FORMATTED)

dependencies: ## install the system libraries that are missing
	@sh Scripts/install-dependencies $(programs)

clean: ## remove everything built
	rm -rf .build .build-* Benchmarks/.build Fuzz/.build Outbox/.build
