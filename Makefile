# `make` or `make help` lists the targets.

PREFIX ?= /usr/local
DESTDIR ?=
# More options for every swift build and test, e.g. SWIFTFLAGS="-Xswiftc -warnings-as-errors".
SWIFTFLAGS ?=

# SwiftPM must not cache the build plan: with a cached plan, a build of the tests after one of a product would compile
# the protoc that swift-protobuf contains, which takes ten minutes. The compiler's index takes a tenth of the time, and
# nothing reads it; Scripts/test-sanitized has these two options, too. Debug information of C, which is BoringSSL's, would take an eighth
# of the time that its 406 files need. Fuzz/run, which shares the build folder, has all three.
common_options = --disable-build-manifest-caching --disable-index-store -Xcc -g0 $(SWIFTFLAGS)
# One configuration for all targets, because other traits cause a full rebuild.
swift_options = --traits Development $(common_options)
# With BUILT=yes, targets use what `make build-tests` has built, and do not ask SwiftPM, which takes four seconds to find nothing to do.
BUILT ?=
# Builds the product that follows.
product = $(if $(BUILT),@true,@swift build $(swift_options) --quiet --product)
# What debug builds produce.
built = .build/debug
command = $(built)/hhsocket-cli
# The folder of release builds. With a separate folder, release and debug builds need not wait for each other.
RELEASE_FOLDER ?= .build
# Benchmarks is a separate package whose builds share that folder. Its manifest enables the same traits.
benchmarks_options = --package-path Benchmarks --scratch-path "$(RELEASE_FOLDER)" $(common_options)

# Conformance is a separate package, too, with the traits of the Makefile.
conformance_options = --package-path Conformance --scratch-path .build $(common_options)

# The command, built for release, which the measurements run.
command_for_release = $(RELEASE_FOLDER)/release/hhsocket-cli
# For make bench-compare and make api-diff: the commit to compare with; for the former, the minimum ratio to its speed, and more options.
BASE ?= HEAD
MIN ?= 0.98
COMPARE ?=
# The libraries whose API make api-diff compares.
library_products = HHSocket HHSocketApp HHSocketFormats HHSocketMessage HHSocketOperations HHSocketOutbox HHSocketRPC \
	HHSocketSTOMP HHSocketServer HHSocketServerTransfers HHSocketSwiftProtobuf HHSocketTesting HHSocketTransfers
# More options for Benchmarks/Scripts/counts: --write writes the budgets.
COUNTS ?=
# More options for Benchmarks/Scripts/link-report, e.g. LINK="--rounds 1".
LINK ?=
# More options for Benchmarks/Scripts/transfer-report, e.g. TRANSFERS="--only speed --rounds 3".
TRANSFERS ?=
# More options for Benchmarks/Scripts/bench-websocket, e.g. WEBSOCKET="--only calls".
WEBSOCKET ?=
# More options for Benchmarks/Scripts/bench-streams, e.g. STREAMS="--only limit".
STREAMS ?=
# More options for Benchmarks/Scripts/bench-stomp, e.g. STOMP="--rounds 3".
STOMP ?=
# More options for Benchmarks/Scripts/bench-report, e.g. REPORT="--rounds 1 --seconds 0.5".
REPORT ?=

# More options for Scripts/docs, e.g. DOCS="--repository https://example.com/hhsocket/blob/main --base-path hhsocket".
DOCS ?=
# The port of make docs-serve.
PORT ?= 8080
# The libraries whose builds contain all libraries that have documentation.
documented = HHSocketApp HHSocketOutbox HHSocketProtobufC HHSocketServer HHSocketSwiftProtobuf HHSocketTesting

# For make conformance: all for every case.
CASES ?= brief

# For make conformance-protobuf: a conformance_test_runner of protobuf, and RECORD=--record to record its cases.
RUNNER ?=
RECORD ?=

# The time that make fuzz runs after the build.
FUZZ_SECONDS ?= 60

