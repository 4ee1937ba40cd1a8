// swift-tools-version: 6.3
import PackageDescription

let package = Package(
    name: "greeter",
    platforms: [.macOS(.v13), .iOS(.v16)],
    dependencies: [.package(name: "hhsocket", path: "../hhsocket")],
    targets: [
        .executableTarget(
            name: "server",
            dependencies: [.product(name: "HHSocketServer", package: "hhsocket")]
        ),
        .executableTarget(
            name: "client",
            dependencies: [.product(name: "HHSocketRPC", package: "hhsocket")]
        ),
    ]
)
