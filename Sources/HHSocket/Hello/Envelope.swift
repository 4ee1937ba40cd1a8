import HHSocketMessage
import NIOCore

/// What stands around a body where hello agreed on it: metadata before it, and compression of it. The flags in the
/// frame's type say which of them are there; with neither, the payload is the body.
package struct Envelope: Hashable, Sendable {
    /// How many bytes metadata may take.
    package static let maximumMetadataLength = 16 << 10
    /// How many values metadata may have.
    package static let maximumValues = 64
    /// How long an idempotency key may be, in bytes of UTF-8.
    package static let maximumKeyLength = 128

    /// The type without flags.
    package var type: UInt32
    package var metadata: WireMetadata?
    package var body: ByteBuffer
    /// Whether the body is compressed still.
    package var isCompressed = false

    package init(type: UInt32, metadata: WireMetadata? = nil, body: ByteBuffer) {
        self.type = type
        self.metadata = metadata
        self.body = body
    }

    // MARK: Making

    /// A frame's type, with its flags, and payload.
    package typealias Sealed = (type: UInt32, payload: ByteBuffer)

    /// What is sent for a body. Whether the other end takes it is for the caller to know.
    ///
    /// - Parameters:
    ///   - type: The type without flags.
    ///   - body: As the application gave it. Without metadata and compression it is the payload, and not copied.
    ///   - metadata: What stands before it; nil for nothing.
    ///   - compression: Whether it is compressed, if it has the length for that and becomes smaller by it; nil: it is
    ///     not.
    /// - Throws: ``EnvelopeError/metadataTooLong(length:limit:)`` or ``EnvelopeError/metadataMalformed(_:)``: the other
    ///   end would not take this metadata.
    package static func seal(
        type: UInt32,
        body: ByteBuffer,
        metadata: WireMetadata? = nil,
        compression: CompressionPolicy? = nil
    ) throws(EnvelopeError) -> Sealed {
        var type = type
        var payload = ByteBuffer()
        if let metadata {
            type |= FrameType.metadataFlag
            try Self.write(metadata, into: &payload, body.readableBytes)
        }
        if let compression, body.readableBytes >= compression.minimumLength,
            Zlib.deflate(body, level: compression.level, into: &payload)
        {
            return (type | FrameType.compressionFlag, payload)
        }
        guard metadata != nil else { return (type, body) }
        payload.writeImmutableBuffer(body)
        return (type, payload)
    }

    /// Writes the metadata of a body that ``deflate(_:level:)`` has compressed.
    package static func seal(
        type: UInt32,
        deflated body: ByteBuffer,
        metadata: WireMetadata?
    ) throws(EnvelopeError) -> Sealed {
        let type = type | FrameType.compressionFlag
        guard let metadata else { return (type, body) }
        var payload = ByteBuffer()
        try Self.write(metadata, into: &payload, body.readableBytes)
        payload.writeImmutableBuffer(body)
        return (type | FrameType.metadataFlag, payload)
    }

    /// A body that is compressed; nil if it would not become smaller.
    ///
    /// - Parameter level: As ``CompressionPolicy/level``.
    package static func deflate(_ body: ByteBuffer, level: Int) -> ByteBuffer? {
        var deflated = ByteBuffer()
        return Zlib.deflate(body, level: level, into: &deflated) ? deflated : nil
    }

    /// Writes the metadata and its length, into a buffer that has room for a body of this length after them.
    private static func write(
        _ metadata: WireMetadata,
        into payload: inout ByteBuffer,
        _ bodyLength: Int
    ) throws(EnvelopeError) {
        try Self.check(metadata)
        let written: Result<Void, EnvelopeError>
        do {
            written = try metadata.withMessageBytes { bytes in
                guard bytes.count <= Self.maximumMetadataLength else {
                    return .failure(.metadataTooLong(length: bytes.count, limit: Self.maximumMetadataLength))
                }
                payload.reserveCapacity(4 + bytes.count + bodyLength)
                payload.writeInteger(UInt32(bytes.count))
                payload.writeBytes(bytes)
                return .success(())
            }
        } catch {
            throw .metadataMalformed("\(error)")
        }
        try written.get()
    }

    // MARK: Opening

    /// What is in a frame that has come.
    ///
    /// - Parameters:
    ///   - type: The frame's type, with its flags.
    ///   - payload: Its payload. A body that is not compressed is a slice of it.
    ///   - agreedFlags: The flags that hello agreed on (``Agreement/flags``); 0 where there was none.
    ///   - maximumBodyLength: How many bytes a body may have that was compressed.
    ///   - maximumMetadataLength: How many bytes metadata may take; 16 KiB by default.
    package static func open(
        type: UInt32,
        payload: ByteBuffer,
        agreedFlags: UInt32,
        maximumBodyLength: Int,
        maximumMetadataLength: Int = Envelope.maximumMetadataLength
    ) throws(EnvelopeError) -> Envelope {
        var envelope = try Self.openCompressed(
            type: type,
            payload: payload,
            agreedFlags: agreedFlags,
            maximumMetadataLength: maximumMetadataLength
        )
        try envelope.inflate(limit: maximumBodyLength)
        return envelope
    }

    /// Decompresses the body, if it is compressed.
    ///
    /// - Parameter limit: How many bytes it may have then.
    package mutating func inflate(limit: Int) throws(EnvelopeError) {
        guard self.isCompressed else { return }
        self.body = try Self.inflate(self.body, limit: limit)
        self.isCompressed = false
    }

    /// An envelope whose body is left as it came. What it takes to decompress one is far more than what it takes to
    /// send one, so a server does that when it is sure that it wants to: with ``inflate(_:limit:)``.
    package static func openCompressed(
        type: UInt32,
        payload: ByteBuffer,
        agreedFlags: UInt32,
        maximumMetadataLength: Int = Envelope.maximumMetadataLength
    ) throws(EnvelopeError) -> Envelope {
        let flags = type & FrameType.allFlags
        var envelope = Envelope(type: type & ~FrameType.allFlags, body: payload)
        guard flags != 0 else { return envelope }
        // Nobody can agree on the reserved one.
        let unknown = flags & ~(agreedFlags & ~FrameType.reservedFlag)
        guard unknown == 0 else { throw .flagNotAgreed(unknown) }
        if flags & FrameType.metadataFlag != 0 {
            envelope.metadata = try Self.takeMetadata(from: &envelope.body, limit: maximumMetadataLength)
        }
        envelope.isCompressed = flags & FrameType.compressionFlag != 0
        return envelope
    }

    private static func takeMetadata(from payload: inout ByteBuffer, limit: Int) throws(EnvelopeError) -> WireMetadata {
        let available = payload.readableBytes
        guard let announced = payload.readInteger(as: UInt32.self) else {
            throw .metadataTruncated(announced: nil, available: available)
        }
        let length = Int(announced)
        guard length <= limit else { throw .metadataTooLong(length: length, limit: limit) }
        guard let bytes = payload.readSlice(length: length) else {
            throw .metadataTruncated(announced: length, available: payload.readableBytes)
        }
        let metadata: WireMetadata
        do {
            metadata = try bytes.message()
        } catch {
            throw .metadataMalformed("\(error)")
        }
        try Self.check(metadata)
        return metadata
    }

    private static func check(_ metadata: WireMetadata) throws(EnvelopeError) {
        guard metadata.values.count <= Self.maximumValues else {
            throw .metadataMalformed("\(metadata.values.count) values, over the limit of \(Self.maximumValues)")
        }
        let keyLength = metadata.idempotencyKey.utf8.count
        guard keyLength <= Self.maximumKeyLength else {
            throw .metadataMalformed(
                "an idempotency key of \(keyLength) bytes, over the limit of \(Self.maximumKeyLength)"
            )
        }
    }

    /// A compressed body as it was before.
    ///
    /// - Parameter limit: How many bytes it may have.
    package static func inflate(_ body: ByteBuffer, limit: Int) throws(EnvelopeError) -> ByteBuffer {
        do throws(Zlib.Failure) {
            var inflated = ByteBuffer()
            try Zlib.inflate(body, limit: limit, into: &inflated)
            return inflated
        } catch {
            switch error {
            case .tooLarge: throw .bodyTooLarge(limit: limit)
            case .malformed(let reason): throw .compressionMalformed(reason)
            }
        }
    }
}
