// SPDX-License-Identifier: Apache-2.0
public import HHSocket
public import NIOCore

extension HostileClient {
    /// An action of a ``HostileClient``.
    ///
    /// Acts are composed of simple ones, modified, and combined in sequence:
    ///
    /// ```swift
    /// .request(101, serial: 50, "hello")
    /// .request(101, serial: 50, "hello").corrupted()
    /// .request(101, serial: 50, "hello").cut(after: 14).then(.halfClose)
    /// .request(101, serial: 50).announcing(length: .max)
    /// .requests(101, serials: 50..<10_050)
    /// .garbage(10_000, seed: 7)
    /// ```
    ///
    /// Bytes that are sent without a wait in between go out in one write.
    public struct Act: Sendable {
        enum Source: Sendable {
            case frame(Frame)
            /// One request for each of these serials.
            case requests(Frame, Range<UInt32>)
            /// A cancel of the request with this serial, in the encoding of the format.
            case cancel(UInt32)
            /// A heartbeat; nil for the serial of the format's pings.
            case ping(UInt32?)
            case raw(ByteBuffer)
            /// A request to open a WebSocket.
            case opening(OpeningForge)
            case webSocket([WebSocketFrame])
        }

        struct Sending: Sendable {
            var source: Source
            var copies = 1
            var flaws = Flaws()
            var dribble: Dribble?
        }

        enum Step: Sendable {
            case send(Sending)
            case wait(Duration)
            case stopReading
            case startReading
            case readSlowly(bytes: Int, every: Duration)
            case keepSending([Sending], every: Duration)
            case halfClose
            case close
            case reset
        }

        var steps: [Step]

        private init(_ steps: [Step]) {
            self.steps = steps
        }

        init(_ source: Source) {
            self.steps = [.send(Sending(source: source))]
        }

        // MARK: Frames

        /// A request, or a control frame; any type and any serial. ``frame(_:)`` sends one with other bytes.
        ///
        /// - Parameters:
        ///   - type: The type.
        ///   - serial: The serial.
        ///   - body: The payload, as UTF-8; empty by default.
        public static func request(_ type: UInt32, serial: UInt32, _ body: String = "") -> Act {
            .request(type, serial: serial, ByteBuffer(string: body))
        }

        package static func request(_ type: UInt32, serial: UInt32, _ body: ByteBuffer) -> Act {
            .frame(Frame(type: type, serial: serial, payload: body))
        }

        /// A request for each of these serials, in order.
        public static func requests(
            _ type: UInt32,
            serials: Range<UInt32>,
            _ body: ByteBuffer = ByteBuffer()
        ) -> Act {
            Act(.requests(Frame(type: type, serial: 0, payload: body), serials))
        }

        /// Sends a frame unchanged, except that its status is not sent.
        public static func frame(_ frame: Frame) -> Act { Act(.frame(frame)) }

        /// A cancel of the request with this serial; nothing in a format without cancels.
        public static func cancel(_ serial: UInt32) -> Act { Act(.cancel(serial)) }

        /// A heartbeat.
        ///
        /// - Parameter serial: By default the serial of the format's pings, 0 in the standard format.
        public static func ping(serial: UInt32? = nil) -> Act { Act(.ping(serial)) }

        /// Sends arbitrary bytes; over WebSocket directly, not in a message.
        public static func raw(_ bytes: some Sequence<UInt8>) -> Act { .raw(ByteBuffer(bytes: bytes)) }

        package static func raw(_ bytes: ByteBuffer) -> Act { Act(.raw(bytes)) }

        /// A number of random bytes, which the seed determines.
        public static func garbage(_ count: Int, seed: UInt64 = 0) -> Act {
            var generator = SplitMix(seed: seed)
            var bytes = ByteBuffer()
            while bytes.readableBytes < count { bytes.writeInteger(generator.next()) }
            return .raw(bytes.getSlice(at: 0, length: max(0, count)) ?? bytes)
        }

