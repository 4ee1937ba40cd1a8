// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import TestSupport
import Testing

/// The file of a server requires one import.
@Suite struct ServerImportTests {
    /// Uses names of other modules that occur in the API, with the one import above.
    @Test func oneImportBringsWhatTheAPISpeaksOf() {
        var configuration = SocketServer.Configuration()
        configuration.logger = Logger(label: "test")
        let group: (any EventLoopGroup)? = nil
        configuration.eventLoopGroup = group
        var router = Router()
        let level = Logger.Level.info
        router.use(LoggingMiddleware(level: level))
        router.handle(101) { _, context in
            let address: SocketAddress? = context.session.remoteAddress
            return ByteBuffer(string: address.map { "\($0)" } ?? "")
        }
        let service: any Service = SocketServer(configuration: configuration, router: router)
        #expect(service is SocketServer)
    }
}
