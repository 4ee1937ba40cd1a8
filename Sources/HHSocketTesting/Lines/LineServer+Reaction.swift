// SPDX-License-Identifier: Apache-2.0
import NIOCore

extension LineServer {
    /// A reaction of a ``LineServer`` to a line, a connection, or a test's request.
    ///
    /// Reactions are composed of simple ones, modified, and combined in sequence:
    ///
    /// ```swift
    /// .echo
    /// .line("fine").delayed(by: .seconds(2))
    /// .line("ä").dribbled()
    /// .line("half of it").cut(after: 4).then(.disconnect)
    /// .raw([0xFF, 0x0A])
    /// ```
    ///
    /// Lines that a reaction sends without a wait in between go out in one write, so that a client finds them in one
    /// read. A reaction that requires a line, such as ``echo``, sends nothing without one.
    public struct Reaction: Sendable {
        enum Source: Sendable {
            /// The received line.
            case echo
            case line(ByteBuffer)
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

        // MARK: Lines

        /// Sends the received line back.
        public static var echo: Reaction { Reaction(.echo) }

        /// Sends a line of text.
        public static func line(_ text: String) -> Reaction { Reaction(.line(ByteBuffer(string: text))) }

        /// Sends a line of bytes.
        public static func line(_ bytes: some Sequence<UInt8>) -> Reaction { Reaction(.line(ByteBuffer(bytes: bytes))) }

        /// Sends bytes unchanged, without a delimiter.
        public static func raw(_ bytes: some Sequence<UInt8>) -> Reaction { Reaction(.raw(ByteBuffer(bytes: bytes))) }

        /// Chooses a reaction to the received line: `{ $0.connection == 0 ? .disconnect : .echo }`. Runs on the
        /// server's event loop, in the order in which lines arrive, and must not block.
        public static func respond(_ decide: @escaping @Sendable (Received) -> Reaction) -> Reaction {
            Reaction([.decide { decide($0).steps }])
        }

        /// Performs one of `reactions`, chosen by the server's seeded generator.
        public static func oneOf(_ reactions: Reaction...) -> Reaction {
            Reaction([.choose(reactions.map(\.steps))])
        }

        /// Does nothing.
        public static var drop: Reaction { Reaction([Step]()) }

        // MARK: What is done to the connection

        /// Closes TCP after everything that was sent before.
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

        /// Waits first, by the server's clock. Other lines are reacted to meanwhile.
        public func delayed(by duration: Duration) -> Reaction { Reaction([.wait(duration)] + self.steps) }

        /// Waits until `count` lines, on any connections, have reached this reaction; then they are reacted to in this
        /// order, those of one connection in one write. The next `count` lines form the next group.
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

        /// Sends only the first `bytes` bytes of each line, its delimiter included.
        public func cut(after bytes: Int) -> Reaction { self.changingSends { $0.keptBytes = bytes } }

        /// Sends everything `count` times.
        public func times(_ count: Int) -> Reaction { self.changingSends { $0.copies = max(0, count) } }

        // MARK: Rows

        /// Performs this reaction, then `next`. A wait in either delays everything after it.
        public func then(_ next: Reaction) -> Reaction { Reaction(self.steps + next.steps) }

        /// Performs all of them in this order. Lines that they send without waiting go out in one write.
        public static func glued(_ reactions: Reaction...) -> Reaction { Reaction(reactions.flatMap(\.steps)) }

        private func changingSends(_ change: @escaping @Sendable (inout Sending) -> Void) -> Reaction {
            Reaction(self.steps.map { $0.changingSends(change) })
        }
    }
}
