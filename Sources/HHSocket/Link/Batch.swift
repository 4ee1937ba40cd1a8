// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The bytes of a read, looked up once for all the frames in them: each look costs a checked access.
///
/// They are kept, and a buffer that is kept is not changed: whatever the decoder does to its own, this memory is valid.
struct LookedUpInput {
    private let buffer: ByteBuffer
    /// The place of index 0 of the buffer. Valid as long as `buffer`, which nobody changes, keeps its storage.
    let base: UnsafeRawPointer
    /// The index at which the bytes end.
    let end: Int
    /// Which of those that the decoder was given they are.
    let number: UInt

    /// - Parameter number: The number of times that the decoder was given bytes.
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
    /// The link, which whoever made the batch keeps until all units have been pulled. Unmanaged, as a look at each
    /// frame would count a reference to it.
    private let unmanagedLink: Unmanaged<Link<Language>>
    /// The number of units that were pulled.
    var count = 0
    /// The bytes of frames that have come, once a frame was looked for.
    var input: LookedUpInput?

    init(_ link: Link<Language>) {
        self.unmanagedLink = Unmanaged.passUnretained(link)
    }

    @inline(__always)
    func withLink<T>(_ body: (Link<Language>) -> T) -> T {
        self.unmanagedLink._withUnsafeGuaranteedRef(body)
    }

    /// Whether the receiver may go on: the link is open, and what was sent meanwhile need not leave
    /// first. What is not pulled comes again, with the next batch.
    package var goesOn: Bool { self.withLink { $0.hot.goesOn } }

    /// The next unit; nil where more bytes are needed, or where the receiver may not go on.
    ///
    /// - Throws: ``LinkError`` when the bytes make no sense.
    package mutating func next() throws(LinkError) -> Language.Incoming? {
        guard self.goesOn, let unit = try self.nextUnit() else { return nil }
        self.count += 1
        return unit
    }

    private func nextUnit() throws(LinkError) -> Language.Incoming? {
        try self.withLink { link in Result { () throws(LinkError) in try link.hot.language.next() } }.get()
    }
}
