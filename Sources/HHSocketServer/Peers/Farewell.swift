// SPDX-License-Identifier: Apache-2.0
/// The last words to a peer.
struct Farewell {
    /// The reason for closing the connection, as far as the language has codes for it.
    enum Kind {
        /// The peer has broken a rule, or reached a limit.
        case violation
        /// Nothing is wrong with the peer.
        case departure
        /// Too much is held for the peer, which is to be freed at once.
        case memory
    }

    /// A time for which a client that is closed should stay away from the server, random so that clients do not all
    /// reconnect at once.
    static var randomAbsence: Duration { .milliseconds(Int64.random(in: 1_000...5_000)) }

    var kind: Kind
    var reason: String
    /// The time for which the peer should stay away from this server.
    var retryAfter = Duration.zero
}