# Python is optional for other targets, so `dependencies` does not fail without it.
needs_python = @command -v python3 >/dev/null 2>&1 || \
	{ echo 'make $@ needs Python 3: python3 is not in PATH.' >&2; exit 1; }

FORMATTED = Package.swift Sources $(filter-out Tests/ReferenceMessages/,$(wildcard Tests/*/)) Plugins Examples/App/Package.swift Examples/App/Sources Examples/App/Tests Tools/apple-stubs Examples/Chat Examples/Demo Examples/Feed Examples/Files Examples/Greeter Examples/Notices Examples/STOMP Examples/Weather Benchmarks/Package.swift Benchmarks/Benchmarks/HHSocketBenchmarks Fuzz/Package.swift Fuzz/Sources Conformance/Package.swift Conformance/Sources/ConformanceProgram Outbox/Sources Outbox/Tests

.DEFAULT_GOAL := help
.PHONY: help demo test try nightly test-stalled test-histories peers build-benchmarks conformance conformance-protobuf interop test-threads test-addresses test-delayed test-checked attack-report test-activemq test-fast build-tests slowest-tests test-network test-app check-apple api-diff license-headers test-feed test-readme test-guide test-first-server test-tutorials test-stomp stomp-broker test-browser test-dissector test-deployment soak build-command build-release bench bench-once bench-report bench-compare bench-websocket bench-streams bench-stomp link-report transfer-report counts test-tools build-fuzz fuzz generate descriptor-sets test-plugins install docs docs-serve lint format dependencies clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-20s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))
	@echo 'The steps of .ci/steps are targets, too, and so are the other reports of Benchmarks/Scripts.'

demo: dependencies ## build and run a demonstration: two servers and a client over real TCP
	@$(if $(BUILT),,echo 'Building demo-example; the first time takes some minutes.' >&2)
	$(product) demo-example
	@$(built)/demo-example

test: build-tests ## build everything and run the tests: most of them in parallel, then those that need the machine to themselves
	@Scripts/test all

# Build everything, and run the tests that need no socket, process or clock.
test-fast: build-tests
	@Scripts/test fast

build-tests: programs = python3 openssl protoc:protobuf-compiler sqlite3.h:libsqlite3-dev
# The product is named because --build-tests would build the generator a second time, for the plugins, on which no test depends.
# Build everything that make test runs, without running it.
build-tests: dependencies
	$(needs_python)
	$(if $(BUILT),@true,swift build --product hhsocketPackageTests $(swift_options))

try: ## build what SUITES="NAME..." need, and run them: the quickest way from a changed line to its tests
	@Scripts/try $(SUITES) -- $(swift_options)

slowest-tests: ## print the slowest thirty tests of the last run
	@Scripts/slowest-tests

# Test lost links and changed addresses between two network namespaces; without root, say that nothing was tested.
test-network: dependencies
	sh Scripts/test-network $(swift_options)

# Build and run a package that uses the SwiftPM plugins.
test-plugins: programs = protoc:protobuf-compiler
test-plugins: dependencies
	sh Tests/PluginFixture/test $(common_options)

# Test STOMP against a separate ActiveMQ, which needs Java and Debian's package activemq, or ACTIVEMQ_HOME.
test-activemq: build-tests
	$(if $(ACTIVEMQ_HOME),,@$(MAKE) --silent dependencies programs='java:default-jre-headless activemq')
	python3 Tests/OtherPrograms/brokers.py activemq -- Scripts/test all ActiveMQTests

# Build Examples/Feed and compare its output with the expected one.
test-feed: programs = sqlite3.h:libsqlite3-dev
test-feed: dependencies
	$(product) feed-example
	@sh Examples/Feed/test $(built)/feed-example

# Run the session of README.md line by line, and compare what its program prints.
test-readme: dependencies
	$(needs_python)
	@Tests/Pages/session README.md 'Try it' 'Fifteen lines' -- $(common_options)

# Follow the guide of Docs/Codegen.md line by line, from an empty folder to a typed call.
test-guide: programs = python3 protoc:protobuf-compiler
test-guide: dependencies
	@Tests/Pages/session Docs/Codegen.md 'From an empty folder to a call' -- $(common_options)

# Make the server of FirstServer.md from an empty folder, and run the commands of the page.
test-first-server: programs = python3 curl openssl haproxy
test-first-server: dependencies
	$(needs_python)
	$(product) hhsocket-cli
	@Tests/Pages/first-server $(command) $(common_options)

# Compile every step of the tutorials, and run their programs.
test-tutorials: programs = python3 protoc:protobuf-compiler
test-tutorials: build-tests
	@Tests/Pages/tutorials $(built) $(common_options)

# Build Examples/App, and run the tests of its model.
test-app: dependencies
	sh Examples/App/test $(common_options)

check-apple: build-tests ## compile the sources with the branches of Apple's platforms, against stubs of Apple's modules, without linking
	$(needs_python)
	Tools/apple-stubs/check

# Build Examples/STOMP; with rabbitmq-server, run it against one and compare its output with the expected one.
test-stomp: dependencies
	$(product) stomp-example
	@sh Examples/STOMP/test $(built)/stomp-example

stomp-broker: programs = python3 rabbitmq-server
stomp-broker: dependencies ## run a separate RabbitMQ on stomp://127.0.0.1:61613 and ws://127.0.0.1:15674/ws, until control-C
	$(needs_python)
	@python3 -B Tests/OtherPrograms/brokers.py rabbitmq stomp=61613 webSocket=15674 -- \
		sh -c 'echo "stomp://127.0.0.1:61613 and ws://127.0.0.1:15674/ws are ready; control-C ends them"; exec sleep 2147483647'

# Read recorded captures with Tools/wireshark/hhsocket.lua, and compare with the expected text.
test-dissector: programs = tshark
test-dissector: dependencies
	Tools/wireshark/test

# Check the files of Examples/Deployment, as far as their checkers are installed, and run their servers.
test-deployment: programs = curl promtool:prometheus
test-deployment: dependencies
	$(product) hhsocket-cli
	@Examples/Deployment/test $(command)

# Test the JavaScript client of Examples/browser in node, if it is installed; with BROWSER=1 its page in Chromium too.
test-browser: programs = $(if $(BROWSER),node:nodejs chromium)
test-browser: dependencies
	$(if $(BROWSER),$(product) chat-example)
	$(if $(BROWSER),$(product) hhsocket-cli)
	@sh Examples/browser/test $(built)

conformance: dependencies ## run Autobahn's WebSocket cases (PyPI's kosoku) against the command: the brief selection, or CASES=all
	$(needs_python)
	$(product) hhsocket-cli
	@Conformance/WebSocket/conformance $(if $(filter all,$(CASES)),,--brief) --compress also --program $(command)

# Run protobuf's conformance cases against the messages: the recorded ones, or those of RUNNER, protobuf's runner.
conformance-protobuf: dependencies
	$(needs_python)
	$(product) protoc-gen-hhsocket
	@# 69: there is no protoc that knows editions, which it has said.
	@status=0; Conformance/generate $(built)/protoc-gen-hhsocket || status=$$?; [ $$status -ne 69 ] || exit 0; [ $$status -eq 0 ] && \
		swift build $(conformance_options) --quiet --product ConformanceProgram && \
		Conformance/run --program $(built)/ConformanceProgram $(if $(RUNNER),--runner "$(RUNNER)") $(RECORD)

# wscat stands for its package, node-ws, which contains the needed module.
interop: programs = wscat:node-ws libwebsockets-test-server
interop: dependencies ## exchange WebSocket messages with other implementations, in both directions
	$(needs_python)
	$(product) hhsocket-cli
	@Conformance/WebSocket/interop --program $(command)

# Suites that try random histories or inputs.
histories = RandomHistoryTests ClientModelTests CacheModelTests WebSocketLinkModelTests StreamModelTests CacheTableTests \
	TaskGroupOrderTests PageRecorderTests OutboxMachineTests CrashTests FrameSplittingTests PresetFrameTests FrameGarbageTests \
	SwiftProtobufComparisonTests EngineComparisonTests PythonComparisonTests HostileBytesTests MessageJSONTests JSONParserTests
# Run the randomised tests with ten times the repetitions, or EFFORT times.
test-histories: build-tests
	HHSOCKET_EFFORT=$(or $(EFFORT),10) Scripts/test all $(histories) --jobs 2

nightly: ## run the checks of every night, in an hour and a quarter, with a table at the end; .ci/steps says what they omit; FROM=STEP resumes
	@Scripts/checks nightly $(if $(FROM),--from $(FROM))

soak: build-tests ## run the randomised tests with fifty times the repetitions, hostile clients for ten minutes, a reconnect storm, ActiveMQ, the tests with stops and with delays, and all tests in release with every check of exclusive access
	HHSOCKET_PATIENCE=3000 $(MAKE) test-histories EFFORT=50
	HHSOCKET_PATIENCE=3000 HHSOCKET_EFFORT=50 HHSOCKET_HOSTILE_SECONDS=600 Scripts/test all RollingRestartTests AbandonedCallsTests HostileCrowdTests \
		DefaultConfigurationAttackTests AttackTests
	$(product) hhsocket-cli
	Benchmarks/Scripts/reconnect-storm $(command)
	HHSOCKET_EFFORT=50 $(MAKE) test-browser BROWSER=1
	$(MAKE) test-activemq
	$(MAKE) test-stalled
	$(MAKE) test-delayed
	$(MAKE) test-checked

test-stalled: build-tests ## run the tests while their processes are stopped for 2 s again and again, as on a busy machine; SUITES="NAME..." for some
	@Scripts/test stalled $(SUITES)

# Run the tests with threads that are delayed at random where they yield, on Linux.
test-delayed: build-tests
	cc -O2 -shared -fPIC -o .build/delays.so Tools/delays/delays.c -ldl
	DELAY_ODDS=30 Scripts/test parallel --preload "$(CURDIR)/.build/delays.so" --results .build/delayed-results

build_checked = swift build -c release --product hhsocketPackageTests $(swift_options) --scratch-path .build-checked \
	-Xswiftc -enable-testing -Xswiftc -enforce-exclusivity=checked -Xswiftc -DCHECKED_EXCLUSIVITY
# Build the tests for release with every check of exclusive access, and run them.
test-checked: dependencies
	$(build_checked)
	SWIFT_TEST_BUNDLE=.build-checked/release/hhsocketPackageTests.xctest Scripts/test all --results .build-checked/test-results

# Measure the effects of attacks on a server, built for release, and write the figures into the documentation.
attack-report: dependencies
	$(build_checked)
	HHSOCKET_HOSTILE_SECONDS=60 SWIFT_TEST_BUNDLE=.build-checked/release/hhsocketPackageTests.xctest \
		Scripts/test all DefaultConfigurationAttackTests HostileCrowdTests --results .build-checked/attack-results
	Benchmarks/Scripts/attack-report --update .build-checked/attack-results/named/*.log

# Build the tests for the thread sanitizer and run them.
test-threads: programs = python3 openssl protoc:protobuf-compiler
test-threads: dependencies
	Scripts/test-sanitized thread

# Build the tests for the address sanitizer and run them, with a leak check.
test-addresses: programs = python3 openssl protoc:protobuf-compiler
test-addresses: dependencies
	Scripts/test-sanitized address

# Build the command for release.
build-command: dependencies
	swift build -c release $(benchmarks_options) --product hhsocket-cli

# Check that the benchmarks compile, without optimisation.
build-benchmarks: programs = libdeflate.h:libdeflate-dev
build-benchmarks: dependencies
	swift build --package-path Benchmarks --scratch-path .build $(common_options)

# Build the command and the benchmarks for release, without running them.
build-release: programs = libdeflate.h:libdeflate-dev
build-release: build-command
	swift build -c release $(benchmarks_options) --product HHSocketBenchmarks
	swift build -c release $(benchmarks_options) --product STOMPBenchmark

bench: programs = libdeflate.h:libdeflate-dev
bench: dependencies ## measure the framework's parts, each separately
	swift package $(benchmarks_options) benchmark --no-progress

# Run each benchmark for some milliseconds, to check that it works.
bench-once: build-release
	@log=$$(BENCH_QUICK=1 "$$(swift build -c release $(benchmarks_options) --show-bin-path)/HHSocketBenchmarks" 2>&1) && \
		printf '%s\n' "$$log" | grep 'Debug results for' && \
		printf '%s\n' "$$log" | grep -q 'Debug results for every benchmark has run' || \
		{ printf '%s\n' "$$log" | tail -n 20; exit 1; }

bench-report: programs = python3
bench-report: $(command_for_release) ## measure calls, and write Docs/Performance and the table of its page; PEERS=FILE adds measurements of other frameworks
	$(needs_python)
	Benchmarks/Scripts/bench-report --program "$(command_for_release)" $(REPORT)

bench-compare: programs = python3 libdeflate.h:libdeflate-dev
bench-compare: $(command_for_release) ## compare the CPU time of a call with that of the commit BASE; fails below MIN (0.98) of its speed (Linux)
	$(needs_python)
	Benchmarks/Scripts/bench-compare --base "$(BASE)" --minimum $(MIN) --program "$(command_for_release)" $(COMPARE)

# Compare echo over WebSocket with libwebsockets and websocketpp, and calls with those over TCP (Linux).
bench-websocket: programs = python3 libwebsockets.h:libwebsockets-dev websocketpp/server.hpp:libwebsocketpp-dev asio.hpp:libasio-dev
bench-websocket: $(command_for_release)
	$(needs_python)
	Benchmarks/Scripts/bench-websocket --program "$(command_for_release)" $(WEBSOCKET)

# Compare streams with a C program, gRPC C++ and grpc-swift 2 (Linux).
bench-streams: programs = python3 libdeflate.h:libdeflate-dev
bench-streams: $(command_for_release)
	$(needs_python)
	Benchmarks/Scripts/bench-streams --program "$(command_for_release)" $(STREAMS)

# Compare STOMP clients with one RabbitMQ: ours, stomp.py, stompjs, and those that STOMP="--client NAME=COMMAND" adds.
bench-stomp: programs = rabbitmq-server node:nodejs libdeflate.h:libdeflate-dev
bench-stomp: build-release
	$(needs_python)
	Benchmarks/Scripts/bench-stomp --client "hhsocket=$(RELEASE_FOLDER)/release/STOMPBenchmark" $(STOMP)

# Measure plain calls beside streams on a link of 100 Mbit/s with a short queue (Linux, root).
link-report: programs = python3 libdeflate.h:libdeflate-dev
link-report: $(command_for_release)
	$(needs_python)
	Benchmarks/Scripts/link-report $(LINK) "$(command_for_release)"

# Measure transfers over a link that breaks, and beside curl and nginx (Linux).
transfer-report: programs = python3 nginx curl openssl
transfer-report: $(command_for_release)
	$(needs_python)
	Benchmarks/Scripts/transfer-report $(TRANSFERS) "$(command_for_release)"

counts: programs = python3
counts: $(command_for_release) ## count a call's requests to Swift's runtime and to the system, and fail if a budget is exceeded (Linux)
	$(needs_python)
	Benchmarks/Scripts/counts --program "$(command_for_release)" $(COUNTS)

api-diff: dependencies ## compare the public API with that of the commit BASE; fails if something that compiled before no longer compiles
	swift package $(swift_options) diagnose-api-breaking-changes "$(BASE)" \
		$(foreach product,$(library_products),--products $(product))

# Test the computations of the scripts.
test-tools:
	Scripts/checks --self-test
	Scripts/test --self-test
	Benchmarks/Scripts/bench-report --self-test
	Benchmarks/Scripts/bench-report --check
	Benchmarks/Scripts/bench-compare --self-test
	Benchmarks/Scripts/counts --self-test
	Benchmarks/Scripts/bench-websocket --self-test
	Benchmarks/Scripts/bench-streams --self-test
	Benchmarks/Scripts/bench-stomp --self-test
	Benchmarks/Scripts/attack-report --self-test
	Benchmarks/Scripts/link-report --self-test
	Benchmarks/Scripts/transfer-report --self-test
	Scripts/shape --self-test
	Scripts/lint-prose --self-test
	Scripts/docs --self-test
	Docs/pictures --check
	Tools/apple-stubs/check --self-test
	Scripts/license-headers --self-test
	Tests/Pages/session --self-test

# Build everything that make fuzz runs, without running it.
build-fuzz: dependencies
	sh Fuzz/run build

fuzz: dependencies ## run the decoders on inputs of libFuzzer, for FUZZ_SECONDS (60)
	sh Fuzz/run $(FUZZ_SECONDS)

generate: programs = protoc:protobuf-compiler
generate: dependencies ## regenerate the generated code that is committed, after a change to a .proto or the generator
	$(product) protoc-gen-hhsocket
	Protos/generated-code $(CHECK) $(built)/protoc-gen-hhsocket

# Regenerate the descriptor sets that the generator's tests read, after a change to Tests/CodegenTests/Protos.
descriptor-sets:
	sh Tests/CodegenTests/Protos/descriptor-sets

# Always built by SwiftPM, which knows whether it is up to date.
.PHONY: $(command_for_release)
$(command_for_release): dependencies
	swift build -c release $(swift_options) --scratch-path "$(RELEASE_FOLDER)" --product hhsocket-cli

# Statically linked with Swift's runtime, so that the command runs without a toolchain; calls are also faster.
static_options = $(swift_options) -c release --static-swift-stdlib --scratch-path .build-static

install: dependencies ## install the command hhsocket into PREFIX/bin (PREFIX is /usr/local)
	swift build $(static_options) --product hhsocket-cli
	install -d "$(DESTDIR)$(PREFIX)/bin"
	install -m 755 "$$(swift build $(static_options) --show-bin-path)/hhsocket-cli" "$(DESTDIR)$(PREFIX)/bin/hhsocket"

docs: programs = python3 sqlite3.h:libsqlite3-dev
docs: dependencies ## build the documentation site in .build-docs/site, and check its links
	$(needs_python)
	$(if $(BUILT),,@for library in $(documented); do swift build $(swift_options) --quiet --target $$library || exit 1; done)
	@Scripts/docs --modules $(built) $(DOCS)

docs-serve: docs ## serve the documentation site at http://127.0.0.1:8080, or another PORT, until control-C
	@echo 'http://127.0.0.1:$(PORT)/; control-C ends it'
	@python3 -m http.server --bind 127.0.0.1 --directory .build-docs/site $(PORT)

lint: ## check the format of the sources, their shape, the prose of their comments, and the licence headers
	Scripts/test flakes
	Scripts/lint-prose
	Scripts/license-headers --check
	Scripts/shape --check
	swift format lint --strict --parallel --recursive $(FORMATTED)

format: ## format the sources
	swift format --in-place --parallel --recursive $(FORMATTED)

# Where these cannot be installed, the tests that use them say so and are skipped.
# Install the programs that the framework is tested with, and Python packages whose results are compared.
peers: programs = haproxy nginx tinyproxy danted:dante-server nft:nftables ip:iproute2 rabbitmq-server
peers: dependencies
	@[ -f /usr/lib/nginx/modules/ngx_stream_module.so ] || sh Scripts/install-dependencies ngx_stream_module:libnginx-mod-stream
	@python3 -c 'import ensurepip' 2>/dev/null || sh Scripts/install-dependencies ensurepip:python3-venv
	@Tests/OtherPrograms/python-packages .build-python Tests/OtherPrograms/requirements.txt

dependencies: ## install the system libraries that are missing
	@sh Scripts/install-dependencies $(programs)

# Add the licence header to each source file.
license-headers:
	Scripts/license-headers


clean: ## remove everything built
	rm -rf .build .build-*
