// SPDX-License-Identifier: Apache-2.0
/// The state of a peer, as its language sees it; the link knows the rest. Without default values.
struct PeerState {
    /// The number of units received that show progress. It only grows.
    var units: Int
    /// Whether the peer has sent what must come first, if anything must.
    var isIntroduced: Bool
    /// The number of bytes received of payloads that arrive in pieces, which only grows; nil if none is incomplete, or
    /// if the peer may send no more of them now.
    var pieceBytes: Int?
    /// Whether the peer may be silent, because something is open for it.
    var isBusy: Bool
    /// Whether a peer that only listens may be silent, too.
    var mayListen: Bool
    /// Whether reading is suspended since our own code is behind.
    var isHeldByUs: Bool
    /// Whether reading is suspended since the peer takes too little.
    var isHeldByPeer: Bool
    /// The number of bytes that wait for the peer, as far as there is a limit on them.
    var waitingBytes: Int
    /// The number of control frames received that the language does not charge by itself. It only grows.
    var controlFrames: Int
}
