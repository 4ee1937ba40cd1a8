// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The openings of a mock server's WebSockets: the received requests and their answers.
final class MockOpenings: Sendable {
    private struct Answers {
        var general = MockOpening.accept
        var byNumber: [Int: MockOpening] = [:]
    }

    /// The path of the WebSockets; nil for any.
    let path: String?
    let rules: OpeningRules
    /// Whether the first subprotocol that a client offers is selected, if the rules select none.
    let takesAnySubprotocol: Bool
    let received = EventLog<MockOpening.Request>()
    private let answers = NIOLockedValueBox(Answers())

    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` for subprotocols that are none.
    init(
        path: String?,
        subprotocols: [String],
        takesAnySubprotocol: Bool = false,
        compression: WebSocketCompression? = nil
    ) throws(SocketError) {
        self.path = path
        self.takesAnySubprotocol = takesAnySubprotocol
        do throws(OpeningError) {
            self.rules = try OpeningRules(path: path, subprotocols: subprotocols, deflate: compression?.policy)
        } catch {
            throw SocketError(.invalidArgument, message: "\(error)")
        }
    }

    func set(_ answer: MockOpening) {
        self.answers.withLockedValue { $0.general = answer }
    }

    func set(_ answer: MockOpening, number: Int) {
        self.answers.withLockedValue { $0.byNumber[number] = answer }
    }

    func answer(number: Int) -> MockOpening {
        self.answers.withLockedValue { $0.byNumber[number] ?? $0.general }
    }

    func received(number: Int, within time: Duration) async throws -> MockOpening.Request {
        try await self.received.wait(1, within: time, "the opening of connection \(number)") {
            $0.connection == number
        }[0]
    }
}

/// The opening handshake of one connection of a mock. Confined to the server's event loop.
final class MockUpgrade {
    private let openings: MockOpenings
    private unowned let line: MockLine
    private let opened: (OpeningAgreement) -> Void
    private var reader = OpeningRequestReader()
    private var head: OpeningRequestHead?
    private var isRejected = false
    private lazy var script = MockScript<MockOpening.Sending, MockOpening.Request>(
        self.line,
        send: { [unowned self] sending, _ in self.send(sending) }
    )

    /// - Parameter opened: Called when an acceptance, right or wrong, has been put into the outbox.
    init(_ openings: MockOpenings, on line: MockLine, opened: @escaping (OpeningAgreement) -> Void) {
        self.openings = openings
        self.line = line
        self.opened = opened
    }

    /// Handles bytes of the request, and bytes after it.
    func receive(_ bytes: ByteBuffer) {
        self.reader.append(bytes)
        guard self.head == nil, !self.isRejected else { return }
        do throws(OpeningRejection) {
            guard let head = try self.reader.next() else { return }
            self.head = head
            let request = MockOpening.Request(
                connection: self.line.number,
                path: head.path,
                query: head.query,
                headers: head.headers.all.map { ($0.name, $0.value) },
                subprotocols: head.subprotocols
            )
            self.openings.received.append(request)
            self.script.perform(self.openings.answer(number: self.line.number).steps, for: request)
        } catch {
            self.reject(error)
        }
    }

    /// Returns the bytes after the request.
    func takeRest() -> ByteBuffer { self.reader.takeRest() }

    private func reject(_ rejection: OpeningRejection) {
        self.isRejected = true
        self.line.send(rejection.encode())
        self.line.append(.close)
        self.line.flush()
    }

    private func send(_ sending: MockOpening.Sending) {
        guard !self.isRejected else { return }
        var bytes: ByteBuffer
        var agreement: OpeningAgreement?
        switch sending.source {
        case .raw(let raw):
            bytes = raw
        case .acceptance(let edits):
            guard let head = self.head else { return }
            switch self.openings.rules.decide(head) {
            case .reject(let rejection):
                return self.reject(rejection)
            case .upgrade(var agreed, _):
                if self.openings.takesAnySubprotocol, agreed.subprotocol == nil {
                    agreed.subprotocol = head.subprotocols.first
                }
                bytes = self.response(to: head, agreed, edits)
                agreement = agreed
            }
        }
        if let kept = sending.keptBytes, let slice = bytes.readSlice(length: min(kept, bytes.readableBytes)) {
            bytes = slice
            agreement = nil
        }
        self.line.send(bytes, sending.dribble)
        if let agreement { self.opened(agreement) }
    }

    private func response(
        to head: OpeningRequestHead,
        _ agreement: OpeningAgreement,
        _ edits: [MockOpening.Edit]
    ) -> ByteBuffer {
        var fields: [(name: String, value: String)] = [("Upgrade", "websocket"), ("Connection", "Upgrade")]
        fields.append(("Sec-WebSocket-Accept", head.key?.accept ?? ""))
        if let subprotocol = agreement.subprotocol { fields.append(("Sec-WebSocket-Protocol", subprotocol)) }
        if let offers = try? head.deflateOffers(),
            let answer = self.openings.rules.deflate?.agreement(offers: offers)?.answer
        {
            fields.append(("Sec-WebSocket-Extensions", "\(answer)"))
        }
        for edit in edits {
            switch edit {
            case .remove(let name):
                fields.removeAll { $0.name.lowercased() == name.lowercased() }
            case .set(let name, let value):
                let index = fields.firstIndex { $0.name.lowercased() == name.lowercased() }
                if let index { fields[index].value = value } else { fields.append((name, value)) }
            case .add(let name, let value):
                fields.append((name, value))
            }
        }
        let lines = fields.map { "\($0.name): \($0.value)\r\n" }.joined()
        return ByteBuffer(string: "HTTP/1.1 101 Switching Protocols\r\n\(lines)\r\n")
    }
}

/// The WebSocket that carries the frames of one connection of a mock. It behaves like a correct server: it answers
/// pings and close frames, and closes on violations. Confined to the server's event loop.
final class MockCarriage {
    private unowned let line: MockLine
    private var upgrade: MockUpgrade?
    /// Nil until the WebSocket is open.
    private var decoder: WebSocketDecoder?
    private var encoder = WebSocketEncoder(role: .server)
    private var hasClosed = false
    private let sendsText: Bool
    private let closed: (WebSocketContent) -> Void

    /// - Parameters:
    ///   - mode: Whether bytes arrive in messages that are kept whole; not by default, and then text is a violation.
    ///   - sendsText: Whether ``carry(_:)`` makes text messages; false by default.
    ///   - opened: Called when the acceptance has been put into the outbox.
    ///   - closed: Called with the client's close frame, or its violation.
    init(
        _ openings: MockOpenings,
        on line: MockLine,
        mode: WebSocketDecoder.Mode = .stream,
        sendsText: Bool = false,
        opened: @escaping () -> Void,
        closed: @escaping (WebSocketContent) -> Void
    ) {
        self.line = line
        self.sendsText = sendsText
        self.closed = closed
        self.upgrade = MockUpgrade(openings, on: line) { [unowned self] _ in
            var decoder = WebSocketDecoder(role: .server, mode: mode)
            if let rest = self.upgrade?.takeRest() { decoder.append(rest) }
            self.decoder = decoder
            opened()
        }
    }

    func receive(_ bytes: ByteBuffer) {
        if self.decoder == nil { self.upgrade?.receive(bytes) } else { self.decoder?.append(bytes) }
    }

    /// The next bytes that the client's messages carry. Puts the answers to control frames into the outbox.
    func next() -> ByteBuffer? {
        do throws(WebSocketViolation) {
            while let input = try self.decoder?.next() {
                switch input {
                case .bytes(let bytes), .message(_, let bytes): return bytes
                case .ping(let payload): self.line.send(Self.encode(.pong(payload)))
                case .close(let close):
                    self.closed(WebSocketContent(input))
                    self.close(close)
                case .pong: break
                }
            }
        } catch {
            self.closed(.violation("\(error)"))
            self.close(WebSocketClose(code: error.code, reason: "\(error)"))
        }
        return nil
    }

    /// Sends a close frame, unless one was sent, and closes.
    func close(_ close: WebSocketClose) {
        if !self.hasClosed {
            var bytes = ByteBuffer()
            self.encoder.encodeClose(WebSocketClose(code: close.code, reason: close.reason), into: &bytes)
            self.line.send(bytes)
        }
        self.hasClosed = true
        self.decoder = nil
        self.line.append(.close)
    }

    /// Returns bytes as messages.
    func carry(_ bytes: ByteBuffer) -> ByteBuffer {
        var out = ByteBuffer()
        if self.sendsText {
            self.encoder.encode(.text, bytes, into: &out)
        } else {
            self.encoder.encodeStream(bytes, into: &out)
        }
        return out
    }

    private static func encode(_ frame: WebSocketFrame) -> ByteBuffer {
        var bytes = ByteBuffer()
        frame.encode(masks: false, into: &bytes)
        return bytes
    }

    /// Returns the bytes of a scripted frame.
    func encode(_ frame: WebSocketFrame, _ sending: MockServer.Reaction.Sending) -> ByteBuffer {
        if frame.opcode == .close { self.hasClosed = true }
        return sending.flaws.cut(Self.encode(frame)).repeated(sending.copies)
    }
}
