// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

/// Links of lines, over TCP.
enum LineLinks {
    static func link(
        to server: Endpoint,
        _ configure: (inout LineLink.Configuration) -> Void = { _ in }
    ) -> LineLink {
        var configuration = LineLink.Configuration(servers: [server])
        configuration.socket.backoff = Backoff(base: .milliseconds(20), cap: .milliseconds(50))
        configuration.socket.networkMonitor = nil
        configure(&configuration)
        return LineLink(configuration: configuration)
    }

    static func closure(_ events: AsyncStream<LineLink.Event>) async throws -> SocketError? {
        let event = try await first(of: events, "the end of a connection") {
            if case .closed = $0 { true } else { false }
        }
        guard case .closed(let error) = event else { throw Unexpected(description: "\(event)") }
        return error
    }

    static func opening(_ events: AsyncStream<LineLink.Event>) async throws {
        _ = try await first(of: events, "an opening") { if case .opened = $0 { true } else { false } }
    }
}

extension AsyncSequence where Self: Sendable, Element: Sendable, Failure == Never {
    /// The next elements.
    func next(_ count: Int, _ what: String = "lines") async throws -> [Element] {
        try await withDeadline("\(count) \(what)") {
            var elements: [Element] = []
            guard count > 0 else { return elements }
            for await element in self {
                elements.append(element)
                if elements.count == count { break }
            }
            return elements
        }
    }
}

