// swift-tools-version: 6.1

import PackageDescription

// A package of its own, because it needs flags that a dependency may not have. Built and run by `make fuzz`.
let package = Package(
    name: "hhsocket-fuzz",
    platforms: [.macOS(.v13)],
    dependencies: [
        // Named, because the folder of a clone may be called anything.
        .package(name: "hhsocket", path: ".."),
        .package(url: "https://github.com/apple/swift-nio", from: "2.101.2"),
    ],
    targets: [
        .executableTarget(
            name: "Fuzz",
            dependencies: [
                .product(name: "HHSocket", package: "hhsocket"),
                .product(name: "NIOCore", package: "swift-nio"),
            ],
            swiftSettings: [.unsafeFlags(["-sanitize=fuzzer,address", "-parse-as-library"])],
            linkerSettings: [
                .unsafeFlags(["-sanitize=fuzzer,address"]),
                // The usual linker, gold, gives up on the debug information of optimised code.
                .unsafeFlags(["-use-ld=lld"], .when(platforms: [.linux])),
            ]
        )
    ],
    swiftLanguageModes: [.v6]
)
