// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOCore

extension MockWebSocketServer {
    /// A reaction of a ``MockWebSocketServer`` to a message, a control frame, an opening, or a test's request.
    ///
    /// Reactions are composed of simple ones, modified, and combined in sequence:
    ///
    /// ```swift
    /// .echo
    /// .text("fine").delayed(by: .seconds(2))
    /// .echo.fragmented(length: 3).dribbled()
    /// .glued(.text("before"), .frame(.text("masked").masked()))
    /// .frame(.binary([1, 2, 3]).announcing(length: .max))
    /// .close(code: 1012, reason: "restart")
    /// .disconnect
    /// ```
    ///
    /// Frames that a reaction sends without a wait in between go out in one write, so that a client finds them in one
    /// read. A reaction that requires a message, such as ``echo``, sends nothing without one.
    public struct Reaction: Sendable {
        enum Source: Sendable {
            /// The received message.
            case echo
            case message(WebSocketMessage)
            /// A pong with the payload of the received ping.
            case pong
            /// A close frame with the code of the received one, unless one was sent before.
            case answeredClose
            case frame(WebSocketFrame)
            case raw(ByteBuffer)
        }

        struct Sending: Sendable {
            var source: Source
            var copies = 1
            var dribble: Dribble?
            var keptBytes: Int?
            var fragmentLength: Int?
            var isCompressed = false
        }

        typealias Step = MockStep<Sending, Received>

        var steps: [Step]

        private init(_ steps: [Step]) {
            self.steps = steps
        }

        private init(_ source: Source) {
            self.steps = [.send(Sending(source: source))]
        }

        // MARK: Messages

        /// Sends the received message back.
        public static var echo: Reaction { Reaction(.echo) }

        /// Sends a text message.
        public static func text(_ text: String) -> Reaction { .message(WebSocketMessage(text)) }

        /// Sends a binary message.
        public static func binary(_ bytes: some Sequence<UInt8>) -> Reaction { .message(WebSocketMessage(bytes)) }

        /// Sends a message; a text may be one that is not UTF-8.
        public static func message(_ message: WebSocketMessage) -> Reaction { Reaction(.message(message)) }

        /// Chooses a reaction to the received message: `{ $0.connection == 0 ? .disconnect : .echo }`. Runs on the
        /// server's event loop, in the order in which messages arrive, and must not block.
        public static func respond(_ decide: @escaping @Sendable (Received) -> Reaction) -> Reaction {
            Reaction([.decide { decide($0).steps }])
        }

        /// Performs one of `reactions`, chosen by the server's seeded generator.
        public static func oneOf(_ reactions: Reaction...) -> Reaction {
            Reaction([.choose(reactions.map(\.steps))])
        }

        /// Does nothing.
        public static var drop: Reaction { Reaction([Step]()) }

        // MARK: Frames

        /// Sends a ping.
        public static func ping(_ payload: String = "") -> Reaction { .frame(.ping(ByteBuffer(string: payload))) }

        /// Sends a pong with the payload of the received ping; without a ping, an empty one.
        public static var pong: Reaction { Reaction(.pong) }

        /// Sends a close frame, with any code. The client's answer ends TCP.
        public static func close(code: UInt16 = 1_000, reason: String = "") -> Reaction {
            .frame(.close(code: code, reason: reason))
        }

        /// Answers a close frame with its code, unless a close frame was sent before, and ends TCP.
        static var answeredClose: Reaction { Reaction(.answeredClose).then(.disconnect) }

        /// Sends a frame, right or wrong.
        public static func frame(_ frame: WebSocketFrame) -> Reaction { Reaction(.frame(frame)) }

        /// Sends arbitrary bytes.
        public static func raw(_ bytes: some Sequence<UInt8>) -> Reaction { Reaction(.raw(ByteBuffer(bytes: bytes))) }

        // MARK: What is done to the connection

        /// Closes TCP after everything that was sent before, without a close frame.
        public static var disconnect: Reaction { Reaction([.close]) }

        /// Resets the connection (RST), which may discard bytes that were sent but not read yet.
        public static var reset: Reaction { Reaction([.reset]) }

        /// Closes the server's direction of TCP, after everything that was sent before, and continues reading.
        public static var halfClose: Reaction { Reaction([.halfClose]) }

        /// Stops reading and sending on this connection without closing it, like a machine with an unplugged cable.
        public static var goSilent: Reaction { Reaction([.goSilent]) }

        /// Stops reading from this connection; output is still sent.
        public static var stopReading: Reaction { Reaction([.stopReading]) }

        /// Ends ``goSilent`` and ``stopReading``. Output during the silence is lost.
        public static var wakeUp: Reaction { Reaction([.wakeUp]) }

        // MARK: Adverbs

        /// Waits first, by the server's clock. Other messages are reacted to meanwhile.
        public func delayed(by duration: Duration) -> Reaction { Reaction([.wait(duration)] + self.steps) }

        /// Waits until `count` messages, on any connections, have reached this reaction; then they are reacted to in
        /// this order, those of one connection in one write. The next `count` messages form the next group.
        public func held(until count: Int, release order: MockServer.ReleaseOrder = .inOrder) -> Reaction {
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

        /// Sends messages in frames that carry at most `length` bytes each.
        public func fragmented(length: Int) -> Reaction {
            self.changingSends { $0.fragmentLength = max(1, length) }
        }

        /// Sends messages compressed, whether or not that was agreed on. An empty message is sent uncompressed.
        public func compressed() -> Reaction { self.changingSends { $0.isCompressed = true } }

        /// Sends only the first `bytes` bytes of each frame.
        public func cut(after bytes: Int) -> Reaction { self.changingSends { $0.keptBytes = bytes } }

        /// Sends everything `count` times.
        public func times(_ count: Int) -> Reaction { self.changingSends { $0.copies = max(0, count) } }

        /// Sends everything twice.
        public func twice() -> Reaction { self.times(2) }

        // MARK: Rows

        /// Performs this reaction, then `next`. A wait in either delays everything after it.
        public func then(_ next: Reaction) -> Reaction { Reaction(self.steps + next.steps) }

        /// Performs all of them in this order. Frames that they send without waiting go out in one write.
        public static func glued(_ reactions: Reaction...) -> Reaction { Reaction(reactions.flatMap(\.steps)) }

        /// Performs all of them in this order.
        public static func glued(_ reactions: [Reaction]) -> Reaction { Reaction(reactions.flatMap(\.steps)) }

        private func changingSends(_ change: @escaping @Sendable (inout Sending) -> Void) -> Reaction {
            Reaction(self.steps.map { $0.changingSends(change) })
        }
    }
}
