// SPDX-License-Identifier: Apache-2.0
import HHSocketLink

/// A language that a peer speaks: it reports its state to ``ServerPeer``, and carries out the decisions of that. On the
/// peer's event loop.
///
/// No member has a default: a language that is silent about one of the rules does not compile.
protocol PeerSession: AnyObject {
    /// The state by which the peer is judged.
    func state() -> PeerState
    /// The number of requests that the server works on, without those that wait for the peer.
    var workOfOurs: Int { get }
    /// The peer is admitted and registered, also by its identity if that is known, and may be served.
    func opened(_ port: PeerPort, in turn: inout Turn)
    /// The peer sends nothing more, and may still read.
    func inputClosed(in turn: inout Turn)
    /// A ping was sent.
    func beatSent(in turn: inout Turn)
    /// The peer has ended: handlers end, and everything is released. Called once.
    func ended(_ reason: ServerCloseReason)
    /// The identity of the peer has changed.
    func identityChanged(in turn: inout Turn)
    /// Says to the peer why it is closed, and closes the link once that has been sent.
    ///
    /// - Returns: False if that cannot be said: it is closed at once.
    func say(_ farewell: Farewell, in turn: inout Turn) -> Bool
    /// Finishes the work in progress, and then closes.
    func drain(_ policy: ShutdownPolicy, in turn: inout Turn)
    /// The shutdown's patience is over: handlers end.
    ///
    /// - Returns: False if nothing remains to be said: it is closed at once.
    func stop(in turn: inout Turn) -> Bool
    /// The incomplete unit is not awaited any longer, as its length may be wrong.
    ///
    /// - Returns: False if the language has no way to continue.
    func giveUpPartial(in turn: inout Turn) -> Bool
    /// The session's streams; nil for a language that has none.
    var streamHost: (any StreamHost)? { get }
    /// Sends a push, or lets it wait for a slow peer.
    ///
    /// - Returns: Whether it was accepted.
    func push(_ push: SharedPush, in turn: inout Turn) -> Bool
    /// Releases memory that is kept for a peer with almost no traffic.
    func rest()
}
