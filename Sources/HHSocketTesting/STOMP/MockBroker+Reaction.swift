// SPDX-License-Identifier: Apache-2.0
public import HHSocketSTOMP
import NIOCore

extension MockBroker {
    /// A reaction of a ``MockBroker`` to a frame, a connection, or a test's request.
    ///
    /// Reactions are composed of simple ones, modified, and combined in sequence:
    ///
    /// ```swift
    /// .handle
    /// .handle.delayed(by: .seconds(2))
    /// .error("no permission").then(.disconnect)
    /// .frame(STOMPFrame(.receipt, ["receipt-id": "unknown"]))
    /// .handle.then(.goSilent)
    /// .endsOfLines(3)
    /// .raw("MESSAGE\nno colon\n\n\0")
    /// ```
    ///
    /// Frames that a reaction sends without a wait in between go out in one write, so that a client finds them in one
    /// read. A reaction that requires a frame, such as ``handle``, does nothing without one.
    public struct Reaction: Sendable {
        enum Source: Sendable {
            /// The answer by the rules of a broker.
            case handle(confirms: Bool)
            case frame(STOMPFrame)
            /// ERROR, with the receipt that the frame asks for.
            case error(STOMPFrame)
            /// The receipt that the frame asks for.
            case receipt
            case raw(ByteBuffer)
        }

        struct Sending: Sendable {
            var source: Source
            var copies = 1
            var dribble: Dribble?
            var keptBytes: Int?
        }

        typealias Step = MockStep<Sending, Received>

        var steps: [Step]

        private init(_ steps: [Step]) {
            self.steps = steps
        }

        private init(_ source: Source) {
            self.steps = [.send(Sending(source: source))]
        }

        // MARK: A broker's

        /// Behaves like a broker. Modifiers of bytes do not apply to its answers.
        public static var handle: Reaction { Reaction(.handle(confirms: true)) }

        /// Behaves like a broker, but loses the receipt.
        public static var handleWithoutReceipt: Reaction { Reaction(.handle(confirms: false)) }

        /// Sends the receipt that the frame asks for, and does nothing else: the frame is lost.
        public static var receipt: Reaction { Reaction(.receipt) }

        /// Loses the frame.
        public static var drop: Reaction { Reaction([Step]()) }

        // MARK: Frames

        /// Sends ERROR, with the id of the receipt that the frame asks for. The connection stays open;
        /// `.then(.disconnect)` closes it, as the specification requires.
        ///
        /// - Parameters:
        ///   - message: The header `message`.
        ///   - headers: Further headers; none by default.
        ///   - body: The body; empty by default.
        public static func error(_ message: String, headers: STOMPHeaders = [:], body: String = "") -> Reaction {
            var frame = STOMPFrame(.error, headers, body: ByteBuffer(string: body))
            frame.headers["message"] = message
            return Reaction(.error(frame))
        }

        /// Sends a frame, in the version of the connection, whether or not a broker may send it.
        public static func frame(_ frame: STOMPFrame) -> Reaction { Reaction(.frame(frame)) }

        /// Sends ends of lines, which are heart-beats.
        public static func endsOfLines(_ count: Int = 1) -> Reaction {
            .raw([UInt8](repeating: STOMPEncoder.endOfLine, count: max(0, count)))
        }

        /// Sends bytes unchanged.
        public static func raw(_ bytes: some Sequence<UInt8>) -> Reaction { Reaction(.raw(ByteBuffer(bytes: bytes))) }

        /// Sends this text's UTF-8.
        public static func raw(_ text: String) -> Reaction { .raw(text.utf8) }

        /// Chooses a reaction to the received frame: `{ $0.headers["destination"] == "/queue/a" ? .drop : .handle }`.
        /// Runs on the broker's event loop, in the order in which frames arrive, and must not block.
        public static func respond(_ decide: @escaping @Sendable (Received) -> Reaction) -> Reaction {
            Reaction([.decide { decide($0).steps }])
        }

        /// Performs one of `reactions`, chosen by the broker's seeded generator.
        public static func oneOf(_ reactions: Reaction...) -> Reaction {
            Reaction([.choose(reactions.map(\.steps))])
        }

        // MARK: What is done to the connection

        /// Closes the connection after everything that was sent before.
        public static var disconnect: Reaction { Reaction([.close]) }

        /// Resets the connection (RST), which may discard bytes that were sent but not read yet.
        public static var reset: Reaction { Reaction([.reset]) }

        /// Closes the broker's direction of TCP, after everything that was sent before, and continues reading.
        public static var halfClose: Reaction { Reaction([.halfClose]) }

        /// Stops reading and sending on this connection, heart-beats included, without closing it, like a machine with
        /// an unplugged cable.
        public static var goSilent: Reaction { Reaction([.goSilent]) }

        /// Stops reading from this connection; output and heart-beats are still sent.
        public static var stopReading: Reaction { Reaction([.stopReading]) }

        /// Ends ``goSilent`` and ``stopReading``. Output during the silence is lost.
        public static var wakeUp: Reaction { Reaction([.wakeUp]) }

        // MARK: Adverbs

        /// Waits first, by the broker's clock. Other frames are reacted to meanwhile.
        public func delayed(by duration: Duration) -> Reaction { Reaction([.wait(duration)] + self.steps) }

        /// Waits until `count` frames, on any connections, have reached this reaction; then they are reacted to in this
        /// order. The next `count` make the next group.
        public func held(until count: Int, release order: MockServer.ReleaseOrder = .inOrder) -> Reaction {
            Reaction([.hold(MockGate(count: count, order: order))] + self.steps)
        }

        /// Sends a few bytes at a time, in separate writes, and over WebSocket in separate messages. Nothing else is
        /// sent on the connection meanwhile.
        ///
        /// - Parameters:
        ///   - bytes: The number of bytes in one write; 1 by default.
        ///   - interval: The time between two writes, by the broker's clock; none by default.
        public func dribbled(bytes: Int = 1, every interval: Duration = .zero) -> Reaction {
            self.changingSends { $0.dribble = Dribble(bytes: max(1, bytes), interval: interval) }
        }

        /// Sends only the first `bytes` bytes of each frame.
        public func cut(after bytes: Int) -> Reaction { self.changingSends { $0.keptBytes = bytes } }

        /// Repeats every send `count` times.
        public func times(_ count: Int) -> Reaction { self.changingSends { $0.copies = max(0, count) } }

        // MARK: Rows

        /// Performs this reaction, then `next`.
        public func then(_ next: Reaction) -> Reaction { Reaction(self.steps + next.steps) }

        /// Performs all of them in this order. Frames that they send without waiting go out in one write.
        public static func glued(_ reactions: Reaction...) -> Reaction { Reaction(reactions.flatMap(\.steps)) }

        private func changingSends(_ change: @escaping @Sendable (inout Sending) -> Void) -> Reaction {
            Reaction(self.steps.map { $0.changingSends(change) })
        }
    }
}
