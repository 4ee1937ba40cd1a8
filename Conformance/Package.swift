// swift-tools-version: 6.3
// SPDX-License-Identifier: Apache-2.0

import PackageDescription

// A separate package, because its messages are generated before it is built. Built and run by `make
// conformance-protobuf`, in the build folder of everything else.
let package = Package(
    name: "hhsocket-conformance",
    platforms: [.macOS(.v13)],
    dependencies: [
        // Named, because the folder of a clone may have any name. With the traits of the Makefile, so that both share
        // their build products.
        .package(name: "hhsocket", path: "..", traits: ["Development"])
    ],
    targets: [
        // From the protos that swift-protobuf comes with; not committed.
        .target(
            name: "ConformanceMessages",
            dependencies: [.product(name: "HHSocketMessage", package: "hhsocket")]
        ),
        .executableTarget(
            name: "ConformanceProgram",
            dependencies: ["ConformanceMessages", .product(name: "HHSocketMessage", package: "hhsocket")],
            swiftSettings: [
                .enableUpcomingFeature("ExistentialAny"), .enableUpcomingFeature("InternalImportsByDefault"),
            ]
        ),
    ],
    swiftLanguageModes: [.v6]
)