/// Received and sent lines.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LineLinkTests {
    @Test(arguments: [LineDelimiter.lf, .crlf, .lfOrCRLF, .nul]) func linesOfAllSizesAreEchoed(
        delimiter: LineDelimiter
    ) async throws {
        let server = try await LineServer(.echo, delimiter: delimiter)
        let link = LineLinks.link(to: server.endpoint) { $0.delimiter = delimiter }
        link.connect()
        for length in [0, 1, 2, 4_096, 65_535, 65_536, 65_537, 1 << 20] {
            let text = String(repeating: "ä", count: length / 2) + String(repeating: "x", count: length % 2)
            try await link.send(text)
            #expect(try await link.lines.next(1) == [text])
        }
        let bytes = ByteBuffer(bytes: (0..<2_000).map { UInt8(truncatingIfNeeded: $0 % 200 + 20) })
        try await link.send(bytes)
        #expect(try await link.lines.bytes.next(1) == [bytes])
        for number in 0..<1_000 { link.send("\(number)", completion: nil) }
        #expect(try await link.lines.next(1_000) == (0..<1_000).map { "\($0)" })
        link.disconnect()
    }

    @Test func charactersAreWholeHoweverTheyAreTorn() async throws {
        let server = try await LineServer()
        let text = "ä € 🎉 \u{10FFFF} e\u{301}"
        server.onOpen(.line(text).dribbled().then(.glued(.line(text), .line(""), .line("end\r"))))
        let link = LineLinks.link(to: server.endpoint)
        link.connect()
        #expect(try await link.lines.next(4) == [text, text, "", "end\r"])
        link.disconnect()
    }

    @Test func lineThatIsNotUTF8IsItsErrorAlone() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint)
        server.onAnyOther(.glued(.line("a"), .line([0xFF, 0xFE]), .line("b")))
        let events = link.events
        link.connect()
        link.send("text", completion: nil)
        #expect(try await link.lines.next(2) == ["a", "b"])
        let event = try await first(of: events, "the report") { if case .unreadable = $0 { true } else { false } }
        guard case .unreadable(let error) = event else { return }
        #expect(error.code == .decodingFailed)
        link.send("results", completion: nil)
        let results = try await link.lines.results.next(3)
        #expect(results.map { try? $0.get() } == ["a", nil, "b"])
        link.send("bytes", completion: nil)
        let bytes = try await link.lines.bytes.next(3)
        #expect(bytes.map { Array($0.readableBytesView) } == [[0x61], [0xFF, 0xFE], [0x62]])
        // It was one connection all the time.
        #expect(server.acceptedCount == 1)
        link.disconnect()
    }

    @Test func lineWithTheDelimiterIsNotSent() async throws {
        let server = try await LineServer(delimiter: .crlf)
        let link = LineLinks.link(to: server.endpoint) { $0.delimiter = .crlf }
        link.connect()
        for text in ["\r\n", "a\r\nb"] {
            let error = await #expect(throws: SocketError.self) { try await link.send(text) }
            #expect(error?.code == .invalidArgument && error?.delivery == .notSent)
        }
        try await link.send("a\nb\r")
        #expect(try await server.received(1).map(\.text) == ["a\nb\r"])
        link.disconnect()
    }

    @Test func readerThatDoesNotReadSuspendsReading() async throws {
        let server = try await LineServer()
        let text = String(repeating: "x", count: 1_000)
        server.onOpen(.line(text).times(30_000).then(.line("end")))
        let link = LineLinks.link(to: server.endpoint)
        link.connect()
        try await server.connection(0)
        // More than the buffers of both systems hold: the rest waits at the server.
        var count = 0
        for await line in link.lines {
            if line == "end" { break }
            count += 1
        }
        #expect(count == 30_000)
        link.disconnect()
    }

    @Test func handlerAnswersOnTheSocketsThread() async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint)
        link.setLineHandler { [weak link] line in link?.send(line.bytes, completion: nil) }
        link.connect()
        try await server.connection(0).perform(.glued(.line("a"), .line([0xFF]), .line("")))
        #expect(try await server.received(3).map { Array($0.bytes.readableBytesView) } == [[0x61], [0xFF], []])
        link.disconnect()
    }

    // MARK: JSON

    private struct Note: Codable, Hashable, Sendable {
        var text: String
        var number: Int
    }

    @Test func valuesAreLinesOfJSON() async throws {
        let server = try await LineServer(.echo)
        let link = LineLinks.link(to: server.endpoint)
        link.connect()
        let note = Note(text: "two\nlines, ä", number: 7)
        try await link.send(json: note)
        link.send(json: note, completion: nil)
        let echoes = try await link.lines.decoded(as: Note.self).next(2)
        #expect(try echoes.map { try $0.get() } == [note, note])
        // Only the faulty line fails.
        try await link.send("{}")
        try await link.send("{\"text\":\"x\",\"number\":1}")
        let results = try await link.lines.decoded(as: Note.self).next(2)
        let error = #expect(throws: SocketError.self) { try results[0].get() }
        #expect(error?.code == .decodingFailed && error?.body == ByteBuffer(string: "{}"))
        #expect(error?.underlying is DecodingError)
        #expect(try results[1].get() == Note(text: "x", number: 1))
        // A value that JSON cannot represent is not sent.
        let refused = await #expect(throws: SocketError.self) { try await link.send(json: [Double.infinity]) }
        #expect(refused?.code == .invalidArgument)
        link.disconnect()
    }

    /// A caller may hold a lock that its completion takes.
    @Test(arguments: [true, false]) func completionRunsAfterItsFunctionHasReturned(
        isOnTheSocketsThread: Bool
    ) async throws {
        let server = try await LineServer()
        let link = LineLinks.link(to: server.endpoint) { $0.socket.callbackQueue = .socketThread }
        link.connect()
        try await link.send("open")
        let completions = Completions()
        let sendAll: @Sendable () -> Void = {
            completions.of("line") { link.send("line", completion: $0) }
            completions.of("two lines") { link.send("two\nlines", completion: $0) }
            completions.of("value") { link.send(json: [1], completion: $0) }
            completions.of("no value") { link.send(json: [Double.infinity], completion: $0) }
        }
        if isOnTheSocketsThread { await Task(executorPreference: link.executor) { sendAll() }.value } else { sendAll() }
        #expect(
            try await completions.wait(for: 4) == [
                "line": [.sent], "two lines": [.refused(.invalidArgument)],
                "value": [.sent], "no value": [.refused(.invalidArgument)],
            ]
        )
        link.disconnect()
    }

    // MARK: The delegate

    private final class Observer: LineLinkDelegate {
        let notes = Watched<[String]>([])

        private func note(_ text: String) { self.notes.withLockedValue { $0.append(text) } }

        func lineLink(_ link: LineLink, didOpenTo endpoint: Endpoint) { self.note("opened") }
        func lineLink(_ link: LineLink, didReceiveText text: String) { self.note(text) }
        func lineLink(_ link: LineLink, didFailToReadWith error: SocketError) { self.note("\(error.code)") }
        func lineLink(_ link: LineLink, didCloseWith error: SocketError?) {
            self.note("closed \(error.map { "\($0.code)" } ?? "by the user")")
        }
        func lineLink(_ link: LineLink, didFailToConnectWith error: SocketError) { self.note("failed \(error.code)") }
        func lineLink(_ link: LineLink, didGiveUpWith error: SocketError) { self.note("gave up \(error.code)") }
    }

    @Test func delegateIsNotifiedInOrder() async throws {
        let server = try await LineServer()
        server.onOpen(number: 0, .glued(.line("a"), .line([0xFF]), .line("b")).then(.disconnect))
        let observer = Observer()
        let link = LineLinks.link(to: server.endpoint)
        link.delegate = observer
        link.connect()
        try await observer.notes.wait("two openings") { $0.filter { $0 == "opened" }.count == 2 }
        link.disconnect()
        try await observer.notes.wait("the end") { $0.last == "closed by the user" }
        #expect(
            observer.notes.current
                == ["opened", "a", "decodingFailed", "b", "closed connectionLost", "opened", "closed by the user"]
        )
    }

    @Test func delegateIsNotifiedOfARefusedConnection() async throws {
        let server = try await LineServer()
        try await server.refuseConnections()
        let observer = Observer()
        let link = LineLinks.link(to: server.endpoint) { $0.socket.backoff.maximumRounds = 1 }
        link.delegate = observer
        link.connect()
        try await observer.notes.wait("the end") {
            $0 == ["failed connectionRefused", "gave up noServerReachable"]
        }
    }

    @Test func addressesAreHostsAndPorts() throws {
        #expect(try LineLink.Configuration(address: "example.com:7").socket.tls == nil)
        let secure = try LineLink.Configuration(address: "tls://[::1]:7")
        #expect(secure.socket.tls != nil && secure.socket.servers == [Endpoint(host: "::1", port: 7)])
        for address in ["", "example.com", "ws://example.com:7/", "tls://ws://x/", "http://example.com:80"] {
            let error = #expect(throws: SocketError.self) { try LineLink.Configuration(address: address) }
            #expect(error?.code == .invalidArgument)
        }
    }

    @Test(arguments: [false, true]) func urlOfAWebSocketIsRefused(isResolved: Bool) async throws {
        let server = try await LineServer(.echo)
        let target = try Endpoint(url: "ws://127.0.0.1:\(server.endpoint.port)/")
        let link = LineLinks.link(to: isResolved ? server.endpoint : target) {
            if isResolved { $0.socket.resolver = ServerResolver { [target] in [target] } }
        }
        let events = link.events
        link.connect()
        let event = try await first(of: events, "a failure") {
            if case .connection(.connectFailed) = $0 { true } else { false }
        }
        guard case .connection(.connectFailed(let error)) = event else { return }
        #expect(error.code == .invalidArgument)
        link.disconnect()
    }
}
