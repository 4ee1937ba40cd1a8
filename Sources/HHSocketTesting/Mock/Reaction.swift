// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

extension MockServer {
    /// A reaction of a ``MockServer`` to a request, a new connection, or a test's request.
    ///
    /// Reactions are composed of simple ones, modified, and combined in sequence:
    ///
    /// ```swift
    /// .echo
    /// .answer("hello").delayed(by: .seconds(2))
    /// .status(.overloaded)
    /// .echo.dribbled()
    /// .echo.cut(after: 10).then(.reset)
    /// .glued(.push(2001, "news"), .echo, .push(2001, "more"))
    /// .echo.held(until: 3, release: .reversed)
    /// ```
    ///
    /// Frames that a reaction sends without a wait in between go out in one write, so that a client finds them in one
    /// read. A reaction that requires a request, such as ``echo``, sends nothing without one.
    public struct Reaction: Sendable {
        enum Source: Sendable {
            /// An answer with the request's type, serial and payload.
            case echo
            /// An answer with the request's type and serial.
            case answer(Status, ByteBuffer)
            case frame(Frame)
            case push(UInt32, ByteBuffer)
            /// A ping of the server; nil for the format's serial. The client's answer is not answered.
            case ping(UInt32?)
            case raw(ByteBuffer)
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

        struct Sending: Sendable {
            var source: Source
            var copies = 1
            var serial: UInt32?
            var flaws = Flaws()
            var dribble: Dribble?
            var metadata: [String: String]?
            var isCompressed = false
            /// The most bytes of the payload in one frame; nil for all.
            var pieceLength: Int?
            /// Whether the last piece announces further pieces.
            var isUnfinished = false
        }

        typealias Step = MockStep<Sending, Received>

        var steps: [Step]

        private init(_ steps: [Step]) {
            self.steps = steps
        }

        init(_ source: Source) {
            self.steps = [.send(Sending(source: source))]
        }

        // MARK: Answers

        /// Answers with the request's own payload and status 200.
        public static var echo: Reaction { Reaction(.echo) }

        /// Answers with this payload.
        ///
        /// - Parameters:
        ///   - body: The payload.
        ///   - status: 200 by default; any 32 bits. In a format without statuses nothing is sent for any other.
        public static func answer(_ body: ByteBuffer, status: Status = .ok) -> Reaction {
            Reaction(.answer(status, body))
        }

        /// Answers with this text's UTF-8 as payload.
        ///
        /// - Parameters:
        ///   - body: The payload.
        ///   - status: 200 by default; any 32 bits.
        public static func answer(_ body: String, status: Status = .ok) -> Reaction {
            .answer(ByteBuffer(string: body), status: status)
        }

        /// Answers with this status, listed or not, and an empty payload.
        public static func status(_ status: Status) -> Reaction { .answer(ByteBuffer(), status: status) }

        /// Answers with status 504: the server is about to end and has not run the request.
        public static var draining: Reaction { .status(.draining) }

        /// Decides upon the request: `{ $0.connection == 0 ? .reset : .echo }`. Runs on the server's event loop, in the
        /// order of the requests, and must not block.
        public static func respond(_ decide: @escaping @Sendable (Received) -> Reaction) -> Reaction {
            Reaction([.decide { decide($0).steps }])
        }

        /// Performs one of `reactions`, chosen by the server's seeded generator.
        public static func oneOf(_ reactions: Reaction...) -> Reaction {
            Reaction([.choose(reactions.map(\.steps))])
        }

        /// Never answers.
        public static var drop: Reaction { Reaction([Step]()) }

        // MARK: Other things to send

        /// Sends a push: in the standard format with serial 1 and status 200.
        public static func push(_ type: UInt32, _ body: ByteBuffer = ByteBuffer()) -> Reaction {
            Reaction(.push(type, body))
        }

        /// Sends a push with this text's UTF-8 as payload.
        public static func push(_ type: UInt32, _ body: String) -> Reaction {
            .push(type, ByteBuffer(string: body))
        }

