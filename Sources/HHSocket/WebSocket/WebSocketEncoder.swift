package import NIOCore

/// Turns messages and control frames into bytes. Masks those of a client as it copies them.
package struct WebSocketEncoder: Sendable {
    /// The longest message of a stream, in bytes: gateways and browsers pass on a message when they have all of it.
    package static let maximumStreamMessageLength = 65_535

    private var masks: MaskSource?

    /// - Parameter role: Our side.
    package init(role: WebSocketRole) {
        self.masks = role == .client ? MaskSource() : nil
    }

    /// - Parameter secret: The source of masking keys; 32 bytes.
    package init(role: WebSocketRole, secret: [UInt8]) {
        self.masks = role == .client ? MaskSource(secret: secret) : nil
    }

    /// Writes a message in one frame.
    package mutating func encode(_ kind: WebSocketMessageKind, _ payload: ByteBuffer, into out: inout ByteBuffer) {
        self.encode(kind.opcode, isFinal: true, payload, into: &out)
    }

    /// Writes one fragment of a message.
    ///
    /// - Parameter isFirst: Whether the message begins with it.
    package mutating func encodeFragment(
        _ kind: WebSocketMessageKind,
        isFirst: Bool,
        isFinal: Bool,
        _ payload: ByteBuffer,
        into out: inout ByteBuffer
    ) {
        self.encode(isFirst ? kind.opcode : .continuation, isFinal: isFinal, payload, into: &out)
    }

    /// Writes bytes of a stream, in binary messages of at most ``maximumStreamMessageLength`` bytes.
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
        _ payload: ByteBuffer,
        into out: inout ByteBuffer
    ) {
        let key = self.masks?.next()
        WebSocketFrameHeader.write(opcode, isFinal: isFinal, length: payload.readableBytes, key: key, to: &out)
        guard let key else {
            out.writeImmutableBuffer(payload)
            return
        }
        var mask = WebSocketMask(key: key)
        payload.withUnsafeReadableBytes { out.write($0, &mask) }
    }
}
