// swift-tools-version: 6.3
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// A package of its own, so that users of HHSocket never resolve what only the benchmarks need.
let package = Package(
    name: "hhsocket-benchmarks",
    platforms: [.macOS(.v13)],
    dependencies: [
        // Named, because the folder of a clone may be called anything.
        // With the traits of the Makefile, so that both share what either has built.
        .package(name: "hhsocket", path: "..", traits: ["Development"]),
        .package(url: "https://github.com/ordo-one/benchmark", from: "1.38.1", traits: []),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
    ],
    targets: [
        // The bar for our own checksum.
        .systemLibrary(
            name: "CDeflate",
            pkgConfig: "libdeflate",
            providers: [.apt(["libdeflate-dev"]), .brew(["libdeflate"])]
        ),
        // What ours are measured against, as swift-protobuf's generator makes them.
        .target(
            name: "ReferenceMessages",
            dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
            path: "Benchmarks/ReferenceMessages"
        ),
        .executableTarget(
            name: "HHSocketBenchmarks",
            dependencies: [
                "CDeflate",
                .product(name: "HHSocket", package: "hhsocket"),
                .product(name: "HHSocketMessage", package: "hhsocket"),
                .product(name: "HHSocketRPC", package: "hhsocket"),
                "ReferenceMessages",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
                .product(name: "Benchmark", package: "benchmark"),
            ],
            path: "Benchmarks/HHSocketBenchmarks",
            plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")]
        ),
        // What Scripts/bench-stomp compares with the clients of others.
        .executableTarget(
            name: "STOMPBenchmark",
            dependencies: [
                .product(name: "HHSocketSTOMP", package: "hhsocket"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            path: "Benchmarks/STOMPBenchmark"
        ),
    ],
    swiftLanguageModes: [.v6]
)
