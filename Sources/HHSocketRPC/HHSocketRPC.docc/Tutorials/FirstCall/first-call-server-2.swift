import HHSocketServer

var router = Router()
router.handle(101) { request, context in
    ByteBuffer(string: "hello, \(String(buffer: request.body))")
}

let server = SocketServer(configuration: .init(port: 7000), router: router)
let group = ServiceGroup(
    services: [server],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: Logger(label: "greeter")
)
try await group.run()
