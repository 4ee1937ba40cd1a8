// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

/// The metadata before a body and its compression, if hello agreed on them. The flags in the frame's type say which of
/// them are used; with neither, the payload is the body.
package struct Envelope: Hashable, Sendable {
    /// The largest size of metadata, in bytes.
    package static let maximumMetadataLength = 16 << 10
    /// The largest number of values in metadata.
    package static let maximumValues = 64
    /// The longest idempotency key, in bytes of UTF-8.
    package static let maximumKeyLength = 128

    /// The type without flags.
    package var type: UInt32
    package var metadata: WireMetadata?
    package var body: ByteBuffer
    /// Whether the body is still compressed.
    package var isCompressed = false

    package init(type: UInt32, metadata: WireMetadata? = nil, body: ByteBuffer) {
        self.type = type
        self.metadata = metadata
        self.body = body
    }

    // MARK: Making

    /// A frame's type, with its flags, and payload.
    package typealias Sealed = (type: UInt32, payload: ByteBuffer)

    /// Puts a body into its envelope. The caller must know that the other end accepts it.
    ///
    /// - Parameters:
    ///   - type: The type without flags.
    ///   - body: The application's body. Without metadata and compression it becomes the payload without a copy.
    ///   - metadata: The metadata before the body; nil for none.
    ///   - compression: The policy by which the body is compressed, if it is long enough and becomes smaller; nil for
    ///     no compression.
    /// - Throws: ``EnvelopeError/metadataTooLong(length:limit:)`` or ``EnvelopeError/metadataMalformed(_:)``: the other
    ///   end would not accept this metadata.
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

    /// Puts a body that ``deflate(_:level:)`` has compressed into its envelope.
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

    /// Compresses a body; nil if it would not become smaller.
    ///
    /// - Parameter level: zlib's level; see ``CompressionPolicy/level``.
    package static func deflate(_ body: ByteBuffer, level: Int) -> ByteBuffer? {
        var deflated = ByteBuffer()
        return Zlib.deflate(body, level: level, into: &deflated) ? deflated : nil
    }

    /// Writes the metadata, after its length, and reserves room for a body of `bodyLength` bytes after them.
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

    /// Opens the envelope of a received frame.
    ///
    /// - Parameters:
    ///   - type: The frame's type, with its flags.
    ///   - payload: Its payload. A body that is not compressed is a slice of it.
    ///   - agreedFlags: The flags that hello agreed on (``Agreement/flags``); 0 where there was none.
    ///   - maximumBodyLength: The largest size of a decompressed body, in bytes.
    ///   - maximumMetadataLength: The largest size of metadata, in bytes; 16 KiB by default.
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
    /// - Parameter limit: The largest size of the decompressed body, in bytes.
    package mutating func inflate(limit: Int) throws(EnvelopeError) {
        guard self.isCompressed else { return }
        self.body = try Self.inflate(self.body, limit: limit)
        self.isCompressed = false
    }

    /// Opens an envelope without decompressing its body. Decompressing a body costs far more than sending one, so a
    /// server decompresses it, with ``inflate(_:limit:)``, only once it has admitted the request.
    private static func openCompressed(
        type: UInt32,
        payload: ByteBuffer,
        agreedFlags: UInt32,
        maximumMetadataLength: Int = Envelope.maximumMetadataLength
    ) throws(EnvelopeError) -> Envelope {
        let flags = type & FrameType.allFlags
        var envelope = Envelope(type: type & ~FrameType.allFlags, body: payload)
        guard flags != 0 else { return envelope }
        // Pieces were joined before, so this payload does not continue in another frame.
        let unknown = flags & ~(agreedFlags & ~FrameType.continuesFlag)
        guard unknown == 0 else { throw .flagNotAgreed(unknown) }
        if flags & FrameType.metadataFlag != 0 {
            envelope.metadata = try Self.takeMetadata(from: &envelope.body, limit: maximumMetadataLength)
        }
        envelope.isCompressed = flags & FrameType.compressionFlag != 0
        return envelope
    }

    /// The contents of an envelope beside the body.
    package struct Contents {
        package var metadata: WireMetadata?
        package var isCompressed = false
    }

    /// Opens the envelope of a frame in place, without decompressing its body: its type has no flags then, and its
    /// payload is the body. If that fails, the payload is unchanged.
    ///
    /// - Parameter agreedFlags: As for ``open(type:payload:agreedFlags:maximumBodyLength:maximumMetadataLength:)``.
    package static func open(_ frame: inout ArrivedFrame, agreedFlags: UInt32) throws(EnvelopeError) -> Contents {
        let type = frame.type
        frame.type &= ~FrameType.allFlags
        let envelope = try Self.openCompressed(type: type, payload: frame.payload.buffer, agreedFlags: agreedFlags)
        frame.payload = LentBytes(envelope.body)
        return Contents(metadata: envelope.metadata, isCompressed: envelope.isCompressed)
    }

    /// Decompresses the body of a frame whose envelope was opened.
    ///
    /// - Parameter limit: The largest size of the decompressed body, in bytes.
    package static func inflate(_ frame: inout ArrivedFrame, limit: Int) throws(EnvelopeError) {
        frame.payload = LentBytes(try Self.inflate(frame.payload.buffer, limit: limit))
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

    /// Decompresses a body.
    ///
    /// - Parameter limit: The largest size of the result, in bytes.
    package static func inflate(_ body: ByteBuffer, limit: Int) throws(EnvelopeError) -> ByteBuffer {
        do throws(Zlib.Failure) {
            var inflated = ByteBuffer()
            try Zlib.inflate(body, limit: limit, into: &inflated)
            return inflated
        } catch {
            throw EnvelopeError(error, limit: limit)
        }
    }
}
