// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

extension FrameWire {
    /// The frames that a ``MockServer`` can send, right or wrong. A ``MockReaction`` makes them.
    public struct Output: Sendable {
        enum Source: Sendable {
            /// An answer with the request's type, serial and payload.
            case echo
            /// An answer with the request's type and serial.
            case answer(Status, ByteBuffer)
            case frame(Frame)
            case push(UInt32, ByteBuffer)
            /// A ping of the server; nil for the format's serial. The client's answer is not answered.
            case ping(UInt32?)
            /// A frame of the WebSocket that carries the frames.
            case webSocket(WebSocketFrame)
            /// An item of the request's stream.
            case item(ByteBuffer)
            /// An item that costs more than a window of the client's.
            case excess(ofConnection: Bool)
            /// A credit of the request's stream with this payload.
            case credit(ByteBuffer)
            /// A credit that exceeds the granted amount by this number, which may be negative.
            case creditBeyond(Int)
            /// Nothing; the request's stream is stalled.
            case stall
        }

        var source: Source
        var serial: UInt32?
        var metadata: [String: String]?
        var isCompressed = false
        /// The most bytes of the payload in one frame; nil for all.
        var pieceLength: Int?
        /// Whether the last piece announces further pieces.
        var isUnfinished = false
    }
}

extension MockReaction where Wire == FrameWire {
    init(_ source: FrameWire.Output.Source) {
        self.init(FrameWire.Output(source: source))
    }

    // MARK: Answers

    /// Answers with the request's own payload and status 200.
    public static var echo: Self { Self(.echo) }

    /// Answers with this payload.
    ///
    /// - Parameters:
    ///   - body: The payload.
    ///   - status: 200 by default; any 32 bits. In a format without statuses nothing is sent for any other.
    public static func answer(_ body: ByteBuffer, status: Status = .ok) -> Self { Self(.answer(status, body)) }

    /// Answers with this text's UTF-8 as payload.
    ///
    /// - Parameters:
    ///   - body: The payload.
    ///   - status: 200 by default; any 32 bits.
    public static func answer(_ body: String, status: Status = .ok) -> Self {
        .answer(ByteBuffer(string: body), status: status)
    }

    /// Answers with this status, listed or not, and an empty payload.
    public static func status(_ status: Status) -> Self { .answer(ByteBuffer(), status: status) }

    /// Answers with status 504: the server is about to end and has not run the request.
    package static var draining: Self { .status(.draining) }

    // MARK: Other things to send

    /// Sends a push: in the standard format with serial 1 and status 200.
    package static func push(_ type: UInt32, _ body: ByteBuffer) -> Self { Self(.push(type, body)) }

    /// Sends a push with this text's UTF-8 as payload.
    public static func push(_ type: UInt32, _ body: String = "") -> Self { .push(type, ByteBuffer(string: body)) }

    /// Sends a ping: in the standard format a heartbeat with status 0. The client's answer is recorded but not
    /// answered.
    ///
    /// - Parameter serial: By default the format's, 5 in the standard format; clients answer reserved serials.
    public static func ping(serial: UInt32? = nil) -> Self { Self(.ping(serial)) }

    /// Sends a go-away: the server is about to end.
    ///
    /// - Parameters:
    ///   - reason: The reason, as text for people; empty by default.
    ///   - retryAfter: The time that clients should stay away, in whole milliseconds; zero by default.
    ///   - endpoints: Servers that may be used instead, best first; none by default.
    public static func goAway(reason: String = "", retryAfter: Duration = .zero, endpoints: [Endpoint] = []) -> Self {
        .frame(GoAway(reason: reason, retryAfter: retryAfter, endpoints: endpoints).frame)
    }

    /// Sends a frame unchanged, regardless of the request.
    public static func frame(_ frame: Frame) -> Self { Self(.frame(frame)) }

    /// Sends a frame of the WebSocket that carries the frames, right or wrong, such as a close frame; nothing over
    /// plain TCP.
    public static func webSocket(_ frame: WebSocketFrame) -> Self { Self(.webSocket(frame)) }

    /// Closes the connection after everything that was sent before; over WebSocket without a close frame.
    package static var close: Self { .disconnect }

    // MARK: Adverbs

    /// First waits until the client cancels this request: a late answer that does not depend on a clock. In a
    /// format without cancels it is never sent.
    public func late() -> Self { Self(steps: [.waitForCancel] + self.steps) }

    /// Sends frames with a wrong checksum. A format without checksums has nothing to corrupt.
    public func corrupted() -> Self { self.changingSends { $0.flaws.corruptsChecksum = true } }

    /// Sends headers that announce a payload of `length` bytes, regardless of its actual length. A codec's frames
    /// are unchanged.
    package func announcing(length: UInt32) -> Self { self.changingSends { $0.flaws.announcedLength = length } }

    /// Sends answers, items and credits with this serial instead of the request's. With the serial of a stream they
    /// belong to it, and need no request.
    public func withSerial(_ serial: UInt32) -> Self { self.changingOutput { $0.serial = serial } }

    /// Sends frames with this metadata before their body, whether or not that was agreed on by hello. Metadata of
    /// more than 64 values or 16 KiB is omitted.
    public func withMetadata(_ values: [String: String]) -> Self { self.changingOutput { $0.metadata = values } }

    /// Sends frames with a compressed body, whether or not hello agreed on it. A body that does not become smaller
    /// is sent uncompressed.
    public func compressed() -> Self { self.changingOutput { $0.isCompressed = true } }
}
