import HHSocketOperations
import HHSocketServer

/// The notices, of which the last hundred are kept.
actor Board {
    private var notices: [String] = []

    var text: String { self.notices.joined(separator: "\n") }

    func add(_ notice: String) {
        self.notices = self.notices.suffix(99) + [notice]
    }
}

/// The requests that clients may make.
func makeRouter(_ board: Board, _ announcements: Announcements, _ metrics: PrometheusMetrics) -> Router {
    var router = Router()
    router.use(MetricsMiddleware(factory: metrics))
    router.use(LoggingMiddleware(level: .info))
    router.use(AuthenticationMiddleware())
    // Adds a notice, which is pushed to all clients with type 2001.
    router.handle(101, limits: RouteLimits(maximumBodyLength: 1_024, timeout: .seconds(5))) { request, context in
        let notice = "\(context.session.identity ?? "nobody"): \(String(buffer: request.body))"
        await board.add(notice)
        announcements.send(notice)
        return ByteBuffer()
    }
    // Answers with all notices, one on a line.
    router.handle(102) { _, _ in await ByteBuffer(string: board.text) }
    return router
}
