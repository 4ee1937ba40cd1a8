// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Decodes a byte stream into frames, however the stream was split or joined.
///
/// Append the bytes of each read and take frames until there are no more:
/// ```swift
/// decoder.append(bytes)
/// while let output = try decoder.next() { … }
/// ```
/// or, if a frame need not outlive the call, borrow them with ``decode(_:_:)``, which allocates nothing. Use only one
/// of the two until all frames of a read have been taken.
///
/// An incomplete frame is kept in a buffer that grows with the received bytes, never with the announced length. A wrong
/// checksum invalidates only its frame, since the length is assumed to be correct. That assumption is checked: the
/// following header must be plausible, and several wrong checksums in a row end the stream. In formats whose frames end
/// with a separator (``WireFormat/Layout/bodyEnd``) invalid bytes do not affect other frames: decoding continues after
/// the next separator.
public struct FrameDecoder: Sendable {
    /// An element of a stream.
    public enum Output: Sendable, Hashable {
        case frame(Frame)
        /// A frame whose checksum is wrong. Its payload must not be used; its header probably names the right request.
        // Indirect, so that it does not make every frame larger.
        indirect case corrupt(Frame, ChecksumMismatch)
        /// Bytes that are no frame, up to the next separator.
        indirect case malformed(FrameError)
    }

    /// The two checksums of a corrupt frame.
    public struct ChecksumMismatch: Sendable, Hashable, CustomStringConvertible {
        /// The checksum in the frame's trailer. It has 64 bits where the field for it has 8 bytes.
        @usableFromInline package var received: UInt64
        /// The checksum of the payload.
        @usableFromInline package var computed: UInt64

        @inlinable
        package init(received: some BinaryInteger, computed: some BinaryInteger) {
            self.received = UInt64(truncatingIfNeeded: received)
            self.computed = UInt64(truncatingIfNeeded: computed)
        }

        /// Both, in hexadecimal digits, as dumps show them: `received 0x062C0214, computed 0x062C0215`.
        public var description: String {
            "received \(Self.text(self.received)), computed \(Self.text(self.computed))"
        }

        /// At least eight digits after `0x`.
        package static func text(_ checksum: UInt64) -> String {
            let digits = String(checksum, radix: 16, uppercase: true)
            return "0x" + String(repeating: "0", count: max(0, 8 - digits.utf8.count)) + digits
        }
    }

    /// A frame in borrowed memory.
    public struct View {
        public var type: UInt32
        public var serial: UInt32
        public var status: Status
        /// The payload, valid only until the closure that received it returns.
        public var payload: UnsafeRawBufferPointer
        /// The bytes of the header, valid as long as the payload; empty in formats of a ``FrameCodec``.
        @usableFromInline package var header: UnsafeRawBufferPointer
        /// The length of the whole frame in bytes.
        @usableFromInline package var frameLength: Int
        /// Set if the payload must not be used.
        public var mismatch: ChecksumMismatch?
        /// The reason if the bytes are not a frame, in formats with separators. Type and serial are those of its
        /// header, or zero. `frameLength` is that of the header, or zero, since the end of the bytes is not known yet.
        public var malformation: FrameError?
        /// The number of bytes in front of it that belong to no frame, in formats with separators.
        @usableFromInline package var skippedBytes = 0

        @inlinable
        init(
            header: FrameHeader,
            headerBytes: UnsafeRawBufferPointer,
            payload: UnsafeRawBufferPointer,
            frameLength: Int,
            mismatch: ChecksumMismatch?,
            malformation: FrameError? = nil
        ) {
            self.type = header.type
            self.serial = header.serial
            self.status = header.status
            self.header = headerBytes
            self.payload = payload
            self.frameLength = frameLength
            self.mismatch = mismatch
            self.malformation = malformation
        }
    }

    /// The largest payload that is copied, in bytes, so that a small one kept for long does not retain a whole read's
    /// buffer. `Docs/Internals.md` describes how the number was determined.
    @usableFromInline package static let defaultCopyLimit = 1_024
    /// The size of the blocks into which small payloads of one read are copied, in bytes, headers included: a payload
    /// that is kept for long retains its block.
    @usableFromInline static let blockLength = 1_024
    /// The default number of consecutive frames with a wrong checksum that ends the stream, the last one included.
    @usableFromInline package static let defaultMaximumCorruptRun = 3

