// swift-tools-version: 6.3
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// A chat for Apple's platforms: a package as an app would use it. Its model is independent of views, and is tested on
// Linux too, by make test-app. An app's project in Xcode adds this package, and shows the scene of ChatViews.
let package = Package(
    name: "hhsocket-app",
    platforms: [.macOS(.v14), .iOS(.v17)],
    products: [
        .library(name: "ChatViews", targets: ["ChatViews"]),
        .executable(name: "ChatApp", targets: ["ChatApp"]),
    ],
    // With the traits of the Makefile, to share its build products; an app enables none.
    dependencies: [.package(name: "hhsocket", path: "../..", traits: ["Development"])],
    targets: [
        .target(name: "ChatModel", dependencies: [.product(name: "HHSocketRPC", package: "hhsocket")]),
        .target(
            name: "ChatViews",
            dependencies: ["ChatModel", .product(name: "HHSocketRPC", package: "hhsocket")]
        ),
        .executableTarget(name: "ChatApp", dependencies: ["ChatViews"]),
        .testTarget(
            name: "ChatModelTests",
            dependencies: [
                "ChatModel",
                .product(name: "HHSocketRPC", package: "hhsocket"),
                .product(name: "HHSocketTesting", package: "hhsocket"),
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)
