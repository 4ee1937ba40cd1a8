// SPDX-License-Identifier: Apache-2.0
/// The close frame by which a peer ended a WebSocket: ``SocketError/underlying`` of the loss.
public struct WebSocketClosure: Error, Hashable, Sendable {
    /// The code that stands for a close frame without one (RFC 6455, section 7.1.5).
    package static let noCode: UInt16 = 1_005

    /// The code, such as 1000 for a normal end and 1001 for a server that shuts down; 1005 if the frame has none.
    public let code: UInt16
    /// The reason, for people to read; empty if the frame has none.
    public let reason: String

    package init(code: UInt16, reason: String = "") {
        self.code = code
        self.reason = reason
    }

    package init(_ close: WebSocketClose) {
        self.init(code: close.code ?? Self.noCode, reason: close.reason)
    }
}

extension WebSocketClosure: CustomStringConvertible {
    /// `closed: `, the code and the reason.
    public var description: String {
        self.reason.isEmpty ? "closed: \(self.code)" : "closed: \(self.code) \(self.reason)"
    }
}
