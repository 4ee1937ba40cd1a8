// SPDX-License-Identifier: Apache-2.0
import NIOCore

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
        /// The memory of bodies in the channel that are small slices of it.
        var pinned = PinnedBytes()
    }

    /// Charges the link's memory to `account` from now on, until its channel is closed.
    package func charge(to account: any LinkAccount) {
        self.hot.charge.account = account
        self.hot.out.detachesWaiting = true
        self.settle()
    }

    /// The last known number of bytes in the channel: read after each flush while there are any, and otherwise after
    /// each 64 KiB sent.
    package var knownChannelBytes: Int { self.hot.charge.channelBytes }

    /// Charges the memory that is held now.
    package func settleNow() {
        guard self.hot.charge.isOn else { return }
        self.checkChannel()
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
        if self.hot.channelIsUnknown { self.checkChannel() }
        self.settle()
    }

    private func checkChannel() { self.hot.channelHolds(self.channelBytes) }

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
        self.hot.charge.pinned.releaseRest()
        self.settle()
        return kept - self.hot.language.heldBytes - self.hot.out.bytes.keptBytes
    }
}

// Each is one access to the link's state, which is checked.
extension Link.Hot {
    /// Whether the number of bytes in the channel is to be read after this flush.
    @inline(__always)
    fileprivate var channelIsUnknown: Bool {
        // Mutating, like `heldBytes`, so that the state is not copied for reading.
        mutating get {
            !self.isWritable || self.charge.channelBytes > 0 || self.charge.pinned.bytes > 0
                || self.traffic.bytesSent - self.charge.bytesSent >= LinkChannel.uncheckedBytes
        }
    }

    /// - Parameter count: The number of bytes in the channel.
    fileprivate mutating func channelHolds(_ count: Int) {
        self.charge.channelBytes = count
        self.charge.bytesSent = self.traffic.bytesSent
        if self.charge.pinned.bytes > 0 { self.charge.pinned.taken(self.charge.bytesSent - count) }
        if count > 0, !self.isWritable { self.detachCurrent() }
    }

    /// Returns a body as it is handed to the channel, which may keep it for long.
    @inline(__always)
    mutating func bodyForChannel(_ body: ByteBuffer) -> ByteBuffer {
        guard self.charge.isOn else { return body }
        let isSlow = self.charge.channelBytes > 0 || !self.isWritable
        return self.charge.pinned.bodyForChannel(body, isSlow: isSlow, bytesSent: self.traffic.bytesSent)
    }

    /// The memory that is held, as far as it is known.
    @inline(__always)
    fileprivate var heldBytes: Int {
        mutating get {
            self.language.heldBytes + self.unwrittenBytes + self.charge.channelBytes + self.charge.pinned.bytes
                + self.out.sharedBytes
        }
    }
}
