// SPDX-License-Identifier: Apache-2.0
/// The receiver of the messages of one connection.
package protocol MessagePeer<Language>: LinkReceiver where Language.Unit: MessageUnit {
    var link: Link<Language> { get }
    /// The messages whose sending has begun.
    var begun: BegunMessages<Language> { get }
}

extension MessagePeer {
    /// Sends a unit, which fails where the link closes or too much waits.
    @_specialize(where Self == WebSocketPeer)
    @_specialize(where Self == LinePeer)
    package func send(_ unit: Language.Unit, in turn: inout Turn) -> Bool { self.begun.send(unit, in: &turn) }

    package func unitWillBeSent(_ unit: Language.Unit, in turn: inout Turn) -> Bool { self.begun.willBeSent(unit) }

    package func unitProgressed(_ outgoing: Outgoing<Language.Unit>, in turn: inout Turn) {
        self.begun.progressed(outgoing)
    }

    package func hasRoom(in turn: inout Turn) -> Bool {
        self.begun.completeSent()
        return false
    }

    package func hasLeft(in turn: inout Turn) { self.begun.completeSent() }
}
