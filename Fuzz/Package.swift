// swift-tools-version: 6.3
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// A separate package, because it needs flags that a dependency may not have. Built and run by `make fuzz`.
//
// It compiles the sources of HHSocketLink, HHSocketFormats, HHSocket, HHSocketMessage, HHSocketProtobufC and
// HHSocketSTOMP once more, through symbolic links, as modules with counters at every edge, for the address sanitizer
// and with optimisation. The libraries below them are built as usual: this package shares their build folder.
let instrumented = ["-sanitize=address", "-sanitize-coverage=edge,inline-8bit-counters,pc-table"]
// Code that imports the module uses its public name.
let messageModule = ["-module-alias", "HHSocketMessage=InstrumentedHHSocketMessage"]
let linkModules = messageModule + ["-module-alias", "HHSocketLink=InstrumentedHHSocketLink"]
let modules = linkModules + ["-module-alias", "HHSocket=InstrumentedHHSocket"]

let package = Package(
    name: "hhsocket-fuzz",
    platforms: [.macOS(.v13)],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-nio-transport-services", from: "1.28.0"),
        .package(url: "https://github.com/apple/swift-atomics", from: "1.3.0"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
    ],
    targets: [
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
        .systemLibrary(
            name: "CProtobufC",
            pkgConfig: "libprotobuf-c",
            providers: [.apt(["libprotobuf-c-dev"]), .brew(["protobuf-c"])]
        ),
        .target(name: "CHHSocket", dependencies: ["CZlib"], cSettings: [.unsafeFlags(["-O2", "-fsanitize=address"])]),
        .target(name: "CNetlink"),
        .target(name: "HHSocketFoundation"),
        .target(name: "HHSocketSystem", dependencies: ["CHHSocket"]),
        .target(
            name: "InstrumentedHHSocketLink",
            dependencies: [
                "CHHSocket",
                "CZlib",
                "HHSocketFoundation",
                "HHSocketSystem",
                "InstrumentedHHSocketMessage",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ],
            // Assertions stay enabled.
            swiftSettings: [.unsafeFlags(["-O", "-assert-config", "Debug"] + messageModule + instrumented)]
        ),
        .target(
            name: "InstrumentedHHSocketFormats",
            dependencies: ["HHSocketFoundation", "InstrumentedHHSocketLink"],
            swiftSettings: [.unsafeFlags(["-O", "-assert-config", "Debug"] + linkModules + instrumented)]
        ),
        .target(
            name: "InstrumentedHHSocket",
            dependencies: [
                "HHSocketSystem",
                "InstrumentedHHSocketLink",
                "InstrumentedHHSocketMessage",
                .target(name: "CNetlink", condition: .when(platforms: [.linux, .android])),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(
                    name: "NIOTransportServices",
                    package: "swift-nio-transport-services",
                    condition: .when(platforms: [.macOS])
                ),
            ],
            swiftSettings: [.unsafeFlags(["-O", "-assert-config", "Debug"] + linkModules + instrumented)]
        ),
        .target(
            name: "InstrumentedHHSocketMessage",
            dependencies: [
                "HHSocketFoundation",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: [.unsafeFlags(["-O", "-assert-config", "Debug"] + messageModule + instrumented)]
        ),
        .target(
            name: "InstrumentedHHSocketProtobufC",
            dependencies: [
                "CProtobufC",
                "HHSocketFoundation",
                "HHSocketSystem",
                "InstrumentedHHSocketMessage",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: [.unsafeFlags(["-O", "-assert-config", "Debug"] + messageModule + instrumented)]
        ),
        .target(
            name: "InstrumentedHHSocketSTOMP",
            dependencies: [
                "InstrumentedHHSocket",
                "InstrumentedHHSocketLink",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: [.unsafeFlags(["-O", "-assert-config", "Debug"] + modules + instrumented)]
        ),
        // The code that `make generate` generates from Protos.
        .target(
            name: "FuzzedMessages",
            dependencies: ["InstrumentedHHSocketMessage"],
            swiftSettings: [.unsafeFlags(["-O"] + messageModule + instrumented)]
        ),
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                "FuzzedMessages",
                "InstrumentedHHSocketFormats",
                "InstrumentedHHSocketLink",
                "InstrumentedHHSocketMessage",
                "InstrumentedHHSocketProtobufC",
                "InstrumentedHHSocketSTOMP",
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: [.unsafeFlags(["-O", "-sanitize=fuzzer,address", "-parse-as-library"])],
            linkerSettings: [
                .unsafeFlags(["-sanitize=fuzzer,address"]),
                // The usual linker, gold, gives up on the debug information of optimised code.
                // Without the collection of sections libFuzzer's own main, which is not used, would be missing its
                // test.
                .unsafeFlags(
                    ["-use-ld=lld", "-Xlinker", "--defsym=main=Fuzz_main", "-Xlinker", "--gc-sections"],
                    .when(platforms: [.linux])
                ),
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)

// As in the package whose sources these are: they rely on imports that are internal by default.
for target in package.targets where target.name.contains("HHSocket") && target.name != "CHHSocket" {
    target.swiftSettings =
        (target.swiftSettings ?? []) + [
            .enableUpcomingFeature("ExistentialAny"),
            .enableUpcomingFeature("InternalImportsByDefault"),
        ]
}
