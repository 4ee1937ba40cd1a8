import Foundation
import HHSocketOperations
import HHSocketServer

let settings = try Settings(ProcessInfo.processInfo.environment)
var logger = Logger(label: "notices")
logger.logLevel = settings.logLevel
let metrics = PrometheusMetrics()
let announcements = Announcements()
let server = SocketServer(
    configuration: settings.configuration(logger, metrics),
    router: makeRouter(Board(), announcements, metrics)
)
let monitoring = MonitoringEndpoint(
    host: settings.monitoringHost,
    port: settings.monitoringPort,
    server: server,
    metrics: metrics
)
// SIGTERM ends them from the last to the first: the server drains while the probes still answer.
let group = ServiceGroup(
    services: [monitoring, server, Announcements.Sender(announcements: announcements, server: server)],
    gracefulShutdownSignals: [.sigterm, .sigint],
    logger: logger
)
logger.info("notices starts", metadata: ["port": "\(settings.port)", "users": "\(settings.users.count)"])
try await group.run()