    /// Which kind of header the stream has.
    @usableFromInline package let direction: FrameDirection
    /// The layout of frames.
    @usableFromInline package let format: WireFormat
    /// The largest payload accepted, in bytes.
    package private(set) var maximumPayloadLength: Int
    /// The largest payload of a hello accepted, in bytes.
    private var maximumHelloLength = Int(Int32.max)
    /// The longest payload that is within the limit of any frame: longer ones are checked more closely.
    @usableFromInline var unquestionedLength: UInt32
    /// Payloads up to this many bytes are copied out of the read buffer; larger ones are slices of it.
    @usableFromInline package let copyLimit: Int
    /// The number of consecutive wrong checksums that ends the stream.
    package let maximumCorruptRun: Int
    /// Bits 29 to 31 of a type that the two sides have agreed to use, as a mask; none at first. Others are a sign that
    /// the stream is out of step, where it may be: after a wrong checksum.
    package var agreedFlags: UInt32 = 0

    /// The plan of a format other than the standard one; nil for the standard one.
    @usableFromInline let plan: HeaderPlan?
    /// The bytes of one incomplete frame: never a whole one, except inside a call.
    @usableFromInline var partial = ByteBuffer()
    /// The rest of the last read.
    @usableFromInline var input = ByteBuffer()
    /// The number of times that bytes were handed over.
    @usableFromInline var appendCount: UInt = 0
    /// A copy of a part of `input`, for the small payloads in it.
    @usableFromInline var block = ByteBuffer()
    /// The index in `input` at which that part begins.
    @usableFromInline var blockStart = 0
    @usableFromInline var failure: FrameError?
    /// The number of consecutive invalid frames so far.
    @usableFromInline var corruptRun = 0
    /// The state of the search for the next frame, in formats that require one.
    var search = FrameSearch()
    /// Whether the next frame needs the slow path: another format, a frame that began in an earlier read, a wrong
    /// checksum before it, or a stream that has ended.
    @usableFromInline var needsCare: Bool

    /// - Parameters:
    ///   - direction: The direction of the frames.
    ///   - format: The format of the frames; the standard format by default.
    ///   - maximumPayloadLength: The largest payload accepted, in bytes; 16 MiB by default.
    ///   - copyLimit: The largest payload that is copied, in bytes.
    ///   - maximumCorruptRun: The number of consecutive wrong checksums that ends the stream; 3 by default, 1 at least.
    ///     The last of these frames is still returned.
    public init(
        direction: FrameDirection,
        format: WireFormat = .standard,
        maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength,
        copyLimit: Int = FrameDecoder.defaultCopyLimit,
        maximumCorruptRun: Int = FrameDecoder.defaultMaximumCorruptRun
    ) {
        self.direction = direction
        self.format = format
        self.maximumPayloadLength = Self.limit(maximumPayloadLength)
        self.unquestionedLength = UInt32(self.maximumPayloadLength)
        self.copyLimit = copyLimit
        self.maximumCorruptRun = max(1, maximumCorruptRun)
        self.plan = format.specialPlan(for: direction)
        self.needsCare = self.plan != nil
        self.search.codec = self.plan?.codec
    }

    // MARK: Limits

    private static func limit(_ length: Int) -> Int { min(max(0, length), Int(Int32.max)) }

    /// Sets the largest payload of the frames whose headers have not been read yet, in bytes.
    package mutating func accept(payloadsUpTo length: Int) {
        self.maximumPayloadLength = Self.limit(length)
        self.unquestionedLength = UInt32(min(self.maximumPayloadLength, self.maximumHelloLength))
    }

    /// Sets the largest payload of a hello, in bytes. By default it is the limit of all frames.
    package mutating func accept(hellosUpTo length: Int) {
        self.maximumHelloLength = Self.limit(length)
        self.unquestionedLength = UInt32(min(self.maximumPayloadLength, self.maximumHelloLength))
    }

    /// The largest payload of the frame with this header, in bytes.
    private func limit(of header: FrameHeader) -> Int {
        guard header.type == FrameType.hello, header.serial == FrameSerial.hello else {
            return self.maximumPayloadLength
        }
        return min(self.maximumPayloadLength, self.maximumHelloLength)
    }

