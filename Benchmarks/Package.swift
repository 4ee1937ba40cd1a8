// swift-tools-version: 6.1

import PackageDescription

// A package of its own, so that users of HHSocket never resolve what only the benchmarks need.
let package = Package(
    name: "hhsocket-benchmarks",
    platforms: [.macOS(.v13)],
    dependencies: [
        // Named, because the folder of a clone may be called anything.
        .package(name: "hhsocket", path: ".."),
        .package(url: "https://github.com/ordo-one/benchmark", from: "1.38.1", traits: []),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    ],
    targets: [
        .executableTarget(
            name: "HHSocketBenchmarks",
            dependencies: [
                .product(name: "HHSocket", package: "hhsocket"),
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "Benchmark", package: "benchmark"),
            ],
            path: "Benchmarks/HHSocketBenchmarks",
            plugins: [.plugin(name: "BenchmarkPlugin", package: "benchmark")]
        )
    ],
    swiftLanguageModes: [.v6]
)
