// swift-tools-version:6.1
// SPDX-License-Identifier: Apache-2.0
import PackageDescription

let grpc: [Target.Dependency] = [
    "CPeer",
    .product(name: "GRPCCore", package: "grpc-swift-2"),
    .product(name: "GRPCNIOTransportHTTP2Posix", package: "grpc-swift-nio-transport"),
]

let package = Package(
    name: "grpc-swift-peers",
    platforms: [.macOS(.v15)],
    dependencies: [
        .package(url: "https://github.com/grpc/grpc-swift-2.git", exact: "2.4.3"),
        .package(url: "https://github.com/grpc/grpc-swift-nio-transport.git", exact: "2.9.2"),
    ],
    targets: [
        .target(name: "CPeer"),
        .executableTarget(name: "grpc-swift-server", dependencies: grpc, path: "Sources/Server"),
        .executableTarget(name: "grpc-swift-client", dependencies: grpc, path: "Sources/Client"),
    ]
)
