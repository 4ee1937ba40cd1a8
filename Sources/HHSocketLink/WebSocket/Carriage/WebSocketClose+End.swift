// SPDX-License-Identifier: Apache-2.0
extension WebSocketClose {
    /// Whether a client stops after a peer's close frame with this code (the ranges are Centrifugo's).
    static func endsLink(code: UInt16) -> Bool {
        switch code {
        case 3_500...3_999, 4_500...4_999: true
        default: false
        }
    }

    /// The end that a server's close frame means to a link of frames.
    var end: LinkEnd { self.end { !Self.endsLink(code: $0) } }

    /// The end that the peer's close frame means.
    ///
    /// - Parameter reconnects: Whether another connection is made after a code.
    package func end(reconnects: (UInt16) -> Bool) -> LinkEnd {
        let closure = WebSocketClosure(self)
        let error = SocketError(.connectionLost, message: "\(closure)", underlying: closure, delivery: .sentUnknown)
        return LinkEnd(.said(error), EndVerdict(reconnects(closure.code) ? .afterBackoff : .never))
    }
}
