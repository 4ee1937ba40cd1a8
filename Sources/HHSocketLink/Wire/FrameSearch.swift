// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The state of a decoder's search for the next frame, in a format in which the end of a frame cannot be determined
/// from its first bytes, or in which frames end with separators.
struct FrameSearch: Sendable {
    /// Whether the bytes up to the next separator are dropped.
    var isSkipping = false
    /// The number of bytes that must be available before searching again is useful.
    var neededBytes = 0
    /// The number of bytes dropped since the last frame that was borrowed.
    var skippedBytes = 0
    /// The error of an abandoned frame, until it is returned.
    var givenUp: FrameError?
    /// The codec that decodes instead, in a format that has one.
    var codec: (any FrameCodec)?

    /// The number of bytes after those of an incomplete frame that complete it, or its header.
    func loan(to kept: Int) -> Int { max(self.neededBytes - kept, WireFormat.maximumHeaderLength) }

    /// A step in the bytes of a stream.
    enum Step {
        /// Nothing until this number of bytes is available.
        case wait(forBytes: Int)
        /// A number of bytes that are not a frame; after them a frame may begin, or the search for the separator
        /// continues.
        case drop(Int, isSkipping: Bool)
        /// The frame with this header is here.
        case frame(FrameHeader)
        /// Bytes that are not a frame; the search for the separator begins after its header, if that could be read.
        case malformed(FrameError, headerLength: Int)
    }

    /// The next step, which is the same however the stream is split.
    func step(_ bytes: UnsafeRawBufferPointer, by plan: HeaderPlan, decoder: borrowing FrameDecoder) -> Step {
        if self.isSkipping {
            if let end = bytes.endOfFirst(plan.bodyEnd) { return .drop(end, isSkipping: false) }
            let kept = min(bytes.count, plan.bodyEnd.count - 1)
            guard kept < bytes.count else { return .wait(forBytes: plan.bodyEnd.count) }
            return .drop(bytes.count - kept, isSkipping: true)
        }
        do throws(FrameError) {
            guard let header = try decoder.header(bytes) else { return .wait(forBytes: bytes.count + 1) }
            let length = decoder.frameLength(header)
            return bytes.count >= length ? .frame(header) : .wait(forBytes: length)
        } catch {
            // The length in a header is not trusted, but the header's own end is known.
            guard error.code == .payloadTooLarge, let header = try? plan.header(bytes) else {
                return .malformed(error, headerLength: 0)
            }
            // It may announce that it is longer than what has arrived.
            guard bytes.count >= header.headerLength else { return .wait(forBytes: header.headerLength) }
            return .malformed(error, headerLength: header.headerLength)
        }
    }
}

extension FrameDecoder {
    /// The progress that a step has made in the bytes of a stream.
    struct Stride {
        /// The number of bytes that were consumed.
        var length = 0
        /// Whether more bytes are needed.
        var isWaiting = false
    }

    /// Makes a step in the bytes that are kept and those that follow, in a format that requires a search.
    ///
    /// - Parameter body: Called with a complete frame or with bytes that are none, and the buffer that contains them,
    ///   unless that is `bytes`.
    mutating func step(
        _ bytes: UnsafeRawBufferPointer,
        by plan: HeaderPlan,
        _ body: (View, ByteBuffer?) -> Void
    ) throws(FrameError) -> Stride {
        let kept = self.partial.readableBytes
        guard kept > 0 else {
            return bytes.isEmpty ? Stride(isWaiting: true) : try self.find(in: bytes, by: plan) { body($0, nil) }
        }
        let lent = min(self.search.loan(to: kept), bytes.count)
        self.partial.writeBytes(bytes[..<lent])
        guard kept + lent >= self.search.neededBytes else { return Stride(length: lent, isWaiting: true) }
        let found = try self.findInPartial(plan, body)
        self.settle(found, kept: kept, lent: lent)
        guard !found.isWaiting else { return Stride(length: lent, isWaiting: lent == bytes.count) }
        return Stride(length: max(0, found.length - kept))
    }

    private mutating func findInPartial(
        _ plan: HeaderPlan,
        _ body: (View, ByteBuffer?) -> Void
    ) throws(FrameError) -> Stride {
        let partial = self.partial
        return try partial.withUnsafeReadableBytes { bytes throws(FrameError) in
            try self.find(in: bytes, by: plan) { body($0, partial) }
        }
    }

