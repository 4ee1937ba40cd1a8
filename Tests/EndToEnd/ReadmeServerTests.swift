import HHSocketServer
import TestSupport
import Testing

/// The server of `README.md`, word for word, with its one import.
@Suite struct ReadmeServerTests {
    @Test func theExampleIsInThisFile() throws {
        #expect(try DocumentationPage("README.md", section: "A server").shortcomings() == [])
    }

    /// Compiled, for its port may be taken. ``ServerGuideTests`` runs one like it.
    private func example() async throws {
        var router = Router()
        router.handle(101) { request, context in
            await context.session.push(type: 2001, body: ByteBuffer(string: "welcome"))
            return ByteBuffer(string: "hello, \(String(buffer: request.body))")
        }

        let server = SocketServer(configuration: .init(port: 7000), router: router)
        let group = ServiceGroup(
            services: [server],
            gracefulShutdownSignals: [.sigterm, .sigint],
            logger: Logger(label: "greeter")
        )
        try await group.run()
    }

    /// Names of other modules that the API speaks of, with the one import above.
    @Test func oneImportBringsWhatTheAPISpeaksOf() {
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test")
        let group: (any EventLoopGroup)? = nil
        configuration.eventLoopGroup = group
        var router = Router()
        let level = Logger.Level.info
        router.use(LoggingMiddleware(level: level))
        router.handle(101) { _, context in
            let address: SocketAddress? = context.remoteAddress
            return ByteBuffer(string: address.map { "\($0)" } ?? "")
        }
        let service: any Service = SocketServer(configuration: configuration, router: router)
        #expect(service is SocketServer)
    }
}
