// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The bytes of a read, located once for all the frames in them, since each access is checked.
///
/// The buffer is retained, and a retained buffer is not changed: whatever the decoder does to its own, this memory
/// stays valid.
struct LocatedInput {
    private let buffer: ByteBuffer
    /// The address of index 0 of the buffer. Valid as long as `buffer`, which is never changed, keeps its storage.
    let base: UnsafeRawPointer
    /// The index at which the bytes end.
    let end: Int
    /// The number of the append that these bytes belong to.
    let number: UInt

    /// - Parameter number: The number of times that bytes were appended to the decoder.
    init?(_ buffer: ByteBuffer, number: UInt) {
        guard let start = buffer.withUnsafeReadableBytes({ $0.baseAddress }) else { return nil }
        self.buffer = buffer
        self.base = start - buffer.readerIndex
        self.end = buffer.writerIndex
        self.number = number
    }
}

/// The units of a read, which the receiver pulls.
package struct Batch<Language: LinkLanguage>: ~Copyable {
    /// The link, which the creator of the batch retains until all units have been pulled. Unmanaged, as every frame
    /// would otherwise count a reference to it.
    private let unmanagedLink: Unmanaged<Link<Language>>
    /// The number of units that were pulled.
    var count = 0
    /// The number of units that may be pulled by ``next()`` before the link checks the duration of the turn. Receivers
    /// that pull frames by the fast paths check it themselves, by ``Link/endTurnInTime(_:)``.
    private var unitsToCheck: Int
    /// The received bytes, once a frame was requested.
    var input: LocatedInput?

    init(_ link: Link<Language>) {
        self.unmanagedLink = Unmanaged.passUnretained(link)
        self.unitsToCheck = link.settings.sharesTurns ? Self.unitsBetweenChecks : .max
    }

    /// The number of units after which the duration of the turn is checked, which reads the clock.
    private static var unitsBetweenChecks: Int { 32 }

    /// Whether the receiver has pulled as many units as it may before the duration of the turn is checked.
    var isUsedUp: Bool { self.unitsToCheck == 0 }

    @inline(__always)
    func withLink<T>(_ body: (Link<Language>) -> T) -> T {
        self.unmanagedLink._withUnsafeGuaranteedRef(body)
    }

    /// Whether the receiver may continue: the link is open, and neither must sent units be flushed first nor the
    /// duration of the turn be checked. Units that are not pulled are offered again, with the next batch.
    package var continues: Bool { !self.isUsedUp && self.withLink { $0.hot.continues } }

    /// The next unit; nil if more bytes are needed, or if the receiver may not continue.
    ///
    /// - Throws: ``LinkError`` if the bytes are invalid.
    package mutating func next() throws(LinkError) -> Language.Incoming? {
        guard self.continues, let unit = try self.nextUnit() else { return nil }
        self.count += 1
        self.unitsToCheck -= 1
        return unit
    }

    private func nextUnit() throws(LinkError) -> Language.Incoming? {
        try self.withLink { link in Result { () throws(LinkError) in try link.hot.language.next() } }.get()
    }
}
