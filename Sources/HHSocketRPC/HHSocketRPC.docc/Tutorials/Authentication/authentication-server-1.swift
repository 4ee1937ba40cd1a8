import HHSocketServer

let users = ["secret-of-ann": "ann"]

var router = Router()
router.handle(101) { _, context in
    ByteBuffer(string: "hello, \(context.session.identity ?? "stranger")")
}

var configuration = SocketServer.Configuration(port: 7000)
configuration.hello.authenticate = { token, _ in
    guard let user = users[String(decoding: token, as: UTF8.self)] else { throw StatusError(.noPermission) }
    return user
}

let server = SocketServer(configuration: configuration, router: router)
let group = ServiceGroup(
    services: [server],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: Logger(label: "greeter")
)
try await group.run()
