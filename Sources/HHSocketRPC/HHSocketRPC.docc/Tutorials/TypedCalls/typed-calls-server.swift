import HHSocketServer

var router = Router()
router.register(GreeterService())

let server = SocketServer(configuration: .init(port: 7000), router: router)
let group = ServiceGroup(
    services: [server],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: Logger(label: "greeter")
)
try await group.run()