    /// Whether the payload that the header announces is within the limit.
    @usableFromInline
    func accepts(_ header: FrameHeader) -> Bool { Int(header.length) <= self.limit(of: header) }

    /// The number of bytes kept of an incomplete frame.
    package var bufferedBytes: Int { self.partial.readableBytes + self.input.readableBytes }

    /// Whether the bytes up to the next separator are being dropped.
    package var isSkipping: Bool { self.search.isSkipping }
    /// The number of bytes dropped since the last frame.
    package var skippedBytes: Int { self.search.skippedBytes }

    /// An incomplete frame whose header has arrived.
    package struct Arriving: Hashable, Sendable {
        package var type: UInt32
        package var serial: UInt32
        /// The number of bytes of the payload that have arrived.
        package var receivedBytes: Int
        /// The length of the payload, in bytes.
        package var length: Int
        /// Whether its header is marked as a push's by a flag.
        package var isMarkedAsPush: Bool

        package init(type: UInt32, serial: UInt32, receivedBytes: Int, length: Int, isMarkedAsPush: Bool = false) {
            self.type = type
            self.serial = serial
            self.receivedBytes = receivedBytes
            self.length = length
            self.isMarkedAsPush = isMarkedAsPush
        }
    }

    /// The incomplete frame at the end of the received bytes, once its header has arrived; nil if only a codec can
    /// tell. Call it when ``next()`` has no more frames.
    ///
    /// It has no side effects, and is `mutating` so that the decoder is not copied for reading.
    package mutating func arriving() -> Arriving? {
        guard self.partial.readableBytes > 0, !self.search.isSkipping, self.plan?.codec == nil else { return nil }
        return self.partial.withUnsafeReadableBytes { bytes in
            guard let header = try? self.header(bytes) else { return nil }
            return Arriving(
                type: header.type,
                serial: header.serial,
                // A header may be longer than the bytes that have arrived.
                receivedBytes: min(max(0, bytes.count - header.headerLength), Int(header.length)),
                length: Int(header.length),
                isMarkedAsPush: self.plan?.isMarkedAsPush(bytes) ?? false
            )
        }
    }

    /// The memory held for them, in bytes.
    var bufferedCapacity: Int { self.partial.capacity }

    /// The memory held, in bytes: an incomplete frame, and the buffer of a read that was not consumed completely.
    @inline(__always)
    var heldBytes: Int {
        mutating get {
            // The capacity of `partial` is that of its whole storage, and is known without accessing the storage.
            ByteBuffer.growing(capacity: self.partial.capacity, writtenTo: self.partial.writerIndex)
                + (self.hasInput ? self.input.storageCapacity : 0)
        }
    }

    /// Frees memory that is reserved for the next incomplete frame.
    mutating func releaseRest() {
        if self.partial.readableBytes == 0, self.partial.capacity > 0 { self.partial = ByteBuffer() }
        if !self.hasInput { self.block = ByteBuffer() }
    }

    // MARK: Owned frames

    /// Hands over the bytes of a read. Once the stream has made no sense, they are dropped.
    @inlinable
    public mutating func append(_ bytes: consuming ByteBuffer) {
        guard self.failure == nil else { return }
        self.appendCount &+= 1
        if self.input.readableBytes == 0 {
            self.input = bytes
            self.endBlock()
        } else {
            self.input.writeImmutableBuffer(bytes)
        }
    }

    /// Whether any appended bytes remain.
    @inline(__always)
    var hasInput: Bool { mutating get { self.input.readableBytes > 0 } }

    /// The indices in ``input`` between which bytes remain.
    @inline(__always)
    var inputRange: (start: Int, end: Int) { mutating get { (self.input.readerIndex, self.input.writerIndex) } }

    /// Whether ``soundHeader(in:where:)`` may find one.
    var mayHaveSoundHeader: Bool { mutating get { self.hasInput && !self.needsCare } }

    /// The next complete frame, or nil when more bytes are needed.
    ///
    /// - Throws: ``FrameError`` if the stream is malformed; every later call throws it again.
    @inlinable
    public mutating func next() throws(FrameError) -> Output? {
        var frame = ArrivedFrame()
        switch try self.next(into: &frame) {
        case .nothing: return nil
        case .sound: return .frame(frame.lend())
        case .corrupt(let mismatch): return .corrupt(frame.lend(), mismatch)
        case .malformed(let error): return .malformed(error)
        }
    }

