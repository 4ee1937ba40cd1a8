import HHSocketServer

var router = Router()
router.handle(101) { request, context in
    await context.session.push(type: 2001, body: ByteBuffer(string: "welcome"))
    return ByteBuffer(string: "hello, \(String(buffer: request.body))")
}

let listener = try ServerListener(url: "tcp+ws://127.0.0.1:7000/rpc")
let server = SocketServer(configuration: .init(listeners: [listener]), router: router)
let group = ServiceGroup(
    services: [server],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: Logger(label: "greeter")
)
try await group.run()
