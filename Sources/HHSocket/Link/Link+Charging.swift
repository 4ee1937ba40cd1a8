// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// An account that is charged for a link's memory.
package protocol LinkAccount: AnyObject, Sendable {
    /// Changes the number of bytes that the link holds. Called on the link's thread.
    func held(_ change: Int)
}

/// The memory of a link, which is charged to an account: bytes of incomplete units, and bytes that the peer has not
/// taken.
extension Link {
    struct Charge {
        var account: (any LinkAccount)? {
            didSet { self.isOn = self.account != nil }
        }
        /// Whether there is an account. Each turn checks this, and accessing an existential is not cheap.
        private(set) var isOn = false
        /// The number of bytes that are charged.
        var bytes = 0
        /// The last known number of bytes in the channel.
        var channelBytes = 0
        /// The number of bytes sent by then.
        var bytesSent = 0
    }

    /// Charges the link's memory to `account` from now on, until its channel is closed.
    package func charge(to account: any LinkAccount) {
        self.hot.charge.account = account
        self.settle()
    }

    /// The last known number of bytes in the channel: read after each flush while there are any, and otherwise after
    /// each 64 KiB sent.
    package var knownChannelBytes: Int { self.hot.charge.channelBytes }

    /// Charges the memory that is held now.
    package func settleNow() {
        guard self.hot.charge.isOn else { return }
        self.lookAtChannel()
        self.settle()
    }

    @inline(__always)
    func settle() {
        guard self.hot.charge.isOn else { return }
        let held = self.hot.heldBytes
        if held != self.hot.charge.bytes { self.setCharge(held) }
    }

    private func setCharge(_ bytes: Int) {
        let change = bytes - self.hot.charge.bytes
        self.hot.charge.bytes = bytes
        self.hot.charge.account?.held(change)
    }

    // Inlined where the language is known: the generic version would look it up at run time.
    @inline(__always)
    func settleAfterFlush() {
        if !self.hot.isWritable || self.hot.charge.channelBytes > 0
            || self.hot.traffic.bytesSent - self.hot.charge.bytesSent >= LinkChannel.uncheckedBytes
        {
            self.lookAtChannel()
        }
        self.settle()
    }

    private func lookAtChannel() {
        self.hot.charge.channelBytes = self.channelBytes
        self.hot.charge.bytesSent = self.hot.traffic.bytesSent
    }

    /// Ends the charging when the channel is closed.
    func endCharge() {
        guard self.hot.charge.isOn else { return }
        self.setCharge(0)
        self.hot.charge.account = nil
    }

    /// Frees memory that is reserved for future bytes, for a link that is almost idle.
    ///
    /// - Returns: The number of freed bytes.
    package func releaseRest() -> Int {
        let kept = self.hot.language.heldBytes + self.hot.out.bytes.keptBytes
        self.hot.out.bytes.releaseRest()
        self.hot.language.releaseRest()
        self.settle()
        return kept - self.hot.language.heldBytes - self.hot.out.bytes.keptBytes
    }
}

extension Link.Hot {
    /// The memory that is held, as far as it is known.
    @inline(__always)
    fileprivate var heldBytes: Int {
        mutating get { self.language.heldBytes + self.unwrittenBytes + self.charge.channelBytes }
    }
}
