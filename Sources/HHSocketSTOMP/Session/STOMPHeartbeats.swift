// SPDX-License-Identifier: Apache-2.0
/// The heart-beats of both sides: one side's offer, or the agreement of both.
///
/// STOMP agrees on them when a connection is made: each side says how often it can send, and how often it wants to
/// receive; the longer of the two intervals applies, and a zero means that there are none. STOMP 1.0 has none.
public struct STOMPHeartbeats: Hashable, Sendable {
    /// The longest time without sending; zero for no heart-beats from this side. 10 s by default.
    public var send: Duration
    /// The longest silence of the peer's; zero if none are wanted. 10 s by default.
    public var receive: Duration

    public init(send: Duration = .seconds(10), receive: Duration = .seconds(10)) {
        self.send = send
        self.receive = receive
    }

    /// No heart-beats.
    public static let off = Self(send: .zero, receive: .zero)

    /// The offer in the form of the header.
    package var offer: STOMPHeartBeat {
        STOMPHeartBeat(sends: Self.milliseconds(self.send), receives: Self.milliseconds(self.receive))
    }

    private static func milliseconds(_ duration: Duration) -> Int {
        let (seconds, attoseconds) = duration.components
        guard seconds >= 0, attoseconds >= 0 else { return 0 }
        guard seconds < Int64(UInt32.max) / 1_000 else { return Int(Int32.max) }
        let milliseconds = seconds * 1_000 + attoseconds / 1_000_000_000_000_000
        // A part of a millisecond is not none.
        return milliseconds == 0 && attoseconds > 0 ? 1 : Int(milliseconds)
    }

    /// The agreement of our offer and the peer's.
    package func agreed(with peer: STOMPHeartBeat) -> STOMPHeartbeats {
        func duration(_ milliseconds: Int?) -> Duration { milliseconds.map { .milliseconds($0) } ?? .zero }
        return STOMPHeartbeats(
            send: duration(self.offer.interval(to: peer)),
            receive: duration(peer.interval(to: self.offer))
        )
    }
}
