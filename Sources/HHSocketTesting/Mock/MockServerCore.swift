// SPDX-License-Identifier: Apache-2.0
import DequeModule
import HHSocket
import NIOConcurrencyHelpers
import NIOCore

/// The state that the connections of a ``MockServer`` share.
final class MockServerCore: Sendable {
    struct Rules {
        var standing: [UInt32: MockServer.Reaction] = [:]
        var once: [UInt32: Deque<MockServer.Reaction>] = [:]
        var other = MockServer.Reaction.status(.undefinedType)
        var connect = MockServer.Reaction.drop
        var connectByNumber: [Int: MockServer.Reaction] = [:]
        /// The reactions to the items of streams, and to the end of the items, by the stream's type.
        var items: [UInt32: MockServer.Reaction] = [:]
        var ends: [UInt32: MockServer.Reaction] = [:]
        /// The features accepted by hello; nil if hello is not answered.
        var features: Set<ProtocolFeature>?
        /// The windows and the number of streams that hello announces.
        var streams = StreamPolicy()
    }

    let port: MockPort
    let format: WireFormat
    /// The openings of WebSockets; nil if frames are exchanged over plain TCP.
    let openings: MockOpenings?
    let rules = NIOLockedValueBox(Rules())
    let received = EventLog<MockServer.Received>()
    /// The connections that can carry frames: over WebSocket those that are open.
    let accepted = EventLog<MockServer.Connection>()
    /// The last words of WebSockets.
    let closeFrames = EventLog<MockWebSocketServer.Received>()

    init(
        format: WireFormat,
        openings: MockOpenings?,
        seed: UInt64,
        sleep: @escaping @Sendable (Duration) async throws -> Void
    ) {
        self.port = MockPort(seed: seed, sleep: sleep)
        self.format = format
        self.openings = openings
    }

    func start(port: Int) async throws {
        try await self.port.start(port: port) { [weak self] port in
            self.map { MockSession(core: $0, port: port) }
        }
    }

    var endpoint: Endpoint {
        let address = self.port.endpoint
        return self.openings.map { Endpoint(address, isSecure: false, path: $0.path ?? "/") } ?? address
    }

    var openConnections: [MockServer.Connection] {
        let over = Set(self.port.ended.events)
        return self.accepted.events.filter { !over.contains($0.number) }
    }

    // MARK: Sessions, on the loop

    /// Adds a connection that can carry frames, and returns the reaction to it.
    func add(_ session: MockSession) -> MockServer.Reaction {
        let number = session.number
        self.accepted.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.port.loop)))
        return self.rules.withLockedValue { $0.connectByNumber[number] ?? $0.connect }
    }

    /// Returns the reaction to a request; nil if there is no rule.
    func reaction(to type: UInt32) -> MockServer.Reaction? {
        self.rules.withLockedValue { rules in
            if let next = rules.once[type]?.popFirst() { return next }
            return rules.standing[type] ?? (self.format.isControlType(type) ? nil : rules.other)
        }
    }

    /// Returns the reaction to an item, or to the end of the items, of streams of a type; nil if there is no rule.
    func reaction(to type: UInt32, ofStream streamType: UInt32) -> MockServer.Reaction? {
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
            HelloAnswer.answer(
                to: payload,
                features: $0,
                windows: streams.windows,
                maximumStreams: streams.streamLimit
            )
        }
    }
}