        // MARK: What is done to the connection

        /// Stops reading.
        public static var stopReading: Act { Act([.stopReading]) }
        /// Resumes reading.
        public static var startReading: Act { Act([.startReading]) }
        /// Reads at most a few bytes after each interval from now on, until ``startReading`` or ``stopReading``.
        ///
        /// The interval is in real time, whatever the client's clock. The system buffers more than the client reads:
        /// give the client a small `receiveBuffer`.
        ///
        /// - Parameters:
        ///   - bytes: The largest number of bytes in one read; at least 1.
        ///   - interval: The time between two reads; at least 1 ms.
        public static func readSlowly(bytes: Int, every interval: Duration) -> Act {
            Act([.readSlowly(bytes: max(1, bytes), every: max(.milliseconds(1), interval))])
        }
        /// Repeats the sends of `act` after each interval from now on, until the connection ends or another such act
        /// replaces it. Nothing waits for it.
        ///
        /// The interval is in real time, whatever the client's clock. A write that is not possible at its time is
        /// skipped.
        ///
        /// - Parameters:
        ///   - act: The act, whose bytes are sent in one write. Its waits, timing modifiers and other actions on the
        ///     connection are ignored.
        ///   - interval: The time between two writes; at least 1 ms.
        public static func keepSending(_ act: Act, every interval: Duration) -> Act {
            let sendings = act.steps.compactMap { step in
                if case .send(let sending) = step { sending } else { nil }
            }
            return Act([.keepSending(sendings, every: max(.milliseconds(1), interval))])
        }
        /// Closes the client's direction, and continues reading.
        public static var halfClose: Act { Act([.halfClose]) }
        /// Closes the connection.
        public static var close: Act { Act([.close]) }
        /// Resets the connection (RST).
        public static var reset: Act { Act([.reset]) }

        // MARK: Adverbs

        /// Waits first, by the client's clock.
        public func delayed(by duration: Duration) -> Act { Act([.wait(duration)] + self.steps) }

        /// Sends a few bytes at a time, in separate writes. Over WebSocket frames are sent with a few bytes in each
        /// message.
        ///
        /// - Parameters:
        ///   - bytes: The number of bytes in one write; 1 by default.
        ///   - interval: The time between two writes, by the client's clock; none by default.
        public func dribbled(bytes: Int = 1, every interval: Duration = .zero) -> Act {
            self.changingSends { $0.dribble = .init(bytes: max(1, bytes), interval: interval) }
        }

        /// Sends frames with a wrong checksum. A format without checksums has nothing to corrupt.
        public func corrupted() -> Act { self.changingSends { $0.flaws.corruptsChecksum = true } }

        /// Sends headers that announce a payload of `length` bytes, regardless of its actual length. A codec's frames
        /// are unchanged.
        public func announcing(length: UInt32) -> Act { self.changingSends { $0.flaws.announcedLength = length } }

        /// Sends only the first `bytes` bytes of each frame, or of an opening.
        public func cut(after bytes: Int) -> Act { self.changingSends { $0.flaws.keptBytes = bytes } }

        /// Sends everything `count` times.
        public func times(_ count: Int) -> Act { self.changingSends { $0.copies = max(0, count) } }

        // MARK: Rows

        /// Performs this act, then `next`.
        public func then(_ next: Act) -> Act { Act(self.steps + next.steps) }

        /// Performs all of them in this order.
        public static func glued(_ acts: Act...) -> Act { Act(acts.flatMap(\.steps)) }

        /// Performs all of them in this order.
        package static func glued(_ acts: [Act]) -> Act { Act(acts.flatMap(\.steps)) }

        private func changingSends(_ change: (inout Sending) -> Void) -> Act {
            Act(
                self.steps.map { step in
                    guard case .send(var sending) = step else { return step }
                    change(&sending)
                    return .send(sending)
                }
            )
        }
    }
}
