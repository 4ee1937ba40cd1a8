// swift-tools-version: 6.1

import PackageDescription

// A package of its own, because it uses the outbox, which is one.
let package = Package(
    name: "hhsocket-feed-example",
    platforms: [.macOS(.v13)],
    dependencies: [
        // Named, because the folder of a clone may be called anything.
        .package(name: "hhsocket", path: "../.."),
        .package(name: "hhsocket-outbox", path: "../../Outbox"),
    ],
    targets: [
        .executableTarget(
            name: "feed-example",
            dependencies: [
                .product(name: "HHSocketOutbox", package: "hhsocket-outbox"),
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "HHSocketServer", package: "hhsocket"),
            ],
            path: "Sources"
        )
    ],
    swiftLanguageModes: [.v6]
)
