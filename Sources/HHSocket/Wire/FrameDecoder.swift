import NIOCore

/// Turns a byte stream into frames, however the stream was split or joined on its way.
///
/// Feed it what each read brought and take frames until there are no more:
/// ```swift
/// decoder.append(bytes)
/// while let output = try decoder.next() { … }
/// ```
/// or, where a frame need not outlive the call, borrow them with ``decode(_:_:)``, which allocates nothing. Stay with one
/// of the two until all frames of a read are out.
///
/// A half-received frame is kept in a buffer that grows with the bytes that have come, never with the length announced.
/// A wrong checksum spoils that frame alone, the length being assumed intact.
public struct FrameDecoder: Sendable {
    /// What a stream holds.
    public enum Output: Sendable, Hashable {
        case frame(Frame)
        /// A frame whose checksum is wrong. Its payload must not be used; its header probably names the right request.
        case corrupt(Frame, ChecksumMismatch)
    }

    /// The two checksums of a corrupt frame.
    public struct ChecksumMismatch: Sendable, Hashable {
        /// What the frame's trailer says.
        public var received: UInt32
        /// What its payload amounts to.
        public var computed: UInt32

        @inlinable
        public init(received: UInt32, computed: UInt32) {
            self.received = received
            self.computed = computed
        }
    }

    /// A frame inside somebody else's memory.
    public struct View {
        public var type: UInt32
        public var serial: UInt32
        public var status: Status
        /// The payload, valid only until the closure that was given it returns.
        public var payload: UnsafeRawBufferPointer
        /// Set if the payload must not be used.
        public var mismatch: ChecksumMismatch?

        @inlinable
        init(header: FrameHeader, payload: UnsafeRawBufferPointer, mismatch: ChecksumMismatch?) {
            self.type = header.type
            self.serial = header.serial
            self.status = header.status
            self.payload = payload
            self.mismatch = mismatch
        }
    }

    /// Payloads up to this many bytes are copied, so that a small one kept for long does not keep a whole read's buffer.
    public static let defaultCopyLimit = 512

    /// Which kind of header the stream has.
    public let direction: FrameDirection
    /// The largest payload accepted, in bytes.
    public let maximumPayloadLength: Int
    /// Payloads up to this many bytes are copied out of the read buffer; larger ones are slices of it.
    public let copyLimit: Int

    /// The bytes of one incomplete frame: never a whole one, except inside a call.
    @usableFromInline var partial = ByteBuffer()
    /// What is left of the last read.
    @usableFromInline var input = ByteBuffer()
    @usableFromInline var failure: FrameError?

    /// - Parameters:
    ///   - direction: Which kind of header the stream has.
    ///   - maximumPayloadLength: The largest payload accepted, in bytes; 16 MiB by default.
    ///   - copyLimit: The largest payload that is copied, in bytes.
    public init(
        direction: FrameDirection,
        maximumPayloadLength: Int = Frame.defaultMaximumPayloadLength,
        copyLimit: Int = FrameDecoder.defaultCopyLimit
    ) {
        self.direction = direction
        self.maximumPayloadLength = min(max(0, maximumPayloadLength), Int(Int32.max))
        self.copyLimit = copyLimit
    }

    /// The bytes kept of an incomplete frame.
    public var bufferedBytes: Int { self.partial.readableBytes + self.input.readableBytes }

    /// The memory held for them, in bytes.
    var bufferedCapacity: Int { self.partial.capacity }

    // MARK: Owned frames

    /// Hands over the bytes of a read. Once the stream has made no sense, they are dropped.
    @inlinable
    public mutating func append(_ bytes: ByteBuffer) {
        guard self.failure == nil else { return }
        if self.input.readableBytes == 0 {
            self.input = bytes
        } else {
            self.input.writeImmutableBuffer(bytes)
        }
    }

    /// The next complete frame, or nil when more bytes are needed.
    ///
    /// - Throws: ``FrameError`` when the stream makes no sense; every later call throws it again.
    @inlinable
    public mutating func next() throws(FrameError) -> Output? {
        if self.partial.readableBytes > 0 { return try self.nextFromPartial() }
        if let failure = self.failure { throw failure }

        let available = self.input.readableBytes
        guard available >= self.direction.headerLength else {
            self.stashInput()
            return nil
        }
        let header = self.input.withUnsafeReadableBytes { FrameHeader($0, direction: self.direction) }
        let total = try self.frameLength(header)
        guard available >= total else {
            self.stashInput()
            return nil
        }
        let output = Self.output(header, in: self.input, direction: self.direction, copyLimit: self.copyLimit)
        self.input.moveReaderIndex(forwardBy: total)
        return output
    }

    @usableFromInline
    mutating func nextFromPartial() throws(FrameError) -> Output? {
        if let failure = self.failure { throw failure }
        let input = self.input
        let (consumed, header) = try input.withUnsafeReadableBytesTyped { bytes throws(FrameError) in
            try self.fillPartial(from: bytes)
        }
        self.input.moveReaderIndex(forwardBy: consumed)
        guard let header else {
            self.input = ByteBuffer()
            return nil
        }
        let output = Self.output(header, in: self.partial, direction: self.direction, copyLimit: self.copyLimit)
        self.emptyPartial(payloadWasCopied: Int(header.length) <= self.copyLimit)
        return output
    }

    // MARK: Borrowed frames

