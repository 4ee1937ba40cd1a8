// SPDX-License-Identifier: Apache-2.0
public import HHSocket

/// An event of a client.
public enum STOMPEvent: Sendable {
    /// A broker has accepted the connection.
    case opened(STOMPAgreement)
    /// An accepted connection has ended, by this error; nil: the user ended it, and is notified when the connection is
    /// closed. The error's `underlying` is a ``STOMPServerError`` if the broker has sent ERROR.
    case closed(SocketError?)
    /// A message of no subscription has arrived.
    case unclaimed(STOMPMessage)
    /// Another event of the connection.
    case connection(SocketEvent)
}
