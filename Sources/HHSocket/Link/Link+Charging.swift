// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Told of the memory that a link holds.
package protocol LinkAccount: AnyObject, Sendable {
    /// The link holds so many bytes more than before, or fewer. On the link's thread.
    func held(_ change: Int)
}

/// The memory of a link, which is charged to an account: bytes of units that have not come whole, and bytes that the
/// peer has not taken.
extension Link {
    struct Charge {
        var account: (any LinkAccount)? {
            didSet { self.isOn = self.account != nil }
        }
        /// Whether there is one. Each turn asks, and an existential is not cheap to look at.
        private(set) var isOn = false
        /// The number of bytes that are charged.
        var bytes = 0
        /// The number of bytes in the channel when that was last looked at.
        var channelBytes = 0
        /// The number of bytes sent by then.
        var bytesSent = 0
    }

    /// From now on the link's memory is charged to `account`, until its channel is gone.
    package func charge(to account: any LinkAccount) {
        self.hot.charge.account = account
        self.settle()
    }

    /// The number of bytes in the channel when that was last looked at: after each flush while there are any, and else
    /// once 64 KiB have been sent.
    package var knownChannelBytes: Int { self.hot.charge.channelBytes }

    /// Looks at the memory that is held now.
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

    // Inlined where the language is known: the generic version would look it up.
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

    /// The channel is gone.
    func endCharge() {
        guard self.hot.charge.isOn else { return }
        self.setCharge(0)
        self.hot.charge.account = nil
    }

    /// Frees memory that is kept for bytes to come. For a link on which next to nothing happens.
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
    /// The memory that is held, as far as is known.
    @inline(__always)
    fileprivate var heldBytes: Int {
        mutating get { self.language.heldBytes + self.unwrittenBytes + self.charge.channelBytes }
    }
}
