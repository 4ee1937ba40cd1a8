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
    func step(_ bytes: UnsafeRawBufferPointer, _ plan: HeaderPlan, _ decoder: borrowing FrameDecoder) -> Step {
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
            return .malformed(error, headerLength: header.headerLength)
        }
    }
}

extension FrameDecoder {
    // MARK: Owned frames

    /// The next frame in a format that requires a search.
    mutating func nextBySearch(_ plan: HeaderPlan) throws(FrameError) -> Output? {
        if plan.codec != nil { return try self.nextByCodec(plan).map { .frame($0.frame) } }
        if let error = self.search.givenUp {
            self.search.givenUp = nil
            return .malformed(error)
        }
        while true {
            let kept = self.partial.readableBytes
            if kept == 0 {
                guard self.hasInput else {
                    self.input = ByteBuffer()
                    return nil
                }
                let found = try self.find(in: self.input, plan)
                self.moveInput(by: found.length)
                if let output = found.output { return output }
                if found.isWaiting {
                    self.stashInput()
                    return nil
                }
            } else {
                let lent = min(self.search.loan(to: kept), self.input.readableBytes)
                if let bytes = self.input.getSlice(at: self.input.readerIndex, length: lent) {
                    self.partial.writeImmutableBuffer(bytes)
                }
                guard kept + lent >= self.search.neededBytes else {
                    self.input = ByteBuffer()
                    return nil
                }
                let found = try self.find(in: self.partial, plan)
                self.settle(found, kept: kept, lent: lent)
                self.moveInput(by: found.isWaiting ? lent : max(0, found.length - kept))
                if let output = found.output { return output }
                if found.isWaiting, !self.hasInput { return nil }
            }
        }
    }

    /// Moves the beginning of the input, unless the stream has failed.
    private mutating func moveInput(by count: Int) {
        if self.failure == nil { self.input.moveReaderIndex(forwardBy: count) }
    }

    /// A step in the bytes of a buffer.
    private struct Stride {
        var output: Output?
        /// The number of bytes that were consumed.
        var length = 0
        /// Whether more bytes are needed.
        var isWaiting = false
    }

    private mutating func find(in buffer: ByteBuffer, _ plan: HeaderPlan) throws(FrameError) -> Stride {
        self.search.neededBytes = 0
        switch buffer.withUnsafeReadableBytes({ self.search.step($0, plan, self) }) {
        case .wait(let count):
            self.search.neededBytes = count
            return Stride(isWaiting: true)
        case .drop(let count, let isSkipping):
            self.search.isSkipping = isSkipping
            return Stride(length: count)
        case .frame(let header):
            do throws(FrameError) {
                let output = try self.output(header, in: buffer)
                self.note(output, header)
                return Stride(output: output, length: self.frameLength(header))
            } catch {
                return try self.malformed(error, header.headerLength, in: buffer, plan)
            }
        case .malformed(let error, let headerLength):
            return try self.malformed(error, headerLength, in: buffer, plan)
        }
    }

    private mutating func malformed(
        _ error: FrameError,
        _ headerLength: Int,
        in buffer: ByteBuffer,
        _ plan: HeaderPlan
    ) throws(FrameError) -> Stride {
        guard plan.resynchronises else { throw error }
        var error = error
        error.isMarkedAsPush = buffer.withUnsafeReadableBytes {
            headerLength > 0 && plan.isMarkedAsPush(UnsafeRawBufferPointer(rebasing: $0[..<headerLength]))
        }
        self.search.isSkipping = true
        self.noteMalformed(error)
        return Stride(output: .malformed(error), length: headerLength)
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

    // MARK: Borrowed frames

    /// Decodes the bytes of a read in a format that requires a search.
    ///
    /// - Returns: The remaining bytes, which are empty.
    mutating func decodeBySearch(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: HeaderPlan,
        _ body: (View) -> Void
    ) throws(FrameError) -> UnsafeRawBufferPointer {
        let none = UnsafeRawBufferPointer(rebasing: bytes[bytes.count...])
        if plan.codec != nil {
            try self.decodeByCodec(bytes, plan, body)
            return none
        }
        var rest = bytes
        while self.partial.readableBytes > 0 {
            let kept = self.partial.readableBytes
            let lent = min(self.search.loan(to: kept), rest.count)
            self.partial.writeBytes(rest[..<lent])
            guard kept + lent >= self.search.neededBytes else { return none }
            let buffer = self.partial
            let found = try buffer.withUnsafeReadableBytesTyped { bytes throws(FrameError) in
                try self.find(in: bytes, plan, body)
            }
            self.settle(found, kept: kept, lent: lent)
            rest = UnsafeRawBufferPointer(rebasing: rest[(found.isWaiting ? lent : max(0, found.length - kept))...])
            if let failure = self.failure { throw failure }
            if found.isWaiting, rest.isEmpty { return none }
        }
        while !rest.isEmpty {
            let found = try self.find(in: rest, plan, body)
            rest = UnsafeRawBufferPointer(rebasing: rest[found.length...])
            if let failure = self.failure { throw failure }
            if found.isWaiting {
                self.stash(rest)
                break
            }
        }
        return none
    }

    private mutating func find(
        in bytes: UnsafeRawBufferPointer,
        _ plan: HeaderPlan,
        _ body: (View) -> Void
    ) throws(FrameError) -> Stride {
        self.search.neededBytes = 0
        switch self.search.step(bytes, plan, self) {
        case .wait(let count):
            self.search.neededBytes = count
            return Stride(isWaiting: true)
        case .drop(let count, let isSkipping):
            self.search.isSkipping = isSkipping
            self.search.skippedBytes += count
            return Stride(length: count)
        case .frame(let header):
            do throws(FrameError) {
                var view = try self.view(header, in: bytes)
                view.skippedBytes = self.takeSkippedBytes()
                body(view)
                if view.mismatch != nil { self.noteCorrupt(header) } else { self.noteSound() }
                return Stride(length: view.frameLength)
            } catch {
                return try self.malformed(error, header, in: bytes, plan, body)
            }
        case .malformed(let error, let headerLength):
            let header = FrameHeader(
                type: error.type ?? 0,
                serial: error.serial ?? 0,
                status: .ok,
                length: 0,
                headerLength: headerLength
            )
            return try self.malformed(error, header, in: bytes, plan, body)
        }
    }

    private mutating func malformed(
        _ error: FrameError,
        _ header: FrameHeader,
        in bytes: UnsafeRawBufferPointer,
        _ plan: HeaderPlan,
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

    private mutating func takeSkippedBytes() -> Int {
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
            let header = self.partial.withUnsafeReadableBytes({ try? plan.header($0) })
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
