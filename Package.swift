// swift-tools-version: 6.3
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// `Outbox` needs a C library, so it is off unless a user asks for it. `Development` turns on everything that is off. It
// exists because SwiftPM passes traits to the compiler in an order that changes from run to run, so that with two of
// them every other build would recompile the package.
let development = "Development"
let outbox: Set<String> = ["Outbox", development]
let outboxSettings: [SwiftSetting] = [.define("Outbox", .when(traits: [development]))]

let package = Package(
    name: "hhsocket",
    platforms: [.macOS(.v13), .iOS(.v16)],
    products: [
        // With what it exports, whose API `make api-diff` compares, too.
        .library(name: "HHSocket", targets: ["HHSocket", "HHSocketLink"]),
        .library(name: "HHSocketMessage", targets: ["HHSocketMessage"]),
        // Needs libprotobuf-c.
        .library(name: "HHSocketProtobufC", targets: ["HHSocketProtobufC"]),
        .library(name: "HHSocketSwiftProtobuf", targets: ["HHSocketSwiftProtobuf"]),
        .library(name: "HHSocketRPC", targets: ["HHSocketRPC"]),
        .library(name: "HHSocketSTOMP", targets: ["HHSocketSTOMP"]),
        .library(name: "HHSocketApp", targets: ["HHSocketApp"]),
        .library(name: "HHSocketServer", targets: ["HHSocketServer"]),
        // Files, at both ends. They export the values that both have.
        .library(name: "HHSocketTransfers", targets: ["HHSocketTransfers", "HHSocketTransferValues"]),
        .library(name: "HHSocketServerTransfers", targets: ["HHSocketServerTransfers", "HHSocketTransferValues"]),
        .library(name: "HHSocketOperations", targets: ["HHSocketOperations"]),
        .library(name: "HHSocketFormats", targets: ["HHSocketFormats"]),
        .library(name: "HHSocketTesting", targets: ["HHSocketTesting"]),
        // Empty without the trait `Outbox`.
        .library(name: "HHSocketOutbox", targets: ["HHSocketOutbox"]),
        // Not called `hhsocket`: beside the module HHSocket its build folder would clash on file systems that ignore
        // case. `make install` installs it under that name.
        .executable(name: "hhsocket-cli", targets: ["HHSocketCLI"]),
        .executable(name: "protoc-gen-hhsocket", targets: ["protoc-gen-hhsocket"]),
        .plugin(name: "HHSocketGenerator", targets: ["HHSocketGenerator"]),
        .plugin(name: "GenerateHHSocketCode", targets: ["GenerateHHSocketCode"]),
    ],
    traits: [
        .trait(name: "Outbox", description: "Build HHSocketOutbox, which needs SQLite."),
        .trait(
            name: development,
            description: "Everything above, for working on this package; the Makefile passes it."
        ),
    ],
    dependencies: [
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
        .package(url: "https://github.com/apple/swift-nio-ssl", from: "2.37.6"),
        .package(url: "https://github.com/apple/swift-nio-transport-services", from: "1.28.0"),
        .package(url: "https://github.com/apple/swift-atomics", from: "1.3.0"),
        .package(url: "https://github.com/apple/swift-collections", from: "1.6.0"),
        .package(url: "https://github.com/apple/swift-log", from: "1.16.2"),
        .package(url: "https://github.com/apple/swift-metrics", from: "2.13.0"),
        .package(url: "https://github.com/apple/swift-distributed-tracing", from: "1.7.3"),
        .package(url: "https://github.com/swift-server/swift-service-lifecycle", from: "2.13.0"),
        // Without its traits, which would be passed to the compiler in an order that changes, as ours would.
        .package(url: "https://github.com/apple/swift-protobuf", from: "1.39.0", traits: []),
        .package(url: "https://github.com/apple/swift-argument-parser", from: "1.8.2"),
        .package(url: "https://github.com/HdrHistogram/hdrhistogram-swift", from: "0.2.0"),
        // Resolved only if the trait `Outbox` is enabled.
        .package(url: "https://github.com/groue/GRDB.swift", from: "7.10.0"),
    ],
    targets: [
        // Ground: system libraries.
        .systemLibrary(name: "CZlib", pkgConfig: "zlib", providers: [.apt(["zlib1g-dev"]), .brew(["zlib"])]),
        .systemLibrary(
            name: "CProtobufC",
            pkgConfig: "libprotobuf-c",
            providers: [.apt(["libprotobuf-c-dev"]), .brew(["protobuf-c"])]
        ),

        // Ground too: checksums and hashes with the processor's instructions.
        .target(name: "CHHSocket", dependencies: ["CZlib"]),
        // The macros and variable-length structures of Linux headers, which Swift cannot import.
        .target(name: "CNetlink"),
        // The small Foundation where there is one, and the C library of each platform with its calls for files, each
        // under one name.
        .target(name: "HHSocketFoundation"),
        .target(name: "HHSocketSystem", dependencies: ["CHHSocket"]),

        // Floor 1: typed bodies.
        .target(
            name: "HHSocketMessage",
            dependencies: [
                "HHSocketFoundation",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Beside it: messages on libprotobuf-c, used only by the command line and packages that depend on it.
        .target(
            name: "HHSocketProtobufC",
            dependencies: [
                "CProtobufC",
                "HHSocketFoundation",
                "HHSocketMessage",
                "HHSocketSystem",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Floor 2: one established connection, for either end. HHSocket and HHSocketServer export it.
        .target(
            name: "HHSocketLink",
            dependencies: [
                "CHHSocket",
                "CZlib",
                "HHSocketFoundation",
                "HHSocketMessage",
                "HHSocketSystem",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ]
        ),
        // Floor 2a: what both ends of a transfer have, which their modules export.
        .target(
            name: "HHSocketTransferValues",
            dependencies: [
                "HHSocketFoundation",
                "HHSocketLink",
                "HHSocketMessage",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Floor 2a too: wire formats read from JSON.
        .target(name: "HHSocketFormats", dependencies: ["HHSocketFoundation", "HHSocketLink"]),
        // Floor 2b: a client's long-lived connection.
        .target(
            name: "HHSocket",
            dependencies: [
                "HHSocketLink",
                "HHSocketMessage",
                "HHSocketSystem",
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
                    condition: .when(platforms: [.macOS, .macCatalyst, .iOS, .tvOS, .watchOS, .visionOS])
                ),
            ]
        ),
        // Floor 3: calls over it.
        .target(
            name: "HHSocketRPC",
            dependencies: [
                "CHHSocket",
                "HHSocket",
                "HHSocketFoundation",
                "HHSocketLink",
                "HHSocketMessage",
                "HHSocketSystem",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "Tracing", package: "swift-distributed-tracing"),
            ]
        ),
        // Floor 3b: files over calls.
        .target(
            name: "HHSocketTransfers",
            dependencies: [
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketSystem",
                "HHSocketTransferValues",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]
        ),
        // Floor 3b too: messages through a broker.
        .target(
            name: "HHSocketSTOMP",
            dependencies: [
                "HHSocket",
                "HHSocketLink",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Beside them: swift-protobuf's messages as bodies.
        .target(
            name: "HHSocketSwiftProtobuf",
            dependencies: ["HHSocketMessage", .product(name: "SwiftProtobuf", package: "swift-protobuf")]
        ),
        // Floor 4: the application layer, for the screens of an app.
        .target(
            name: "HHSocketApp",
            dependencies: [
                "HHSocket",
                "HHSocketFoundation",
                "HHSocketMessage",
                "HHSocketRPC",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Floor 4 too: the other end.
        .target(
            name: "HHSocketServer",
            dependencies: [
                "CHHSocket",
                "HHSocketLink",
                "HHSocketMessage",
                "HHSocketSystem",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
                .product(name: "NIOTLS", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
                .product(name: "Tracing", package: "swift-distributed-tracing"),
            ]
        ),
        // Floor 4b: a store of files on a server.
        .target(
            name: "HHSocketServerTransfers",
            dependencies: [
                "HHSocketMessage",
                "HHSocketServer",
                "HHSocketSystem",
                "HHSocketTransferValues",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Floor 4b too: what an operator asks a server.
        .target(
            name: "HHSocketOperations",
            dependencies: [
                "HHSocketServer",
                "HHSocketSystem",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]
        ),
        // Floor 4 too: scripted peers for tests.
        .target(
            name: "HHSocketTesting",
            dependencies: [
                "HHSocket",
                "HHSocketMessage",
                "HHSocketSTOMP",
                "HHSocketSystem",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ]
        ),
        // Floor 4 as well: messages that survive the end of the app's process.
        .target(
            name: "HHSocketOutbox",
            dependencies: [
                "HHSocketFoundation",
                "HHSocketRPC",
                "HHSocketSystem",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "GRDB", package: "GRDB.swift", condition: .when(traits: outbox)),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            path: "Outbox/Sources/HHSocketOutbox",
            swiftSettings: outboxSettings
        ),
        // Floor 5: the demonstration, which two programs run.
        .target(
            name: "HHSocketDemo",
            dependencies: [
                "HHSocket",
                "HHSocketRPC",
                "HHSocketServer",
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        // Floor 6: the terminal.
        .executableTarget(
            name: "HHSocketCLI",
            dependencies: [
                "HHSocket",
                "HHSocketDemo",
                "HHSocketFormats",
                "HHSocketMessage",
                "HHSocketOperations",
                .target(name: "HHSocketProtobufC", condition: .when(platforms: [.linux, .macOS])),
                "HHSocketRPC",
                "HHSocketSTOMP",
                "HHSocketServer",
                "HHSocketServerTransfers",
                "HHSocketSystem",
                "HHSocketTransfers",
                .product(name: "Atomics", package: "swift-atomics"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ArgumentParser", package: "swift-argument-parser"),
                .product(name: "Histogram", package: "hdrhistogram-swift"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ]
        ),
        // Beside the floors: the protoc plugin, which needs none of them.
        .executableTarget(
            name: "protoc-gen-hhsocket",
            dependencies: [
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
                .product(name: "SwiftProtobufPluginLibrary", package: "swift-protobuf"),
            ],
            path: "Sources/Codegen"
        ),
        // The SwiftPM plugins that run protoc with it: at each build of a target, and by `swift package
        // generate-hhsocket-code`. Plugins cannot depend on libraries; what both need is in a folder that each has a
        // symbolic link to.
        .plugin(name: "HHSocketGenerator", capability: .buildTool(), dependencies: ["protoc-gen-hhsocket"]),
        .plugin(
            name: "GenerateHHSocketCode",
            capability: .command(
                intent: .custom(
                    verb: "generate-hhsocket-code",
                    description: "Generate Swift for HHSocket from .proto files, to be checked in."
                ),
                permissions: [.writeToPackageDirectory(reason: "To write the generated code.")]
            ),
            dependencies: ["protoc-gen-hhsocket"]
        ),

        // The demonstration without the command, which takes a sixth less time to build.
        .executableTarget(name: "demo-example", dependencies: ["HHSocketDemo"], path: "Examples/Demo"),
        // The smallest complete example, in two files.
        .executableTarget(
            name: "chat-example",
            dependencies: ["HHSocketMessage", "HHSocketRPC", "HHSocketServer"],
            path: "Examples/Chat"
        ),
        // An app in the terminal on everything that there is for apps, the outbox included.
        .executableTarget(
            name: "feed-example",
            dependencies: ["HHSocketApp", "HHSocketMessage", "HHSocketOutbox", "HHSocketRPC", "HHSocketServer"],
            path: "Examples/Feed",
            exclude: ["expected.txt", "session.txt", "test"],
            swiftSettings: outboxSettings
        ),
        // Files over links that break.
        .executableTarget(
            name: "files-example",
            dependencies: ["HHSocketRPC", "HHSocketServer", "HHSocketServerTransfers", "HHSocketTransfers"],
            path: "Examples/Files",
            exclude: ["expected.txt"]
        ),
        // The structures of a library in C as bodies.
        .target(name: "CWeather", dependencies: ["CProtobufC"], path: "Examples/Weather/CWeather"),
        .executableTarget(
            name: "weather-example",
            dependencies: ["CWeather", "HHSocketMessage", "HHSocketProtobufC", "HHSocketRPC", "HHSocketServer"],
            path: "Examples/Weather",
            exclude: ["CWeather", "expected.txt"],
            sources: ["main.swift"]
        ),
        // Messages through a broker.
        .executableTarget(
            name: "stomp-example",
            dependencies: ["HHSocketSTOMP"],
            path: "Examples/STOMP",
            exclude: ["expected.txt", "test"]
        ),

        // An app with the one import that calls require, whose linked modules a test reads.
        .executableTarget(name: "calls-app", dependencies: ["HHSocketRPC"], path: "Tests/CallsApp"),
        // Support code of several test targets.
        .target(
            name: "TestSupport",
            dependencies: [
                "HHSocket",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketSystem",
                "HHSocketTesting",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            path: "Tests/TestSupport"
        ),
        // Every construct that a .proto can have, generated by protoc-gen-hhsocket and by swift-protobuf.
        .target(
            name: "GeneratedSamples",
            dependencies: ["HHSocketMessage", "HHSocketRPC", "HHSocketServer"],
            path: "Tests/GeneratedSamples"
        ),
        // Names that mean something else in Swift. A separate module, since they hide the standard library's.
        .target(
            name: "HorrorSamples",
            dependencies: ["HHSocketMessage", "HHSocketRPC", "HHSocketServer"],
            path: "Tests/HorrorSamples"
        ),
        // A service of which only the messages are swift-protobuf's.
        .target(
            name: "SwiftProtobufSamples",
            dependencies: [
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketSwiftProtobuf",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            path: "Tests/SwiftProtobufSamples"
        ),
        .target(
            name: "ReferenceMessages",
            dependencies: [.product(name: "SwiftProtobuf", package: "swift-protobuf")],
            path: "Tests/ReferenceMessages"
        ),
        .testTarget(
            name: "HHSocketMessageTests",
            dependencies: [
                "HHSocketMessage",
                .target(name: "HHSocketProtobufC", condition: .when(platforms: [.linux, .macOS])),
                "GeneratedSamples",
                "HorrorSamples",
                "ReferenceMessages",
                "TestSupport",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["python_peer.py"]
        ),
        .testTarget(
            name: "HHSocketProtobufCTests",
            dependencies: ["CWeather", "HHSocketMessage", "HHSocketProtobufC", "TestSupport"]
        ),
        .testTarget(
            name: "HHSocketTests",
            dependencies: [
                "CHHSocket",
                "CZlib",
                "HHSocket",
                "HHSocketFormats",
                "HHSocketLink",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketSTOMP",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "InMemoryLogging", package: "swift-log"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "NIOSSL", package: "swift-nio-ssl"),
            ]
        ),
        .testTarget(
            name: "HHSocketTestingTests",
            dependencies: [
                "HHSocket",
                "HHSocketRPC",
                "HHSocketSTOMP",
                "HHSocketServer",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        .testTarget(
            name: "HHSocketRPCTests",
            dependencies: [
                "HHSocket",
                "HHSocketLink",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "DequeModule", package: "swift-collections"),
                .product(name: "InMemoryLogging", package: "swift-log"),
                .product(name: "InMemoryTracing", package: "swift-distributed-tracing"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]
        ),
        .testTarget(
            name: "HHSocketSTOMPTests",
            dependencies: [
                "HHSocket",
                "HHSocketSTOMP",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
            ]
        ),
        .testTarget(
            name: "HHSocketAppTests",
            dependencies: [
                "HHSocket",
                "HHSocketApp",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        .testTarget(
            name: "HHSocketServerTests",
            dependencies: [
                "HHSocket",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketServerTransfers",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "InMemoryLogging", package: "swift-log"),
                .product(name: "InMemoryTracing", package: "swift-distributed-tracing"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "MetricsTestKit", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOEmbedded", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ]
        ),
        .testTarget(
            name: "HHSocketTransfersTests",
            dependencies: [
                "HHSocket",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketSystem",
                "HHSocketTesting",
                "HHSocketTransferValues",
                "HHSocketTransfers",
                "TestSupport",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        .testTarget(
            name: "HHSocketServerTransfersTests",
            dependencies: [
                "HHSocket",
                "HHSocketMessage",
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketServerTransfers",
                "HHSocketSystem",
                "HHSocketTesting",
                "HHSocketTransferValues",
                "HHSocketTransfers",
                "TestSupport",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
            ]
        ),
        .testTarget(
            name: "HHSocketOperationsTests",
            dependencies: [
                "HHSocket",
                "HHSocketOperations",
                "HHSocketServer",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "Metrics", package: "swift-metrics"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ]
        ),
        // Client and server together.
        .testTarget(
            name: "EndToEndTests",
            dependencies: [
                "CWeather",
                "calls-app",
                "chat-example",
                "files-example",
                .target(name: "weather-example", condition: .when(platforms: [.linux, .macOS])),
                "HHSocket",
                "HHSocketApp",
                "HHSocketFormats",
                "HHSocketMessage",
                .target(name: "HHSocketProtobufC", condition: .when(platforms: [.linux, .macOS])),
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketServerTransfers",
                "HHSocketTesting",
                "HHSocketTransfers",
                "GeneratedSamples",
                "SwiftProtobufSamples",
                "TestSupport",
                .product(name: "InMemoryLogging", package: "swift-log"),
                .product(name: "Logging", package: "swift-log"),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
                .product(name: "ServiceLifecycle", package: "swift-service-lifecycle"),
            ],
            path: "Tests/EndToEnd"
        ),
        // Ours with programs that others wrote, and with programs in other languages.
        .testTarget(
            name: "OtherProgramsTests",
            dependencies: [
                "HHSocket",
                "HHSocketCLI",
                "HHSocketFormats",
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketSTOMP",
                "HHSocketTesting",
                "TestSupport",
                // Not tested here, but built: `make test-stomp` runs it.
                "stomp-example",
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            path: "Tests/OtherPrograms",
            exclude: [
                "brokers.py", "company.py", "ldap_server.py", "peer.py", "python-packages", "python_environments.py",
                "raw_stomp.py", "requirements.txt", "tls_relay.py",
            ]
        ),
        .testTarget(
            name: "CodegenTests",
            dependencies: [
                "protoc-gen-hhsocket",
                "TestSupport",
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
                .product(name: "SwiftProtobufPluginLibrary", package: "swift-protobuf"),
            ],
            exclude: ["DescriptorSets", "Protos"]
        ),
        // They run the executable, which depending on it builds.
        .testTarget(
            name: "HHSocketCLITests",
            dependencies: [
                "demo-example",
                "HHSocket",
                "HHSocketCLI",
                "HHSocketFormats",
                "HHSocketMessage",
                "HHSocketServer",
                "HHSocketTesting",
                "TestSupport",
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "SwiftProtobuf", package: "swift-protobuf"),
            ],
            exclude: ["Protos", "bad_link.py"]
        ),
        // The process that the outbox's tests kill: it enqueues and sends until then.
        .executableTarget(
            name: "outbox-crash-child",
            dependencies: ["HHSocketOutbox", "HHSocketRPC"],
            path: "Outbox/Tests/CrashChild",
            swiftSettings: outboxSettings
        ),
        .testTarget(
            name: "HHSocketOutboxTests",
            dependencies: [
                "HHSocketOutbox",
                "HHSocketRPC",
                "HHSocketServer",
                "HHSocketTesting",
                "TestSupport",
                // Not tested here, but built: `make test-feed` runs it.
                "feed-example",
                "outbox-crash-child",
                .product(name: "GRDB", package: "GRDB.swift", condition: .when(traits: outbox)),
                .product(name: "NIOConcurrencyHelpers", package: "swift-nio"),
                .product(name: "NIOCore", package: "swift-nio"),
                .product(name: "NIOPosix", package: "swift-nio"),
            ],
            path: "Outbox/Tests/HHSocketOutboxTests",
            swiftSettings: outboxSettings
        ),
    ],
    swiftLanguageModes: [.v6]
)

// Scripts/test-sanitized leaves out test targets in which a sanitizer has nothing to find, and Scripts/try those
// without the wanted suites; what only they need is not built either.
if let leftOut = Context.environment["HHSOCKET_TESTS_LEFT_OUT"]?.split(separator: ",") {
    package.targets.removeAll { $0.type == .test && leftOut.contains(Substring($0.name)) }
}

// The features that Swift's next language mode will require: `any` before existential types, an import for each module
// whose members a file uses, and imports that are internal where nothing else is said.
let upcomingFeatures: [SwiftSetting] = [
    .enableUpcomingFeature("ExistentialAny"),
    .enableUpcomingFeature("InternalImportsByDefault"),
]
let memberImportVisibility = SwiftSetting.enableUpcomingFeature("MemberImportVisibility")
// Their files use structures of the C library. Which module declares such a structure to the compiler depends on which
// of SwiftNIO's modules it loads first, so the import that this feature requires differs from build to build.
let usersOfTheCLibrary: Set = [
    "HHSocket", "HHSocketCLI", "HHSocketLink", "HHSocketOperations", "HHSocketOutbox", "HHSocketProtobufC",
    "HHSocketRPC", "HHSocketServer", "HHSocketServerTransfers", "HHSocketTesting", "HHSocketTransfers", "TestSupport",
    "chat-example",
]
// swift-protobuf's generator wrote the reference messages.
for target in package.targets where target.name != "ReferenceMessages" {
    switch target.type {
    case .regular, .executable:
        target.swiftSettings = (target.swiftSettings ?? []) + upcomingFeatures
        if !usersOfTheCLibrary.contains(target.name) { target.swiftSettings?.append(memberImportVisibility) }
    case .test:
        // This module contains the examples of the guides, which must compile with the imports that a page shows.
        target.swiftSettings = (target.swiftSettings ?? []) + upcomingFeatures
    default:
        break
    }
}