        /// Sends a ping: in the standard format a heartbeat with status 0. The client's answer is recorded but not
        /// answered.
        ///
        /// - Parameter serial: By default the format's, 5 in the standard format; clients answer reserved serials.
        public static func ping(serial: UInt32? = nil) -> Reaction {
            Reaction(.ping(serial))
        }

        /// Sends a go-away: the server is about to end.
        ///
        /// - Parameters:
        ///   - reason: The reason, as text for people; empty by default.
        ///   - retryAfter: The time that clients should stay away, in whole milliseconds; zero by default.
        ///   - endpoints: Servers that may be used instead, best first; none by default.
        public static func goAway(
            reason: String = "",
            retryAfter: Duration = .zero,
            endpoints: [Endpoint] = []
        ) -> Reaction {
            .frame(GoAway(reason: reason, retryAfter: retryAfter, endpoints: endpoints).frame)
        }

        /// Sends a frame unchanged, regardless of the request.
        public static func frame(_ frame: Frame) -> Reaction { Reaction(.frame(frame)) }

        /// Sends arbitrary bytes; over WebSocket directly, not in a message.
        public static func raw(_ bytes: ByteBuffer) -> Reaction { Reaction(.raw(bytes)) }

        /// Sends arbitrary bytes.
        public static func raw(_ bytes: some Sequence<UInt8>) -> Reaction { .raw(ByteBuffer(bytes: bytes)) }

        /// Sends a frame of the WebSocket that carries the frames, right or wrong, such as a close frame; nothing over
        /// plain TCP.
        public static func webSocket(_ frame: WebSocketFrame) -> Reaction { Reaction(.webSocket(frame)) }

        // MARK: What is done to the connection

        /// Closes the connection after everything that was sent before; over WebSocket without a close frame.
        public static var close: Reaction { Reaction([.close]) }

        /// Resets the connection (RST), which may discard bytes that were sent but not read yet.
        public static var reset: Reaction { Reaction([.reset]) }

        /// Closes the server's direction, after everything that was sent before, and continues reading.
        public static var halfClose: Reaction { Reaction([.halfClose]) }

        /// Stops reading and sending on this connection without closing it, like a machine with an unplugged cable.
        public static var goSilent: Reaction { Reaction([.goSilent]) }

        /// Stops reading from this connection; output is still sent.
        public static var stopReading: Reaction { Reaction([.stopReading]) }

        /// Ends ``goSilent`` and ``stopReading``. Output during the silence is lost.
        public static var wakeUp: Reaction { Reaction([.wakeUp]) }

        // MARK: Adverbs

        /// Waits first, by the server's clock. Other requests are answered meanwhile.
        public func delayed(by duration: Duration) -> Reaction {
            Reaction([.wait(duration)] + self.steps)
        }

        /// First waits until the client cancels this request: a late answer that does not depend on a clock. In a
        /// format without cancels it is never sent.
        public func late() -> Reaction {
            Reaction([.waitForCancel] + self.steps)
        }

        /// Waits until `count` requests, on any connections, have reached this reaction; then they are answered in this
        /// order, those of one connection in one write. The next `count` requests form the next group.
        public func held(until count: Int, release order: ReleaseOrder = .inOrder) -> Reaction {
            Reaction([.hold(MockGate(count: count, order: order))] + self.steps)
        }

        /// Sends a few bytes at a time, in separate writes. Nothing else is sent on the connection meanwhile.
        ///
        /// - Parameters:
        ///   - bytes: The number of bytes in one write; 1 by default.
        ///   - interval: The time between two writes, by the server's clock; none by default.
        public func dribbled(bytes: Int = 1, every interval: Duration = .zero) -> Reaction {
            self.changingSends { $0.dribble = Dribble(bytes: max(1, bytes), interval: interval) }
        }

        /// Sends frames with a wrong checksum. A format without checksums has nothing to corrupt.
        public func corrupted() -> Reaction {
            self.changingSends { $0.flaws.corruptsChecksum = true }
        }

