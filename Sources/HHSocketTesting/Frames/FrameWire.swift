// SPDX-License-Identifier: Apache-2.0
public import HHSocket
import NIOConcurrencyHelpers
public import NIOCore

/// The wire of a ``MockServer``: frames over plain TCP or over WebSocket, in any format.
public final class FrameWire: WebSocketWire {
    /// The type of a request.
    public typealias Key = UInt32

    /// The rules that only frames have.
    struct Rules {
        /// The reactions to the items of streams, and to the end of the items, by the stream's type.
        var items: [UInt32: MockReaction<FrameWire>] = [:]
        var ends: [UInt32: MockReaction<FrameWire>] = [:]
        /// The features accepted by hello; nil if hello is not answered.
        var features: Set<ProtocolFeature>?
        /// The windows and the number of streams that hello announces.
        var streams = StreamPolicy()
    }

    let format: WireFormat
    let rules = NIOLockedValueBox(Rules())
    /// The last words of WebSockets.
    let closeFrames = EventLog<MessageWire.Received>()

    init(format: WireFormat) {
        self.format = format
    }

    /// Returns the reaction to an item, or to the end of the items, of streams of a type; nil if there is no rule.
    func reaction(to type: UInt32, ofStream streamType: UInt32) -> MockReaction<FrameWire>? {
        self.rules.withLockedValue { rules in
            switch type {
            case FrameType.item: rules.items[streamType]
            case FrameType.end: rules.ends[streamType]
            default: nil
            }
        }
    }

    /// Returns the answer to a hello without a rule; nil for none.
    func answer(toHello payload: ByteBuffer) -> HelloAnswer? {
        let (features, streams) = self.rules.withLockedValue { ($0.features, $0.streams) }
        return features.map {
            .answer(to: payload, features: $0, windows: streams.windows, maximumStreams: streams.streamLimit)
        }
    }

    /// A frame received from a client.
    public struct Received: Sendable, Hashable, SummarizedEvent {
        /// The number of its connection, counted from 0 in the order in which connections were accepted.
        public package(set) var connection: Int
        /// The frame; on a connection that has agreed on metadata or compression without the flags and the envelope.
        public package(set) var frame: Frame
        /// Whether its checksum was wrong.
        package var isCorrupt: Bool
        /// The metadata before the body, by name.
        public package(set) var metadata: [String: String] = [:]
        /// The time that the client allows for the answer; nil if it set none.
        public package(set) var deadline: Duration?
        /// The request's idempotency key; nil without one.
        public package(set) var idempotencyKey: String?
        /// Whether its body was compressed.
        package var isCompressed = false
        /// The type of the stream that an item, the end of the items, a credit or a cancel belongs to; nil for any
        /// other frame. Their own types are control types.
        package var streamType: UInt32?
        /// The number of frames that it was received in: more than 1 if its payload was sent in pieces, which requires
        /// a connection with streams.
        package var pieces = 1

        package var type: UInt32 { self.frame.type }
        package var serial: UInt32 { self.frame.serial }
        /// The payload.
        public var body: ByteBuffer { self.frame.payload }
        /// The payload as text; bytes that are not UTF-8 are replaced.
        public var string: String { String(buffer: self.frame.payload) }

        var summary: String {
            "type \(self.type) serial \(self.serial) \(self.body.readableBytes) B on connection \(self.connection)"
                + (self.isCorrupt ? ", checksum wrong" : "")
        }
    }
}
