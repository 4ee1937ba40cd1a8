// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// Encodes messages and control frames. Masks those of a client as it copies them.
///
/// If compression was agreed on, the bytes must be sent in the order of the calls, without omissions: messages refer to
/// earlier ones. Copies share the state of the compression, so only one of them may continue to encode.
package struct WebSocketEncoder: Sendable {
    /// The longest message of a stream, in bytes: gateways and browsers pass on a message when they have all of it.
    package static let maximumStreamMessageLength = 65_535

    private var masks: MaskSource?
    /// The parameters for our messages; nil if they are not compressed.
    private let compression: DeflateDirection?
    /// The length of the shortest message that is compressed, in bytes; with 0 all are, also those that get longer by
    /// it. Not changed once something was encoded.
    var minimumCompressedLength = WebSocketDeflater.defaultMinimumLength
    /// The account that is charged for zlib's memory.
    private let account: (any LinkAccount)?
    /// Nil before the first message that is long enough.
    private var deflater: WebSocketDeflater?

    /// - Parameters:
    ///   - role: Our side.
    ///   - deflate: The agreement on compression, if there is one.
    ///   - account: The account that is charged for the memory of compression; nil at a client.
    package init(role: WebSocketRole, deflate: DeflateAgreement? = nil, account: (any LinkAccount)?) {
        self.init(role, masks: role == .client ? MaskSource() : nil, deflate: deflate, account: account)
    }

    /// - Parameters:
    ///   - role: Our side.
    ///   - secret: The source of masking keys; 32 bytes.
    ///   - deflate: The agreement on compression, if there is one.
    package init(role: WebSocketRole, secret: [UInt8], deflate: DeflateAgreement? = nil) {
        self.init(role, masks: role == .client ? MaskSource(secret: secret) : nil, deflate: deflate, account: nil)
    }

    private init(
        _ role: WebSocketRole,
        masks: MaskSource?,
        deflate: DeflateAgreement?,
        account: (any LinkAccount)?
    ) {
        self.masks = masks
        self.account = account
        let direction = deflate?.direction(from: role)
        self.compression = direction?.canDeflate == true ? direction : nil
    }

    /// Whether memory is allocated for the compression of messages.
    var holdsContext: Bool { self.deflater?.isAllocated == true }

    /// Frees the memory for compression, unless it was used since the last call.
    mutating func releaseContextUnlessUsed() { self.deflater?.releaseUnlessUsed() }

    /// Frees it, since nothing more is sent.
    mutating func dropContext() { self.deflater = nil }

    /// Writes a message in one frame, compressed if that was agreed on and makes it shorter.
    package mutating func encode(_ kind: WebSocketMessageKind, _ payload: ByteBuffer, into out: inout ByteBuffer) {
        if let compressed = self.compress(payload) {
            self.encode(kind.opcode, isFinal: true, isCompressed: true, compressed, into: &out)
        } else {
            self.encode(kind.opcode, isFinal: true, payload, into: &out)
        }
    }

    /// Compresses a message, if that was agreed on and makes it shorter; nil otherwise. The message must be sent next.
    mutating func compress(_ payload: ByteBuffer) -> ByteBuffer? {
        guard let compression = self.compression, self.mayCompress(length: payload.readableBytes) else { return nil }
        if self.deflater == nil {
            self.deflater = WebSocketDeflater(
                compression,
                account: self.account,
                minimumLength: self.minimumCompressedLength
            )
        }
        return self.deflater?.compress(payload)
    }

    /// Whether an uncompressed payload is sent unmasked: see ``SendBytes/append(_:masking:)``.
    var sendsUnmasked: Bool { self.masks == nil }

    /// Whether a payload of this length may be compressed.
    func mayCompress(length: Int) -> Bool { self.compression != nil && length >= self.minimumCompressedLength }

    /// Writes the header of a message in one frame, whose payload the caller writes.
    ///
    /// - Parameter length: The length of the payload, in bytes.
    /// - Returns: The mask for the payload, which must be applied to its parts in order; nil at a server.
    mutating func beginMessage(
        _ kind: WebSocketMessageKind,
        length: Int,
        into out: inout ByteBuffer
    ) -> WebSocketMask? {
        self.begin(kind.opcode, isFinal: true, isCompressed: false, length: length, into: &out)
    }

    /// Writes the header of one fragment of a message, whose payload the caller writes, like
    /// ``beginMessage(_:length:into:)``.
    ///
    /// - Parameters:
    ///   - isFirst: Whether the message begins with it.
    ///   - isCompressed: Whether the message was compressed, by ``compress(_:)``.
    ///   - length: The length of the payload, in bytes.
    mutating func beginFragment(
        _ kind: WebSocketMessageKind,
        isFirst: Bool,
        isFinal: Bool,
        isCompressed: Bool,
        length: Int,
        into out: inout ByteBuffer
    ) -> WebSocketMask? {
        self.begin(
            isFirst ? kind.opcode : .continuation,
            isFinal: isFinal,
            isCompressed: isCompressed && isFirst,
            length: length,
            into: &out
        )
    }

    /// Writes one fragment of a message.
    ///
    /// - Parameters:
    ///   - isFirst: Whether the message begins with it.
    ///   - isCompressed: Whether the message was compressed, by ``compress(_:)``.
    package mutating func encodeFragment(
        _ kind: WebSocketMessageKind,
        isFirst: Bool,
        isFinal: Bool,
        isCompressed: Bool = false,
        _ payload: ByteBuffer,
        into out: inout ByteBuffer
    ) {
        self.encode(
            isFirst ? kind.opcode : .continuation,
            isFinal: isFinal,
            isCompressed: isCompressed && isFirst,
            payload,
            into: &out
        )
    }

    /// Writes bytes of a stream, in uncompressed binary messages of at most ``maximumStreamMessageLength`` bytes.
    package mutating func encodeStream(_ bytes: ByteBuffer, into out: inout ByteBuffer) {
        var bytes = bytes
        while bytes.readableBytes > 0 {
            let length = min(bytes.readableBytes, Self.maximumStreamMessageLength)
            guard let part = bytes.readSlice(length: length) else { return }
            self.encode(.binary, isFinal: true, part, into: &out)
        }
    }

    /// Writes a ping; of a payload over 125 bytes only these.
    package mutating func encodePing(_ payload: ByteBuffer = ByteBuffer(), into out: inout ByteBuffer) {
        self.encodeControl(.ping, payload, into: &out)
    }

    /// Writes a pong; of a payload over 125 bytes only these.
    package mutating func encodePong(_ payload: ByteBuffer, into out: inout ByteBuffer) {
        self.encodeControl(.pong, payload, into: &out)
    }

    package mutating func encodeClose(_ close: WebSocketClose, into out: inout ByteBuffer) {
        var payload = ByteBuffer()
        close.write(to: &payload)
        self.encodeControl(.close, payload, into: &out)
    }

    private mutating func encodeControl(_ opcode: WebSocketOpcode, _ payload: ByteBuffer, into out: inout ByteBuffer) {
        let length = min(payload.readableBytes, WebSocketFrameHeader.maximumControlLength)
        self.encode(
            opcode,
            isFinal: true,
            payload.getSlice(at: payload.readerIndex, length: length) ?? payload,
            into: &out
        )
    }

    private mutating func encode(
        _ opcode: WebSocketOpcode,
        isFinal: Bool,
        isCompressed: Bool = false,
        _ payload: ByteBuffer,
        into out: inout ByteBuffer
    ) {
        let length = payload.readableBytes
        guard
            var mask = self.begin(opcode, isFinal: isFinal, isCompressed: isCompressed, length: length, into: &out)
        else {
            out.writeImmutableBuffer(payload)
            return
        }
        payload.withUnsafeReadableBytes { out.write($0, &mask) }
    }

    /// Writes the header of a frame.
    ///
    /// - Returns: The mask for its payload; nil at a server.
    private mutating func begin(
        _ opcode: WebSocketOpcode,
        isFinal: Bool,
        isCompressed: Bool,
        length: Int,
        into out: inout ByteBuffer
    ) -> WebSocketMask? {
        let key = self.masks?.next()
        WebSocketFrameHeader.write(
            opcode,
            isFinal: isFinal,
            isCompressed: isCompressed,
            length: length,
            key: key,
            to: &out
        )
        return key.map { WebSocketMask(key: $0) }
    }
}
