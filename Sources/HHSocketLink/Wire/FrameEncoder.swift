// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// Turns frames into bytes.
public struct FrameEncoder: Sendable {
    /// Which kind of header to write.
    @usableFromInline package let direction: FrameDirection
    /// The layout of frames.
    package let format: WireFormat
    /// The custom fields of frames that bring none; nil: zeros.
    package let customFields: [UInt8]?
    /// Nil for the standard format.
    @usableFromInline let plan: HeaderPlan?

    /// - Parameters:
    ///   - direction: Which kind of header to write.
    ///   - format: How frames are laid out; the standard format by default.
    ///   - customFields: The custom fields of frames that bring none; zeros by default.
    public init(direction: FrameDirection, format: WireFormat = .standard, customFields: [UInt8]? = nil) {
        self.direction = direction
        self.format = format
        self.customFields = customFields
        self.plan = format.specialPlan(for: direction)
    }

    /// Whether frames are laid out as in the standard format.
    package var isStandard: Bool { self.plan == nil }

    /// The length in bytes of a frame with a payload of `payloadLength` bytes; the largest if that of the header
    /// varies, and an estimate in formats of a ``FrameCodec``.
    @inlinable
    package func encodedLength(payloadLength: Int) -> Int {
        if let plan = self.plan { return self.overhead(plan) + payloadLength }
        return self.direction.headerLength + payloadLength + Frame.trailerLength
    }

    /// Returns the length of a frame on the wire, in bytes.
    package func encodedLength(of frame: Frame) -> Int {
        if let plan = self.plan, !plan.isFixed {
            return plan.encodedLength(of: self.header(of: frame)) + frame.payload.readableBytes + plan.trailerLength
        }
        return self.encodedLength(payloadLength: frame.payload.readableBytes)
    }

    /// The length in bytes of everything after a payload.
    package var trailerLength: Int { self.plan?.trailerLength ?? Frame.trailerLength }

    @usableFromInline
    func overhead(_ plan: HeaderPlan) -> Int { plan.length + plan.trailerLength }

    /// Appends the whole frame to `buffer`; nothing if a ``FrameCodec`` cannot encode it.
    @inlinable
    public func encode(_ frame: Frame, into buffer: inout ByteBuffer) {
        if let plan = self.plan { return self.encode(frame, by: plan, into: &buffer) }
        self.encode(type: frame.type, serial: frame.serial, status: frame.status, frame.payload, into: &buffer)
    }

    /// Appends a frame of the standard format, without making one.
    @inlinable
    package func encode(
        type: UInt32,
        serial: UInt32,
        status: Status = .ok,
        _ payload: ByteBuffer,
        into buffer: inout ByteBuffer
    ) {
        assert(self.plan == nil)
        payload.withUnsafeReadableBytes {
            Self.encode(type: type, serial: serial, status: status, $0, self.direction, into: &buffer)
        }
    }

    /// Encodes without an encoder, which would have to be retained.
    @inlinable
    package static func encode(
        type: UInt32,
        serial: UInt32,
        status: Status,
        _ payload: UnsafeRawBufferPointer,
        _ direction: FrameDirection,
        into buffer: inout ByteBuffer
    ) {
        let length = payload.count
        let headerLength = direction.headerLength
        let end = headerLength + length
        let header = FrameHeader(
            type: type,
            serial: serial,
            status: status,
            length: UInt32(truncatingIfNeeded: length),
            headerLength: headerLength
        )
        let total = end + Frame.trailerLength
        // Reserving capacity costs another check of whether the buffer is shared.
        if buffer.writableBytes < total { buffer.reserveCapacity(minimumWritableBytes: total) }
        buffer.withUnsafeMutableWritableBytes { target in
            header.write(to: target, direction: direction)
            if let body = payload.baseAddress, let start = target.baseAddress {
                (start + headerLength).copyMemory(from: body, byteCount: length)
            }
            target.storeBigEndian(Adler32.checksum(payload), at: end)
        }
        buffer.moveWriterIndex(forwardBy: total)
    }

    @usableFromInline
    func encode(_ frame: Frame, by plan: HeaderPlan, into buffer: inout ByteBuffer) {
        if let codec = plan.codec { return self.encode(frame, plan, by: codec, into: &buffer) }
        let header = self.header(of: frame)
        let length = frame.payload.readableBytes
        let headerLength = plan.encodedLength(of: header)
        let end = headerLength + length
        let total = end + plan.trailerLength
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: total) { target in
            plan.write(
                header,
                custom: frame.customFields ?? self.customFields,
                isPush: frame.isMarkedAsPush,
                to: target
            )
            frame.payload.withUnsafeReadableBytes { payload in
                if length > 0 {
                    UnsafeMutableRawBufferPointer(rebasing: target[headerLength..<end]).copyMemory(from: payload)
                }
                plan.writeTrailer(
                    type: frame.type,
                    payload,
                    to: UnsafeMutableRawBufferPointer(rebasing: target[end..<total])
                )
            }
            return total
        }
    }

    /// Appends only the frame's header, for payloads that are sent without being copied. In formats of a ``FrameCodec``
    /// there is no header, and nothing after a payload: their frames are encoded as a whole.
    package func encodeHeader(of frame: Frame, into buffer: inout ByteBuffer) {
        self.encode(self.header(of: frame), of: frame, into: &buffer)
    }

    /// Appends the header of a frame that announces a payload of another length than it has.
    package func encodeHeader(of frame: Frame, announcing length: UInt32, into buffer: inout ByteBuffer) {
        var header = self.header(of: frame)
        header.length = length
        self.encode(header, of: frame, into: &buffer)
    }

    private func encode(_ header: FrameHeader, of frame: Frame, into buffer: inout ByteBuffer) {
        guard !self.usesCodec else { return }
        let length = self.plan?.encodedLength(of: header) ?? self.direction.headerLength
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: length) { target in
            if let plan = self.plan {
                plan.write(
                    header,
                    custom: frame.customFields ?? self.customFields,
                    isPush: frame.isMarkedAsPush,
                    to: target
                )
            } else {
                header.write(to: target, direction: self.direction)
            }
            return length
        }
    }

    /// Appends the part after the payload.
    package func encodeTrailer(of frame: Frame, into buffer: inout ByteBuffer) {
        self.encodeTrailer(type: frame.type, frame.payload, into: &buffer)
    }

    func encodeTrailer(type: UInt32, _ payload: ByteBuffer, into buffer: inout ByteBuffer) {
        guard let plan = self.plan else {
            buffer.writeInteger(Adler32.checksum(payload))
            return
        }
        guard plan.trailerLength > 0 else { return }
        buffer.writeWithUnsafeMutableBytes(minimumWritableBytes: plan.trailerLength) { target in
            payload.withUnsafeReadableBytes { plan.writeTrailer(type: type, $0, to: target) }
            return plan.trailerLength
        }
    }

    @inlinable
    func header(of frame: Frame) -> FrameHeader {
        FrameHeader(
            type: frame.type,
            serial: frame.serial,
            status: frame.status,
            length: UInt32(truncatingIfNeeded: frame.payload.readableBytes),
            headerLength: self.direction.headerLength
        )
    }
}
