// SPDX-License-Identifier: Apache-2.0
public import HHSocketSTOMP
import NIOCore

extension STOMPWire {
    /// The frames that a ``MockBroker`` can send, right or wrong. A ``MockReaction`` makes them.
    public struct Output: Sendable {
        enum Source: Sendable {
            /// The answer by the rules of a broker.
            case handle(confirms: Bool)
            case frame(STOMPFrame)
            /// ERROR, with the receipt that the frame asks for.
            case error(STOMPFrame)
            /// The receipt that the frame asks for.
            case receipt
        }

        var source: Source
    }
}

extension MockReaction where Wire == STOMPWire {
    init(_ source: STOMPWire.Output.Source) {
        self.init(STOMPWire.Output(source: source))
    }

    // MARK: A broker's

    /// Behaves like a broker. Modifiers of bytes do not apply to its answers.
    public static var handle: Self { Self(.handle(confirms: true)) }

    /// Behaves like a broker, but loses the receipt.
    public static var handleWithoutReceipt: Self { Self(.handle(confirms: false)) }

    /// Sends the receipt that the frame asks for, and does nothing else: the frame is lost.
    public static var receipt: Self { Self(.receipt) }

    // MARK: Frames

    /// Sends ERROR, with the id of the receipt that the frame asks for. The connection stays open;
    /// `.then(.disconnect)` closes it, as the specification requires.
    ///
    /// - Parameters:
    ///   - message: The header `message`.
    ///   - headers: Further headers; none by default.
    ///   - body: The body; empty by default.
    public static func error(_ message: String, headers: STOMPHeaders = [:], body: String = "") -> Self {
        var frame = STOMPFrame(.error, headers, body: ByteBuffer(string: body))
        frame.headers["message"] = message
        return Self(.error(frame))
    }

    /// Sends a frame, in the version of the connection, whether or not a broker may send it.
    public static func frame(_ frame: STOMPFrame) -> Self { Self(.frame(frame)) }

    /// Sends ends of lines, which are heart-beats.
    package static func endsOfLines(_ count: Int = 1) -> Self {
        .raw([UInt8](repeating: STOMPEncoder.endOfLine, count: max(0, count)))
    }
}
