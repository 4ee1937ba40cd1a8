// SPDX-License-Identifier: Apache-2.0
import HHSocket
public import NIOCore

/// The wire of a ``LineServer``: lines.
public struct LineWire: MockWire {
    /// The text of a line.
    public typealias Key = String

    let delimiter: LineDelimiter

    /// A line received from a client.
    public struct Received: Sendable, Hashable, SummarizedEvent {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public package(set) var connection: Int
        /// The line without its delimiter.
        public package(set) var bytes: ByteBuffer

        /// The line as text; nil if it is not UTF-8.
        public var text: String? { try? ReceivedLine(bytes: self.bytes).text }

        var summary: String { "\(self.text ?? "\(self.bytes)") on connection \(self.connection)" }
    }

    /// A line that a ``LineServer`` can send. A ``MockReaction`` makes it.
    public struct Output: Sendable {
        enum Source: Sendable {
            /// The received line.
            case echo
            case line(ByteBuffer)
        }

        let source: Source
    }
}

extension MockReaction where Wire == LineWire {
    /// Sends the received line back.
    public static var echo: Self { Self(LineWire.Output(source: .echo)) }

    /// Sends a line of text.
    public static func line(_ text: String) -> Self { .line(text.utf8) }

    /// Sends a line of bytes.
    package static func line(_ bytes: some Sequence<UInt8>) -> Self {
        Self(LineWire.Output(source: .line(ByteBuffer(bytes: bytes))))
    }
}