        /// Sends headers that announce a payload of `length` bytes, regardless of its actual length. A codec's frames
        /// are unchanged.
        public func announcing(length: UInt32) -> Reaction {
            self.changingSends { $0.flaws.announcedLength = length }
        }

        /// Sends only the first `bytes` bytes of each frame.
        public func cut(after bytes: Int) -> Reaction {
            self.changingSends { $0.flaws.keptBytes = bytes }
        }

        /// Sends each frame `count` times.
        public func times(_ count: Int) -> Reaction {
            self.changingSends { $0.copies = max(0, count) }
        }

        /// Sends each frame twice.
        public func twice() -> Reaction { self.times(2) }

        /// Sends answers, items and credits with this serial instead of the request's. With the serial of a stream they
        /// belong to it, and need no request.
        public func withSerial(_ serial: UInt32) -> Reaction {
            self.changingSends { $0.serial = serial }
        }

        /// Sends frames with this metadata before their body, whether or not that was agreed on by hello. Metadata of
        /// more than 64 values or 16 KiB is omitted.
        public func withMetadata(_ values: [String: String]) -> Reaction {
            self.changingSends { $0.metadata = values }
        }

        /// Sends frames with a compressed body, whether or not hello agreed on it. A body that does not become smaller
        /// is sent uncompressed.
        public func compressed() -> Reaction {
            self.changingSends { $0.isCompressed = true }
        }

        // MARK: Rows

        /// Performs this reaction, then `next`. A wait in either delays everything after it.
        public func then(_ next: Reaction) -> Reaction {
            Reaction(self.steps + next.steps)
        }

        /// Performs all of them in this order. Frames that they send without waiting go out in one write.
        public static func glued(_ reactions: Reaction...) -> Reaction {
            Reaction(reactions.flatMap(\.steps))
        }

        /// Performs all of them in this order.
        public static func glued(_ reactions: [Reaction]) -> Reaction { Reaction(reactions.flatMap(\.steps)) }

        func changingSends(_ change: @escaping @Sendable (inout Sending) -> Void) -> Reaction {
            Reaction(self.steps.map { $0.changingSends(change) })
        }
    }

    /// The order in which held requests are answered.
    public enum ReleaseOrder: MockGateOrder, Sendable, Hashable {
        /// The order in which they arrived.
        case inOrder
        /// The last one first.
        case reversed
        /// A random order, by the server's seeded generator.
        case shuffled

        func arrange<Element>(_ held: inout [Element], using generator: inout SplitMix) {
            if self == .reversed { held.reverse() }
            if self == .shuffled { held.shuffle(using: &generator) }
        }
    }

    /// A frame received from a client.
    public struct Received: Sendable, Hashable, CustomStringConvertible {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public var connection: Int
        /// The frame; on a connection that has agreed on metadata or compression without the flags and the envelope.
        public var frame: Frame
        /// Whether its checksum was wrong.
        public var isCorrupt: Bool
        /// The metadata before the body, by name.
        public var metadata: [String: String] = [:]
        /// The time that the client allows for the answer; nil if it set none.
        public var deadline: Duration?
        /// The request's idempotency key; nil without one.
        public var idempotencyKey: String?
        /// Whether its body was compressed.
        public var isCompressed = false
        /// The type of the stream that an item, the end of the items, a credit or a cancel belongs to; nil for any
        /// other frame. Their own types are control types.
        public var streamType: UInt32?
        /// The number of frames that it was received in: more than 1 if its payload was sent in pieces, which requires
        /// a connection with streams.
        public var pieces = 1

        public var type: UInt32 { self.frame.type }
        public var serial: UInt32 { self.frame.serial }
        /// The payload.
        public var body: ByteBuffer { self.frame.payload }
        /// The payload as text; bytes that are not UTF-8 are replaced.
        public var string: String { String(buffer: self.frame.payload) }

        public var description: String {
            "type \(self.type) serial \(self.serial) \(self.body.readableBytes) B on connection \(self.connection)"
                + (self.isCorrupt ? ", checksum wrong" : "")
        }
    }
}