    /// Updates `partial` after a step has consumed some of its bytes. The bytes that were lent to it are still in their
    /// read, unless more are needed.
    private mutating func settle(_ found: Stride, kept: Int, lent: Int) {
        guard !found.isWaiting, self.failure == nil else { return }
        if found.length >= kept {
            // Payloads may be slices of it.
            self.partial = ByteBuffer()
        } else {
            self.partial.moveReaderIndex(forwardBy: found.length)
            self.partial.moveWriterIndex(to: self.partial.writerIndex - lent)
        }
    }

    private mutating func noteMalformed(_ error: FrameError) {
        self.corruptRun += 1
        if self.corruptRun >= self.maximumCorruptRun {
            _ = self.fail(.malformedRun(self.corruptRun, last: error))
        }
    }

    private mutating func find(
        in bytes: UnsafeRawBufferPointer,
        by plan: HeaderPlan,
        _ body: (View) -> Void
    ) throws(FrameError) -> Stride {
        self.search.neededBytes = 0
        switch self.search.step(bytes, by: plan, decoder: self) {
        case .wait(let count):
            self.search.neededBytes = count
            return Stride(isWaiting: true)
        case .drop(let count, let isSkipping):
            self.search.isSkipping = isSkipping
            self.search.skippedBytes += count
            return Stride(length: count)
        case .frame(let header):
            do throws(FrameError) {
                return Stride(length: try self.lend(header, in: bytes, to: body))
            } catch {
                return try self.malformed(error, of: header, in: bytes, by: plan, body)
            }
        case .malformed(let error, let headerLength):
            let header = FrameHeader(
                type: error.type ?? 0,
                serial: error.serial ?? 0,
                status: .ok,
                length: 0,
                headerLength: headerLength
            )
            return try self.malformed(error, of: header, in: bytes, by: plan, body)
        }
    }

    private mutating func malformed(
        _ error: FrameError,
        of header: FrameHeader,
        in bytes: UnsafeRawBufferPointer,
        by plan: HeaderPlan,
        _ body: (View) -> Void
    ) throws(FrameError) -> Stride {
        guard plan.resynchronises else { throw error }
        let headerBytes = UnsafeRawBufferPointer(rebasing: bytes[..<header.headerLength])
        var error = error
        error.isMarkedAsPush = header.headerLength > 0 && plan.isMarkedAsPush(headerBytes)
        var view = View(
            header: header,
            headerBytes: headerBytes,
            payload: UnsafeRawBufferPointer(rebasing: bytes[..<0]),
            frameLength: header.headerLength,
            mismatch: nil,
            malformation: error
        )
        view.skippedBytes = self.takeSkippedBytes()
        body(view)
        self.search.isSkipping = true
        self.noteMalformed(error)
        return Stride(length: header.headerLength)
    }

    mutating func takeSkippedBytes() -> Int {
        defer { self.search.skippedBytes = 0 }
        return self.search.skippedBytes
    }

    // MARK: Lengths that are too long

    /// Abandons the incomplete frame at the end of the received bytes, in a format with separators: its length may be
    /// wrong, and withholds later frames. ``next()`` continues after its header.
    ///
    /// - Parameter isWanted: Whether it is that frame. True by default.
    /// - Returns: Whether a frame was abandoned.
    package mutating func giveUp(where isWanted: (Arriving) -> Bool = { _ in true }) -> Bool {
        guard let plan = self.plan, plan.resynchronises, self.failure == nil, let arriving = self.arriving(),
            isWanted(arriving),
            let header = self.partial.withUnsafeReadableBytes({ try? plan.header($0) }),
            header.headerLength <= self.partial.readableBytes
        else { return false }
        self.partial.moveReaderIndex(forwardBy: header.headerLength)
        self.search.isSkipping = true
        self.search.neededBytes = 0
        var error = FrameError.givenUp(arriving)
        error.isMarkedAsPush = arriving.isMarkedAsPush
        self.search.givenUp = error
        self.noteMalformed(error)
        return true
    }
}

extension UnsafeRawBufferPointer {
    /// The index after the first occurrence of a separator; nil if there is none.
    fileprivate func endOfFirst(_ separator: [UInt8]) -> Int? {
        guard let first = separator.first else { return nil }
        var start = 0
        while start + separator.count <= self.count {
            guard let index = self[start..<self.count - separator.count + 1].firstIndex(of: first) else { return nil }
            if self[index..<index + separator.count].elementsEqual(separator) { return index + separator.count }
            start = index + 1
        }
        return nil
    }
}
