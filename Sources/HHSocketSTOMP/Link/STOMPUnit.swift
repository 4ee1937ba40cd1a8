// SPDX-License-Identifier: Apache-2.0
package import HHSocketLink
package import NIOCore

/// A frame that a link sends, or a heart-beat.
package struct STOMPUnit: MessageUnit {
    /// Nil for a heart-beat, which is an end of line.
    package var frame: STOMPFrame?
    package var outcome: MessageOutcome?
    package var isOfOneConnection: Bool

    /// - Parameter isOfOneConnection: Whether another connection must not send it: all but SEND outside of
    ///   transactions.
    package init(_ frame: STOMPFrame, _ outcome: MessageOutcome?, isOfOneConnection: Bool) {
        self.frame = frame
        self.outcome = outcome
        self.isOfOneConnection = isOfOneConnection
    }

    private init() {
        self.isOfOneConnection = true
    }

    package static let heartbeat = Self()

    package var payload: ByteBuffer { self.frame?.body ?? ByteBuffer() }
}
