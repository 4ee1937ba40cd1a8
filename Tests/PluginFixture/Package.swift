// swift-tools-version: 6.3
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// A package as users have it: Scripts/test-plugins builds and runs it.
let package = Package(
    name: "plugin-fixture",
    platforms: [.macOS(.v13)],
    // With the traits of the Makefile, so that it shares what that has built; a user asks for none.
    dependencies: [.package(name: "hhsocket", path: "../..", traits: ["Development"])],
    targets: [
        // Its code is generated when it is built: messages alone, for the rest of HHSocket takes long to build.
        .executableTarget(
            name: "Built",
            dependencies: ["Common", .product(name: "HHSocketMessage", package: "hhsocket")],
            plugins: [.plugin(name: "HHSocketGenerator", package: "hhsocket")]
        ),
        // The messages of a module that others import.
        .target(
            name: "Common",
            dependencies: [.product(name: "HHSocketMessage", package: "hhsocket")],
            plugins: [.plugin(name: "HHSocketGenerator", package: "hhsocket")]
        ),
        // A service whose methods take messages of another module.
        .target(
            name: "Calls",
            dependencies: [
                "Common",
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "HHSocketServer", package: "hhsocket"),
            ],
            swiftSettings: [.enableUpcomingFeature("InternalImportsByDefault")],
            plugins: [.plugin(name: "HHSocketGenerator", package: "hhsocket")]
        ),
        // Its code is checked in, and was written by `swift package generate-hhsocket-code --target Written`.
        .target(
            name: "Written",
            dependencies: [
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "HHSocketServer", package: "hhsocket"),
            ],
            exclude: ["hhsocket-generator-config.json"]
        ),
    ],
    swiftLanguageModes: [.v6]
)
