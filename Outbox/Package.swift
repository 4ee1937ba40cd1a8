// swift-tools-version: 6.1

import PackageDescription

// A package of its own, so that nobody who has no messages that must leave needs SQLite.
let package = Package(
    name: "hhsocket-outbox",
    platforms: [.macOS(.v13), .iOS(.v16)],
    products: [
        .library(name: "HHSocketOutbox", targets: ["HHSocketOutbox"])
    ],
    dependencies: [
        // Named, because the folder of a clone may be called anything.
        .package(name: "hhsocket", path: ".."),
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    ],
    targets: [
        .target(
            name: "HHSocketOutbox",
            dependencies: [
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "HeapModule", package: "swift-collections"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // What the tests kill: it enqueues and sends until then.
        .executableTarget(
            name: "outbox-crash-child",
            dependencies: [
                "HHSocketOutbox",
                .product(name: "HHSocketRPC", package: "hhsocket"),
            ],
            path: "Tests/CrashChild"
        ),
        .testTarget(
            name: "HHSocketOutboxTests",
            dependencies: [
                "HHSocketOutbox",
                "outbox-crash-child",
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "HHSocketServer", package: "hhsocket"),
                .product(name: "HHSocketTesting", package: "hhsocket"),
                .product(name: "GRDB", package: "GRDB.swift"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)
