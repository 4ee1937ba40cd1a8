// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// The server of lines whose behaviour a test determines.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LineServerTests {
    private func link(to server: LineServer, _ delimiter: LineDelimiter = .lf) -> LineLink {
        var configuration = LineLink.Configuration(servers: [server.endpoint])
        configuration.delimiter = delimiter
        configuration.socket.networkMonitor = nil
        configuration.socket.backoff = .immediate
        let link = LineLink(configuration: configuration)
        link.connect()
        return link
    }

    private func next(_ count: Int, of link: LineLink) async throws -> [String] {
        try await withDeadline("\(count) lines") {
            var lines: [String] = []
            for await line in link.lines {
                lines.append(line)
                if lines.count == count { break }
            }
            return lines
        }
    }

    @Test func rulesAreChosenByTextThenByOrder() async throws {
        let server = try await LineServer(.echo)
        server.on("a", .line("always"))
        server.once("a", .line("first"))
        server.once("a", .line("second"))
        server.once(.line("other"))
        server.on("who", .respond { .line("connection \($0.connection)") })
        let link = self.link(to: server)
        for text in ["a", "a", "a", "b", "b", "who"] { link.send(text, completion: nil) }
        link.send(ByteBuffer(bytes: [0xFF]), completion: nil)
        #expect(
            try await self.next(6, of: link) == ["first", "second", "always", "other", "b", "connection 0"]
        )
        #expect(try await server.received(7).map(\.text) == ["a", "a", "a", "b", "b", "who", nil])
    }

    @Test func faultsAreComposed() async throws {
        let server = try await LineServer(delimiter: .crlf)
        server.onOpen(number: 0, .line("half").cut(after: 2).then(.disconnect))
        server.onOpen(number: 1, .raw("raw\r\n".utf8).times(2).then(.line("äö").dribbled(bytes: 1)))
        let link = self.link(to: server, .crlf)
        #expect(try await self.next(3, of: link) == ["raw", "raw", "äö"])
        try await server.connection(1).perform(.line("late").delayed(by: .milliseconds(1)))
        #expect(try await self.next(1, of: link) == ["late"])
        #expect(server.connections.map(\.number) == [1])
        try await server.refuseConnections()
        await server.perform(.reset)
        try await eventually("the loss") { server.connections.isEmpty }
        try await server.acceptConnections()
        try await server.connection(2)
        link.disconnect()
        try await server.ended(connection: 2)
        await server.shutdown()
    }

    @Test func silentServerReadsNothing() async throws {
        let server = try await LineServer(.echo)
        server.on("sleep", .goSilent)
        let link = self.link(to: server)
        link.send("sleep", completion: nil)
        try await server.received(1)
        link.send("unheard", completion: nil)
        try await server.connection(0).perform(.wakeUp)
        #expect(try await self.next(1, of: link) == ["unheard"])
        link.disconnect()
    }

    @Test func timedOutWaitReportsReceivedUnits() async throws {
        let server = try await LineServer()
        let link = self.link(to: server)
        link.send("something", completion: nil)
        try await server.received(1)
        let error = await #expect(throws: NothingHappened.self) {
            try await server.received(2, within: .milliseconds(10))
        }
        #expect(error?.description.contains("something on connection 0") == true)
    }
}
