// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

/// Our side of `Docs/MigratingFromCocoaAsyncSocket.md`, word for word, and the names of its table.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CocoaAsyncSocketMigrationTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage("Docs/MigratingFromCocoaAsyncSocket.md").shortcomings() == [])
    }

    @Test func linesAreSentAndRead() async throws {
        func run(address: String) async throws {
            var configuration = try LineLink.Configuration(address: address)
            configuration.delimiter = .crlf
            let link = LineLink(configuration: configuration)
            link.connect()
            try await link.send("hello")
            for await line in link.lines { print(line) }
        }

        let server = try await LineServer(.echo, delimiter: .crlf)
        let address = "\(server.endpoint)"
        let running = Task { try await run(address: address) }
        #expect(try await server.received(1)[0].text == "hello")
        running.cancel()
        try await running.value
    }

    @Test func table() throws {
        var configuration = LineLink.Configuration(servers: [Endpoint(unixPath: "/nowhere")])
        configuration.maximumLineLength = 1 << 20
        configuration.socket.callbackQueue = .default
        configuration.socket.connectTimeout = .seconds(10)
        configuration.socket.tls = ClientTLS()
        configuration.socket.tls?.trust = .system
        configuration.socket.tls?.pins = []
        configuration.socket.addressFamilies = .preferIPv4
        let link = LineLink(configuration: configuration)
        final class Reader: LineLinkDelegate {
            func lineLink(_ link: LineLink, didOpenTo endpoint: Endpoint) {}
            func lineLink(_ link: LineLink, didCloseWith error: SocketError?) {}
        }
        let reader = Reader()
        link.delegate = reader
        guard case .idle = link.state else {
            Issue.record("\(link.state)")
            return
        }
        link.disconnect()
        #expect(LineLink.Configuration(servers: []).socket.connectTimeout == .seconds(10))
        withExtendedLifetime(reader) {}
    }
}
