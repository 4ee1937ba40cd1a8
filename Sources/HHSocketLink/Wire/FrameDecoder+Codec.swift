// SPDX-License-Identifier: Apache-2.0
import NIOCore

// A codec is the application's code: its results are checked, and so are its changes of the buffer.
extension FrameDecoder {
    /// The number of bytes in addition to the largest payload that may arrive without a frame.
    static let allowanceWithoutFrame = 64 << 10

    /// The next frame of a format with a codec, and its length in bytes.
    mutating func nextByCodec(_ plan: HeaderPlan) throws(FrameError) -> (frame: Frame, length: Int)? {
        // The codec has already seen the kept bytes.
        guard self.input.readableBytes > 0 else {
            self.input = ByteBuffer()
            return nil
        }
        let wasKept = self.partial.readableBytes > 0
        if wasKept {
            self.partial.writeBuffer(&self.input)
            swap(&self.partial, &self.input)
            self.partial = ByteBuffer()
        }
        let (start, end) = (self.input.readerIndex, self.input.writerIndex)
        let found = try self.askCodec(plan)
        guard self.input.writerIndex == end, self.input.readerIndex >= start else {
            throw .codec(plan, "has changed the bytes instead of only reading them")
        }
        let length = self.input.readerIndex - start
        guard let found else {
            guard length == 0 else { throw .codec(plan, "has taken \(length) bytes and returned no frame") }
            guard end - start <= self.maximumPayloadLength + Self.allowanceWithoutFrame else {
                throw .withoutFrame(plan, bytes: end - start, limit: self.maximumPayloadLength)
            }
            if wasKept {
                // Unchanged, without a copy: a large frame arrives in many reads.
                swap(&self.partial, &self.input)
                self.input = ByteBuffer()
            } else {
                self.stashInput()
            }
            return nil
        }
        guard length > 0 else { throw .codec(plan, "has returned a frame (\(found)) without taking any bytes") }
        guard found.payload.readableBytes <= self.maximumPayloadLength else {
            throw .payloadTooLarge(
                length: found.payload.readableBytes,
                limit: self.maximumPayloadLength,
                type: found.type,
                serial: found.serial
            )
        }
        return (self.accepted(found, plan), length)
    }

    private mutating func askCodec(_ plan: HeaderPlan) throws(FrameError) -> Frame? {
        let (direction, limit) = (self.direction, self.maximumPayloadLength)
        do {
            return try self.search.codec?.decode(&self.input, direction, maximumPayloadLength: limit)
        } catch let error as FrameError {
            throw error
        } catch {
            throw .codec(plan, "has refused the bytes: \(String("\(error)".prefix(500)))")
        }
    }

    /// A codec's frame, adjusted to the rules of its format: without the values that such frames do not have.
    private func accepted(_ found: Frame, _ plan: HeaderPlan) -> Frame {
        // A small payload must not retain a whole read's buffer.
        let length = found.payload.readableBytes
        let isCopied = length > 0 && length <= self.copyLimit
        return Frame(
            type: plan.hasType ? found.type : plan.impliedType(found.serial),
            serial: found.serial,
            status: plan.hasStatus ? found.status : .ok,
            payload: isCopied
                ? ByteBuffer(bytes: found.payload.readableBytesView) : length > 0 ? found.payload : ByteBuffer()
        )
    }

    /// Decodes the bytes of a read in a format with a codec.
    mutating func decodeByCodec(
        _ bytes: UnsafeRawBufferPointer,
        by plan: HeaderPlan,
        _ body: (View) -> Void
    ) throws(FrameError) {
        self.append(ByteBuffer(bytes: bytes))
        while let (frame, length) = try self.nextByCodec(plan) {
            frame.payload.withUnsafeReadableBytes { payload in
                let header = FrameHeader(
                    type: frame.type,
                    serial: frame.serial,
                    status: frame.status,
                    length: UInt32(truncatingIfNeeded: payload.count),
                    headerLength: 0
                )
                let none = UnsafeRawBufferPointer(rebasing: payload[..<0])
                body(View(header: header, headerBytes: none, payload: payload, frameLength: length, mismatch: nil))
            }
        }
    }
}

extension FrameEncoder {
    /// Whether a ``FrameCodec`` writes the frames, header and payload in one.
    package var usesCodec: Bool { self.plan?.codec != nil }

    /// The reason why the format cannot encode this frame; nil if it can, like every format without a codec.
    package func refusal(of frame: Frame) -> FrameError? {
        guard let plan = self.plan, let codec = plan.codec else { return nil }
        do throws(FrameError) {
            _ = try plan.encoded(frame, by: codec)
            return nil
        } catch {
            return error
        }
    }

    /// Appends a frame that the codec writes; nothing where it cannot.
    func encode(_ frame: Frame, _ plan: HeaderPlan, by codec: any FrameCodec, into buffer: inout ByteBuffer) {
        guard var bytes = try? plan.encoded(frame, by: codec) else { return }
        buffer.writeBuffer(&bytes)
    }
}

extension WireFormat {
    /// The reason why our frame cannot be sent; nil if it can, as in every format without a codec.
    package func refusal(of frame: Frame, _ direction: FrameDirection) -> SocketError? {
        FrameEncoder(direction: direction, format: self).refusal(of: frame)
            .map { SocketError(.invalidArgument, message: $0.message, serial: frame.serial) }
    }
}

extension HeaderPlan {
    /// The bytes of a frame, at least one.
    fileprivate func encoded(_ frame: Frame, by codec: any FrameCodec) throws(FrameError) -> ByteBuffer {
        // A separate buffer: the codec must not access the frames before it.
        var bytes = ByteBuffer()
        do {
            try codec.encode(frame, self.direction, into: &bytes)
        } catch {
            throw .codec(self, "has refused \(frame): \(String("\(error)".prefix(500)))", frame: frame)
        }
        guard bytes.readableBytes > 0 else { throw .codec(self, "has written nothing for \(frame)", frame: frame) }
        return bytes
    }
}

extension FrameError {
    fileprivate static func codec(_ plan: HeaderPlan, _ fault: String, frame: Frame? = nil) -> FrameError {
        FrameError(
            code: .codec,
            message: "the codec of the wire format \(plan.name) \(fault)",
            type: frame?.type,
            serial: frame?.serial
        )
    }

    fileprivate static func withoutFrame(_ plan: HeaderPlan, bytes: Int, limit: Int) -> FrameError {
        FrameError(
            code: .payloadTooLarge,
            message: """
                \(bytes) bytes have arrived from which the codec of the wire format \(plan.name) has decoded no frame, over the \
                limit of \(limit) for a payload and \(FrameDecoder.allowanceWithoutFrame) beside it; either the peer \
                speaks another protocol or the limit (maximumPayloadLength) is too low
                """,
            type: nil,
            serial: nil
        )
    }
}