    /// The result of ``next(into:)``.
    @usableFromInline
    package enum Found {
        /// More bytes are needed.
        case nothing
        case sound
        case corrupt(ChecksumMismatch)
        /// Bytes that are no frame, up to the next separator.
        indirect case malformed(FrameError)
    }

    /// Reads the next frame into the caller's storage: one reference less to count for each.
    @inlinable
    package mutating func next(into frame: inout ArrivedFrame) throws(FrameError) -> Found {
        if let header = self.wholeHeader() { return self.take(header, into: &frame) }
        if self.needsCare { return try self.nextWithCare(into: &frame) }

        // Incomplete, or so long that it may be too large.
        if self.input.readableBytes >= self.direction.headerLength {
            let header = self.input.withUnsafeReadableBytes { FrameHeader($0, direction: self.direction) }
            let length = try self.standardFrameLength(header)
            if self.input.readableBytes >= length { return self.take(header, into: &frame) }
        }
        self.stashInput()
        return .nothing
    }

    /// Removes the next frame, which must be complete, within the limit, and of the standard format.
    @inlinable
    @inline(__always)
    mutating func take(_ header: FrameHeader, into frame: inout ArrivedFrame) -> Found {
        let mismatch = self.mismatch(of: header)
        frame = ArrivedFrame(header, LentBytes(self.takePayload(of: header)))
        guard let mismatch else { return .sound }
        self.noteCorrupt(header)
        return .corrupt(mismatch)
    }

    /// The header of the next frame, if that is complete and valid, and of the standard format; ``takePayload(of:)``
    /// returns its payload. Nil is inconclusive: fall back to ``next(into:)``.
    ///
    /// For most frames of a read this suffices, without making a frame.
    ///
    /// It has no side effects, and is `mutating` so that the decoder is not copied for reading.
    ///
    /// - Parameters:
    ///   - bytes: Those of ``input``, which the caller accesses once for many frames.
    ///   - isWanted: Whether the caller wants the frame. Called before the checksum is computed, since ``next(into:)``
    ///     computes it for a frame that is not wanted.
    @inlinable
    @inline(__always)
    mutating func soundHeader(in bytes: UnsafeRawBufferPointer, where isWanted: (FrameHeader) -> Bool) -> FrameHeader? {
        let headerLength = self.direction.headerLength
        guard !self.needsCare, let start = bytes.baseAddress, bytes.count >= headerLength else { return nil }
        let header = FrameHeader(bytes, direction: self.direction)
        guard header.length <= self.unquestionedLength else { return nil }
        let length = Int(header.length)
        guard bytes.count >= headerLength + length + Frame.trailerLength, isWanted(header) else { return nil }
        let computed = Adler32.checksum(UnsafeRawBufferPointer(start: start + headerLength, count: length))
        return computed == bytes.bigEndianWord(at: headerLength + length) ? header : nil
    }

    /// Whether no appended bytes remain, as after most reads; if so their memory is released. False is inconclusive:
    /// fall back to ``next(into:)``.
    package mutating func isFinished() -> Bool {
        guard !self.hasInput, !self.needsCare else { return false }
        self.stashInput()
        return true
    }

    /// The header of the next frame, if that is complete, within the limit of any frame, and of the standard format.
    @inlinable
    mutating func wholeHeader() -> FrameHeader? {
        guard !self.needsCare else { return nil }
        let headerLength = self.direction.headerLength
        return self.input.withUnsafeReadableBytes { bytes in
            guard bytes.count >= headerLength else { return nil }
            let header = FrameHeader(bytes, direction: self.direction)
            guard header.length <= self.unquestionedLength,
                bytes.count >= headerLength + Int(header.length) + Frame.trailerLength
            else { return nil }
            return header
        }
    }

    /// The checksums of the next frame, which ``wholeHeader()`` has found, if they differ.
    @inlinable
    mutating func mismatch(of header: FrameHeader) -> ChecksumMismatch? {
        let (start, length) = (self.direction.headerLength, Int(header.length))
        return self.input.withUnsafeReadableBytes { bytes in
            let computed = Adler32.checksum(UnsafeRawBufferPointer(rebasing: bytes[start..<start + length]))
            let received = bytes.bigEndianWord(at: start + length)
            return received == computed ? nil : ChecksumMismatch(received: received, computed: computed)
        }
    }

