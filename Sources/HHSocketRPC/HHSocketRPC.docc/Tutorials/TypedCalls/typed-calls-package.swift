.target(
    name: "GreeterMessages",
    dependencies: [
        .product(name: "HHSocketRPC", package: "hhsocket"),
        .product(name: "HHSocketServer", package: "hhsocket"),
    ],
    plugins: [.plugin(name: "HHSocketGenerator", package: "hhsocket")]
)
