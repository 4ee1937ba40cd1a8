// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore

/// The WebSocket of one connection of a mock. Where it carries bytes it behaves like a correct server: it answers pings
/// and close frames, and closes on violations. Confined to the server's event loop.
final class MockCarriage {
    private unowned let line: MockLine
    private var upgrade: MockUpgrade?
    /// Nil until the WebSocket is open, and after it has been closed.
    private var decoder: WebSocketDecoder?
    private var encoder = WebSocketEncoder(role: .server, account: nil)
    private let sendsText: Bool
    private let closed: (WebSocketContent) -> Void
    private var hasSentClose = false

    /// Whether a close frame was sent.
    var hasClosed: Bool { self.hasSentClose }

    /// - Parameters:
    ///   - opened: Called when the acceptance has been put into the outbox.
    ///   - closed: Called by ``next()`` with the client's close frame, or its violation.
    init(
        _ openings: MockOpenings,
        on line: MockLine,
        opened: @escaping (OpeningAgreement) -> Void,
        closed: @escaping (WebSocketContent) -> Void
    ) {
        self.line = line
        self.sendsText = openings.sendsText
        self.closed = closed
        self.upgrade = MockUpgrade(openings, on: line) { [unowned self] agreement in
            var decoder = WebSocketDecoder(role: .server, mode: openings.mode, deflate: agreement.deflate, account: nil)
            if let rest = self.upgrade?.takeRest() { decoder.append(rest) }
            self.decoder = decoder
            opened(agreement)
        }
    }

    func receive(_ bytes: ByteBuffer) {
        if self.decoder == nil { self.upgrade?.receive(bytes) } else { self.decoder?.append(bytes) }
    }

    /// Returns the next message or control frame, which is not answered.
    func nextInput() throws(WebSocketViolation) -> WebSocketInput? { try self.decoder?.next() }

    /// Returns the next bytes that the client's messages carry. Puts the answers to control frames into the outbox.
    func next() -> ByteBuffer? {
        do throws(WebSocketViolation) {
            while let input = try self.nextInput() {
                switch input {
                case .bytes(let bytes), .message(_, let bytes): return bytes
                case .ping(let payload): self.line.send(self.encode(.pong(payload)))
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
        if !self.hasSentClose {
            var bytes = ByteBuffer()
            self.encoder.encodeClose(WebSocketClose(code: close.code, reason: close.reason), into: &bytes)
            self.line.send(bytes)
        }
        self.hasSentClose = true
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

    /// Returns the bytes of a frame that is sent.
    func encode(_ frame: WebSocketFrame) -> ByteBuffer {
        if frame.opcode == .close { self.hasSentClose = true }
        var bytes = ByteBuffer()
        frame.encode(masks: false, into: &bytes)
        return bytes
    }
}

extension WebSocketDecoder.Mode {
    /// Complete messages without limits, so that everything that can be decoded is recorded.
    static var unlimitedMessages: Self {
        var limits = WebSocketLimits()
        limits.maximumMessageLength = .max
        limits.maximumFragments = .max
        return .messages(limits)
    }
}