    /// Calls `body` with each complete frame, in order, without copying or allocating for those that lie within `bytes`.
    ///
    /// - Throws: ``FrameError`` when the stream makes no sense; every later call throws it again.
    @inlinable
    public mutating func decode(_ bytes: UnsafeRawBufferPointer, _ body: (View) -> Void) throws(FrameError) {
        if let failure = self.failure { throw failure }
        var rest = bytes
        if self.partial.readableBytes > 0 {
            let (consumed, header) = try self.fillPartial(from: rest)
            guard let header else { return }
            self.partial.withUnsafeReadableBytes { body(Self.view(header, in: $0, direction: self.direction)) }
            self.emptyPartial(payloadWasCopied: true)
            rest = UnsafeRawBufferPointer(rebasing: rest[consumed...])
        }
        let headerLength = self.direction.headerLength
        while rest.count >= headerLength {
            let header = FrameHeader(rest, direction: self.direction)
            let total = try self.frameLength(header)
            guard rest.count >= total else { break }
            body(Self.view(header, in: rest, direction: self.direction))
            rest = UnsafeRawBufferPointer(rebasing: rest[total...])
        }
        if !rest.isEmpty { self.partial.writeBytes(rest) }
    }

    // MARK: Pieces

    /// The length of the whole frame in bytes, once its payload is known to be within the limit.
    @inlinable
    mutating func frameLength(_ header: FrameHeader) throws(FrameError) -> Int {
        guard header.length <= UInt32(self.maximumPayloadLength) else { throw self.fail(header) }
        return self.direction.headerLength + Int(header.length) + Frame.trailerLength
    }

    @usableFromInline
    mutating func fail(_ header: FrameHeader) -> FrameError {
        let error = FrameError.payloadTooLarge(
            length: Int(header.length),
            limit: self.maximumPayloadLength,
            type: header.type,
            serial: header.serial
        )
        self.failure = error
        self.partial = ByteBuffer()
        self.input = ByteBuffer()
        return error
    }

    /// Moves bytes into `partial` until it holds exactly one frame, whose header is returned, or `bytes` ends.
    @usableFromInline
    mutating func fillPartial(
        from bytes: UnsafeRawBufferPointer
    ) throws(FrameError) -> (consumed: Int, header: FrameHeader?) {
        let headerLength = self.direction.headerLength
        var consumed = 0
        if self.partial.readableBytes < headerLength {
            consumed = min(headerLength - self.partial.readableBytes, bytes.count)
            self.partial.writeBytes(bytes[..<consumed])
            guard self.partial.readableBytes == headerLength else { return (consumed, nil) }
        }
        let header = self.partial.withUnsafeReadableBytes { FrameHeader($0, direction: self.direction) }
        let missing = try self.frameLength(header) - self.partial.readableBytes
        let taken = min(missing, bytes.count - consumed)
        self.partial.writeBytes(bytes[consumed..<consumed + taken])
        return (consumed + taken, taken == missing ? header : nil)
    }

    /// Keeps the rest of a read, and lets go of its buffer.
    @usableFromInline
    mutating func stashInput() {
        if self.input.readableBytes > 0 { self.partial.writeBuffer(&self.input) }
        self.input = ByteBuffer()
    }

    @usableFromInline
    mutating func emptyPartial(payloadWasCopied: Bool) {
        if payloadWasCopied && self.partial.capacity <= 1 << 16 {
            self.partial.clear()
        } else {
            self.partial = ByteBuffer()
        }
    }

    /// The payload and its checksums, of a frame that `bytes` starts with and wholly contains.
    @inlinable
    static func view(_ header: FrameHeader, in bytes: UnsafeRawBufferPointer, direction: FrameDirection) -> View {
        let end = direction.headerLength + Int(header.length)
        let payload = UnsafeRawBufferPointer(rebasing: bytes[direction.headerLength..<end])
        let received = bytes.bigEndianWord(at: end)
        let computed = Adler32.checksum(payload)
        return View(
            header: header,
            payload: payload,
            mismatch: received == computed ? nil : ChecksumMismatch(received: received, computed: computed)
        )
    }

    @inlinable
    static func output(
        _ header: FrameHeader,
        in buffer: ByteBuffer,
        direction: FrameDirection,
        copyLimit: Int
    ) -> Output {
        let length = Int(header.length)
        var frame = Frame(type: header.type, serial: header.serial, status: header.status)
        let mismatch = buffer.withUnsafeReadableBytes { bytes in
            let view = Self.view(header, in: bytes, direction: direction)
            if length > 0, length <= copyLimit { frame.payload = ByteBuffer(bytes: view.payload) }
            return view.mismatch
        }
        if length > copyLimit,
            let slice = buffer.getSlice(at: buffer.readerIndex + direction.headerLength, length: length)
        {
            frame.payload = slice
        }
        return mismatch.map { .corrupt(frame, $0) } ?? .frame(frame)
    }
}

extension ByteBuffer {
    /// `withUnsafeReadableBytes` for closures with a typed error.
    fileprivate func withUnsafeReadableBytesTyped<T, Failure: Error>(
        _ body: (UnsafeRawBufferPointer) throws(Failure) -> T
    ) throws(Failure) -> T {
        let result = self.withUnsafeReadableBytes { bytes -> Result<T, Failure> in
            do throws(Failure) { return .success(try body(bytes)) } catch { return .failure(error) }
        }
        return try result.get()
    }
}