    /// Removes the payload of the frame whose header ``soundHeader(in:where:)`` has just returned, and moves on to the
    /// next frame.
    @inlinable
    @inline(__always)
    package mutating func takePayload(of header: FrameHeader) -> ByteBuffer {
        let length = Int(header.length)
        let payload = self.payload(at: self.input.readerIndex + self.direction.headerLength, length)
        self.input.moveReaderIndex(forwardBy: self.direction.headerLength + length + Frame.trailerLength)
        return payload
    }

    @usableFromInline
    mutating func nextWithCare(into frame: inout ArrivedFrame) throws(FrameError) -> Found {
        switch try self.nextWithCare() {
        case .frame(let found):
            frame = ArrivedFrame(found)
            return .sound
        case .corrupt(let found, let mismatch):
            frame = ArrivedFrame(found)
            return .corrupt(mismatch)
        case .malformed(let error):
            return .malformed(error)
        case nil:
            return .nothing
        }
    }

    private mutating func nextWithCare() throws(FrameError) -> Output? {
        try self.failing { decoder throws(FrameError) in try decoder.nextInAnyFormat() }
    }

    private mutating func nextInAnyFormat() throws(FrameError) -> Output? {
        let (plan, copyLimit) = (self.plan, self.copyLimit)
        if let plan, plan.codec != nil { return try self.nextByCodec(plan).map { .frame($0.frame) } }
        if let error = self.search.givenUp.take() { return .malformed(error) }
        while true {
            let input = self.input
            var output: Output?
            let stride = try input.withUnsafeReadableBytes { bytes throws(FrameError) in
                try self.step(bytes) { output = $0.owned(from: $1 ?? input, plan, copyLimit: copyLimit) }
            }
            if self.failure == nil { self.input.moveReaderIndex(forwardBy: stride.length) }
            if let output { return output }
            guard stride.isWaiting else { continue }
            self.stashInput()
            return nil
        }
    }

    /// The result of `body`, whose error ends the stream.
    private mutating func failing<T>(
        _ body: (inout FrameDecoder) throws(FrameError) -> T
    ) throws(FrameError) -> T {
        if let failure = self.failure { throw failure }
        do throws(FrameError) {
            return try body(&self)
        } catch {
            throw self.fail(error)
        }
    }

    // MARK: Steps

    /// Makes a step in the bytes that are kept and those that follow, in any format.
    ///
    /// - Parameter body: Called with a complete frame, and the buffer that contains it, unless that is `bytes`.
    private mutating func step(
        _ bytes: UnsafeRawBufferPointer,
        _ body: (View, ByteBuffer?) -> Void
    ) throws(FrameError) -> Stride {
        if let plan = self.plan, plan.needsSearch { return try self.step(bytes, by: plan, body) }
        guard self.partial.readableBytes > 0 else {
            guard let header = try self.completeHeader(bytes) else { return Stride(isWaiting: true) }
            return Stride(length: try self.lend(header, in: bytes) { body($0, nil) })
        }
        let (consumed, header) = try self.fillPartial(from: bytes)
        guard let header else { return Stride(length: consumed, isWaiting: true) }
        try self.lendPartial(header, body)
        return Stride(length: consumed)
    }

    /// Lends the frame that `partial` consists of, which is empty afterwards.
    private mutating func lendPartial(
        _ header: FrameHeader,
        _ body: (View, ByteBuffer?) -> Void
    ) throws(FrameError) {
        var partial = ByteBuffer()
        swap(&partial, &self.partial)
        _ = try partial.withUnsafeReadableBytes { bytes throws(FrameError) in
            try self.lend(header, in: bytes) { body($0, partial) }
        }
        // Its memory is used again, unless a payload is a slice of it.
        guard partial.capacity <= 1 << 16, self.failure == nil else { return }
        if partial.modifyIfUniquelyOwned({ $0.clear() }) != nil { self.partial = partial }
    }

