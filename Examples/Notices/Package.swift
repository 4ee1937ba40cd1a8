// swift-tools-version: 6.3
import PackageDescription

let package = Package(
    name: "notices",
    platforms: [.macOS(.v13)],
    dependencies: [.package(name: "hhsocket", path: "../hhsocket")],
    targets: [
        .executableTarget(
            name: "notices",
            dependencies: [
                .product(name: "HHSocketOperations", package: "hhsocket"),
                .product(name: "HHSocketServer", package: "hhsocket"),
            ]
        )
    ]
)
