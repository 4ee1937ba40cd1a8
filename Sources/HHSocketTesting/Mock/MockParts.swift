// SPDX-License-Identifier: Apache-2.0
import DequeModule
import NIOConcurrencyHelpers
import NIOCore

/// The state that the connections of a ``MockPeer`` share.
final class MockParts<Wire: MockWire>: Sendable {
    struct Rules {
        var standing: [Wire.Key: MockReaction<Wire>] = [:]
        var once: [Wire.Key: Deque<MockReaction<Wire>>] = [:]
        /// The reactions to the next things that no rule for their key fits.
        var next: Deque<MockReaction<Wire>> = []
        var other: MockReaction<Wire>
        var open = MockReaction<Wire>.drop
        var openByNumber: [Int: MockReaction<Wire>] = [:]

        /// Returns the reaction that a key has; nil if it has no rule.
        mutating func reaction(to key: Wire.Key) -> MockReaction<Wire>? {
            self.once[key]?.popFirst() ?? self.standing[key]
        }
    }

    let port: MockPort
    /// The state that only this wire has.
    let wire: Wire
    /// The openings of WebSockets; nil over plain TCP.
    let openings: MockOpenings?
    let rules: NIOLockedValueBox<Rules>
    let received = EventLog<Wire.Received>()
    /// The connections that can be used: over WebSocket those that have been opened.
    let opened = EventLog<MockPeer<Wire>.Connection>()

    init(_ wire: Wire, openings: MockOpenings?, on port: MockPort, other: MockReaction<Wire>) {
        self.wire = wire
        self.openings = openings
        self.port = port
        self.rules = NIOLockedValueBox(Rules(other: other))
    }

    /// Adds a connection that can be used, and returns the reaction to it. On the loop.
    func add(_ session: MockSession<Wire>) -> MockReaction<Wire> {
        let number = session.number
        self.opened.append(.init(number: number, session: NIOLoopBound(session, eventLoop: self.port.loop)))
        return self.rules.withLockedValue { $0.openByNumber[number] ?? $0.open }
    }

    /// Returns the reaction to something with this key; nil for something that has no key.
    func reaction(to key: Wire.Key?) -> MockReaction<Wire> {
        self.rules.withLockedValue { rules in
            key.flatMap { rules.reaction(to: $0) } ?? rules.next.popFirst() ?? rules.other
        }
    }
}