    /// Lends the frame that begins with `header`.
    ///
    /// - Returns: Its length, in bytes.
    mutating func lend(
        _ header: FrameHeader,
        in bytes: UnsafeRawBufferPointer,
        to body: (View) -> Void
    ) throws(FrameError) -> Int {
        var view = try self.view(header, in: bytes)
        view.skippedBytes = self.takeSkippedBytes()
        body(view)
        if view.mismatch != nil { self.noteCorrupt(header) } else { self.noteSound() }
        return view.frameLength
    }

    // MARK: Borrowed frames

    /// Calls `body` with each complete frame, in order, without copying or allocating for those that are within
    /// `bytes`.
    ///
    /// - Throws: ``FrameError`` if the stream is invalid; every later call throws it again.
    @inlinable
    public mutating func decode(_ bytes: UnsafeRawBufferPointer, _ body: (View) -> Void) throws(FrameError) {
        var rest = bytes
        while true {
            if self.needsCare {
                rest = try self.decodeWithCare(rest, body)
                if self.needsCare { return }
            }
            let headerLength = self.direction.headerLength
            while !self.needsCare {
                guard rest.count >= headerLength else { return self.stash(rest) }
                let header = FrameHeader(rest, direction: self.direction)
                let total = try self.standardFrameLength(header)
                guard rest.count >= total else { return self.stash(rest) }
                let view = Self.view(header, in: rest, direction: self.direction)
                body(view)
                rest = UnsafeRawBufferPointer(rebasing: rest[total...])
                if view.mismatch != nil { self.noteCorrupt(header) }
            }
        }
    }

    /// Decodes until the fast path can continue, or the bytes end. Returns the remaining bytes.
    @usableFromInline
    mutating func decodeWithCare(
        _ bytes: UnsafeRawBufferPointer,
        _ body: (View) -> Void
    ) throws(FrameError) -> UnsafeRawBufferPointer {
        try self.failing { decoder throws(FrameError) in
            var rest = bytes
            if let plan = decoder.plan, plan.codec != nil {
                try decoder.decodeByCodec(bytes, by: plan, body)
                return UnsafeRawBufferPointer(rebasing: rest[rest.count...])
            }
            while decoder.needsCare {
                let stride = try decoder.step(rest) { view, _ in body(view) }
                rest = UnsafeRawBufferPointer(rebasing: rest[stride.length...])
                if let failure = decoder.failure { throw failure }
                guard stride.isWaiting else { continue }
                decoder.stash(rest)
                return UnsafeRawBufferPointer(rebasing: rest[rest.count...])
            }
            return rest
        }
    }

    // MARK: Headers

    /// The length of the whole frame in bytes, once its payload is known to be within the limit. Standard format.
    @inlinable
    mutating func standardFrameLength(_ header: FrameHeader) throws(FrameError) -> Int {
        guard header.length <= self.unquestionedLength || self.accepts(header) else { throw self.failTooLarge(header) }
        return self.direction.headerLength + Int(header.length) + Frame.trailerLength
    }

    /// The length of the whole frame in bytes.
    func frameLength(_ header: FrameHeader) -> Int {
        header.headerLength + Int(header.length) + (self.plan?.trailerLength ?? Frame.trailerLength)
    }

    /// The header that starts `bytes`, once it is known to be valid; nil if there are not enough bytes for one.
    func header(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader? {
        do throws(FrameError) {
            return try self.checkedHeader(bytes)
        } catch {
            // If widths vary, the error has the bytes up to the fault, and the bytes after it make no difference.
            let plan = self.format.plan(for: self.direction)
            guard plan.isFixed else { throw error }
            throw error.seen(plan.reading(of: bytes, limit: self.maximumPayloadLength))
        }
    }

    private func checkedHeader(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader? {
        let header: FrameHeader
        let isPlausible: Bool
        if let plan = self.plan {
            guard let found = try plan.header(bytes) else { return nil }
            header = found
            // If frames end with separators, the end of the previous one was not an assumption.
            isPlausible =
                self.corruptRun == 0 || plan.resynchronises || plan.isPlausible(header.type & ~self.agreedFlags)
        } else {
            guard bytes.count >= self.direction.headerLength else { return nil }
            header = FrameHeader(bytes, direction: self.direction)
            isPlausible =
                self.corruptRun == 0 || header.type & ~self.agreedFlags <= FrameType.application.upperBound
        }
        guard isPlausible else { throw .implausible(type: header.type, serial: header.serial) }
        guard self.accepts(header) else { throw self.tooLarge(header) }
        return header
    }

    /// The header of a frame that `bytes` starts with and wholly contains.
    private func completeHeader(_ bytes: UnsafeRawBufferPointer) throws(FrameError) -> FrameHeader? {
        guard let header = try self.header(bytes), bytes.count >= self.frameLength(header) else { return nil }
        return header
    }

    private func tooLarge(_ header: FrameHeader) -> FrameError {
        let (length, limit) = (Int(header.length), self.limit(of: header))
        if limit < self.maximumPayloadLength { return .helloTooLarge(length: length, limit: limit) }
        return .payloadTooLarge(length: length, limit: limit, type: header.type, serial: header.serial)
    }

    @usableFromInline
    mutating func failTooLarge(_ header: FrameHeader) -> FrameError {
        var bytes = [UInt8](repeating: 0, count: self.direction.headerLength)
        let reading = bytes.withUnsafeMutableBytes { bytes in
            header.write(to: bytes, direction: self.direction)
            return self.format.plan(for: self.direction)
                .reading(of: UnsafeRawBufferPointer(bytes), limit: self.maximumPayloadLength)
        }
        return self.fail(self.tooLarge(header).seen(reading))
    }

    /// The first bytes of an incomplete frame, and its decoded header, for error messages; nil if there is none.
    package var unfinishedReading: String? {
        guard self.partial.readableBytes > 0 else { return nil }
        return self.partial.withUnsafeReadableBytes { bytes in
            let plan = self.format.plan(for: self.direction)
            guard plan.isFixed, bytes.count >= plan.length else {
                return "they begin with \(FrameError.hex(Array(bytes.prefix(32))))"
            }
            return plan.reading(of: bytes, limit: self.maximumPayloadLength)
        }
    }

    /// Ends the stream.
    mutating func fail(_ error: FrameError) -> FrameError {
        self.failure = error
        self.needsCare = true
        self.dropInput()
        return error
    }

    /// Frees everything held, since nothing that follows is read.
    mutating func dropInput() {
        self.partial = ByteBuffer()
        self.input = ByteBuffer()
        self.block = ByteBuffer()
        // What was located in the former input is no longer part of it.
        self.appendCount &+= 1
    }

    /// Records that the last returned frame has a wrong checksum, so that its length may be wrong as well.
    @usableFromInline
    mutating func noteCorrupt(_ header: FrameHeader) {
        self.corruptRun += 1
        self.needsCare = true
        if self.corruptRun >= self.maximumCorruptRun {
            _ = self.fail(.corruptRun(self.corruptRun, type: header.type, serial: header.serial))
        }
    }

    mutating func noteSound() {
        self.corruptRun = 0
        self.needsCare = self.plan != nil || self.partial.readableBytes > 0
    }

    // MARK: Bytes of incomplete frames

    /// Moves bytes into `partial` until it holds exactly one frame, whose header is returned, or `bytes` ends.
    private mutating func fillPartial(
        from bytes: UnsafeRawBufferPointer
    ) throws(FrameError) -> (consumed: Int, header: FrameHeader?) {
        let headerLength = self.plan?.length ?? self.direction.headerLength
        var consumed = 0
        if self.partial.readableBytes < headerLength {
            consumed = min(headerLength - self.partial.readableBytes, bytes.count)
            self.partial.writeBytes(bytes[..<consumed])
        }
        let header = try self.partial.withUnsafeReadableBytes { bytes throws(FrameError) in
            try self.header(bytes)
        }
        guard let header else { return (consumed, nil) }
        let missing = self.frameLength(header) - self.partial.readableBytes
        let taken = min(missing, bytes.count - consumed)
        self.partial.writeBytes(bytes[consumed..<consumed + taken])
        return (consumed + taken, taken == missing ? header : nil)
    }

    /// Keeps the rest of a read, and releases its buffer.
    @usableFromInline
    mutating func stashInput() {
        if self.input.readableBytes > 0 {
            self.partial.writeBuffer(&self.input)
            self.needsCare = true
        }
        self.input = ByteBuffer()
        self.endBlock()
    }

    /// Ends the block: the next small payload is copied again. A client keeps the memory for the next block; a server
    /// would keep it for each of its connections.
    @usableFromInline
    mutating func endBlock() {
        self.blockStart = .max
        // Checked first: an empty buffer has storage, to which a reference would be counted.
        if self.direction == .request, self.block.writerIndex > 0 { self.block = ByteBuffer() }
    }

    @usableFromInline
    mutating func stash(_ rest: UnsafeRawBufferPointer) {
        guard !rest.isEmpty else { return }
        self.partial.writeBytes(rest)
        self.needsCare = true
    }

    // MARK: Frames

    /// The payload and its checksums, of a frame that `bytes` starts with and wholly contains. Standard format.
    @inlinable
    static func view(_ header: FrameHeader, in bytes: UnsafeRawBufferPointer, direction: FrameDirection) -> View {
        let end = direction.headerLength + Int(header.length)
        let payload = UnsafeRawBufferPointer(rebasing: bytes[direction.headerLength..<end])
        let received = bytes.bigEndianWord(at: end)
        let computed = Adler32.checksum(payload)
        return View(
            header: header,
            headerBytes: UnsafeRawBufferPointer(rebasing: bytes[..<direction.headerLength]),
            payload: payload,
            frameLength: end + Frame.trailerLength,
            mismatch: received == computed ? nil : ChecksumMismatch(received: received, computed: computed)
        )
    }

    /// The payload of `length` bytes at `index` in `input`: a slice of it, or of a copy.
    @inlinable
    @inline(__always)
    mutating func payload(at index: Int, _ length: Int) -> ByteBuffer {
        guard length > 0 else { return ByteBuffer() }
        if length > self.copyLimit { return self.input.getSlice(at: index, length: length) ?? ByteBuffer() }
        let position = index - self.blockStart
        if position + length > self.block.writerIndex || position < 0 { return self.copiedPayload(at: index, length) }
        return self.block.getSlice(at: position, length: length) ?? ByteBuffer()
    }

    /// Copies the payload at `index` together with the payloads that follow it.
    @usableFromInline
    mutating func copiedPayload(at index: Int, _ length: Int) -> ByteBuffer {
        let count = min(max(length, Self.blockLength), self.input.writerIndex - index)
        // The memory is reused if no payload refers to it.
        self.block.clear()
        self.input.withUnsafeReadableBytes { bytes in
            let start = index - self.input.readerIndex
            _ = self.block.writeBytes(UnsafeRawBufferPointer(rebasing: bytes[start..<start + count]))
        }
        self.blockStart = index
        return self.block.getSlice(at: 0, length: length) ?? ByteBuffer()
    }

    /// A view of the frame that begins with `header`, in any format.
    func view(_ header: FrameHeader, in bytes: UnsafeRawBufferPointer) throws(FrameError) -> View {
        guard let plan = self.plan else { return Self.view(header, in: bytes, direction: self.direction) }
        let end = header.headerLength + Int(header.length)
        let payload = UnsafeRawBufferPointer(rebasing: bytes[header.headerLength..<end])
        return View(
            header: header,
            headerBytes: UnsafeRawBufferPointer(rebasing: bytes[..<header.headerLength]),
            payload: payload,
            frameLength: end + plan.trailerLength,
            mismatch: try plan.check(header, payload, in: bytes, end: end)
        )
    }
}

extension FrameDecoder.View {
    /// The element that this is a view of, for its owner.
    ///
    /// - Parameters:
    ///   - buffer: Its bytes. Payloads longer than `copyLimit` are slices of it.
    ///   - plan: The plan of its format; nil for the standard format.
    func owned(from buffer: ByteBuffer, _ plan: HeaderPlan?, copyLimit: Int) -> FrameDecoder.Output {
        if let malformation = self.malformation { return .malformed(malformation) }
        let fields = plan?.customFields(in: self.header)
        var frame = Frame(type: self.type, serial: self.serial, status: self.status, customFields: fields)
        frame.isMarkedAsPush = plan?.isMarkedAsPush(self.header) ?? false
        let length = self.payload.count
        if length > copyLimit, let slice = buffer.getSlice(at: buffer.readerIndex + self.header.count, length: length) {
            frame.payload = slice
        } else if length > 0 {
            frame.payload = ByteBuffer(bytes: self.payload)
        }
        return self.mismatch.map { .corrupt(frame, $0) } ?? .frame(frame)
    }
}
