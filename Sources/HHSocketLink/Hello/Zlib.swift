// SPDX-License-Identifier: Apache-2.0
import CZlib
import NIOCore

/// Bounded compression and decompression in zlib's format (RFC 1950).
enum Zlib {
    /// A failure to decompress.
    enum Failure: Error, Hashable {
        case tooLarge
        /// The bytes are not a zlib stream, for this reason.
        case malformed(String)
    }

    /// The first capacity of the output of `inflate`, in bytes; it doubles as the output grows.
    static let firstCapacity = 4_096

    /// Appends the compressed bytes of `input` to `output`, if they are fewer than those of `input`; otherwise `output`
    /// does not change.
    ///
    /// - Parameter level: 1 to 9; others are clamped.
    /// - Returns: Whether the compressed bytes were appended.
    static func deflate(_ input: ByteBuffer, level: Int, into output: inout ByteBuffer) -> Bool {
        // Bounded by the largest payload in any case; zlib counts in 32 bits.
        guard input.readableBytes > 1, input.readableBytes <= Int(Int32.max) else { return false }
        var stream = z_stream()
        let room = input.readableBytes - 1
        // zlib keeps a pointer to the stream, so it must not move.
        let written = withUnsafeMutablePointer(to: &stream) { stream -> Int? in
            let begun = deflateInit_(
                stream,
                Int32(min(max(level, 1), 9)),
                zlibVersion(),
                Int32(MemoryLayout<z_stream>.size)
            )
            guard begun == Z_OK else { return nil }
            defer { deflateEnd(stream) }
            return input.withUnsafeReadableBytes { input in
                var written: Int?
                output.writeWithUnsafeMutableBytes(minimumWritableBytes: room) { space in
                    stream.pointee.setInput(input)
                    stream.pointee.setOutput(UnsafeMutableRawBufferPointer(rebasing: space[..<room]))
                    guard CZlib.deflate(stream, Z_FINISH) == Z_STREAM_END else { return 0 }
                    let count = room - Int(stream.pointee.avail_out)
                    written = count
                    return count
                }
                return written
            }
        }
        return written != nil
    }

    /// Decompresses `input`, which must be exactly one whole stream, into an empty buffer.
    ///
    /// The buffer grows with the output: to twice its length at most, and never beyond the power of two that contains
    /// `limit`.
    ///
    /// - Parameters:
    ///   - limit: The largest output, in bytes. At most one byte beyond it is decompressed.
    ///   - output: The buffer for the output. After a failure it contains the output so far.
    static func inflate(_ input: ByteBuffer, limit: Int, into output: inout ByteBuffer) throws(Failure) {
        guard input.readableBytes <= Int(Int32.max) else { throw .tooLarge }
        var stream = z_stream()
        // zlib keeps a pointer to the stream, so it must not move.
        let failure = withUnsafeMutablePointer(to: &stream) { stream -> Failure? in
            guard inflateInit_(stream, zlibVersion(), Int32(MemoryLayout<z_stream>.size)) == Z_OK else {
                return .malformed("there is no memory to read it")
            }
            defer { inflateEnd(stream) }
            return input.withUnsafeReadableBytes { input in
                stream.pointee.setInput(input)
                guard case .failed(let failure) = Self.inflate(stream, limit: limit, into: &output) else { return nil }
                return failure
            }
        }
        if let failure { throw failure }
    }

    /// The end of a part of decompressing.
    enum Step {
        /// The stream and the input have ended.
        case over
        /// The requested number of bytes has been decompressed.
        case more
        case failed(Failure)
    }

    /// Decompresses the stream's input.
    ///
    /// - Parameter count: The number of bytes after which it stops; by default it stops only at the end.
    static func inflate(
        _ stream: UnsafeMutablePointer<z_stream>,
        limit: Int,
        atMost count: Int = .max,
        into output: inout ByteBuffer
    ) -> Step {
        var left = count
        while true {
            let status: Int32
            if left <= 0 { return .more }
            if output.readableBytes >= limit {
                // The remaining input may be only the end of the stream.
                var probe: UInt8 = 0
                let (result, isOver) = withUnsafeMutableBytes(of: &probe) { probe in
                    stream.pointee.setOutput(probe)
                    let result = CZlib.inflate(stream, Z_NO_FLUSH)
                    return (result, stream.pointee.avail_out == 0)
                }
                if isOver { return .failed(.tooLarge) }
                status = result
            } else {
                if output.writableBytes == 0 {
                    output.reserveCapacity(min(max(output.readableBytes * 2, Self.firstCapacity), limit))
                }
                let length = output.readableBytes
                status = Self.fill(&output, from: stream, atMost: min(limit - length, left))
                left -= output.readableBytes - length
            }
            switch status {
            case Z_STREAM_END:
                guard stream.pointee.avail_in == 0 else {
                    return .failed(.malformed("\(stream.pointee.avail_in) bytes follow its end"))
                }
                return .over
            case Z_OK where stream.pointee.avail_in > 0 || stream.pointee.avail_out == 0:
                continue
            case Z_OK, Z_BUF_ERROR:
                return .failed(.malformed("its end is missing"))
            case Z_NEED_DICT:
                return .failed(.malformed("it needs a dictionary, which nobody has agreed on"))
            default:
                return .failed(.malformed(stream.pointee.msg.map { String(cString: $0) } ?? "zlib's error \(status)"))
            }
        }
    }

    /// Decompresses into the free room of `output`, `allowed` bytes at most.
    private static func fill(
        _ output: inout ByteBuffer,
        from stream: UnsafeMutablePointer<z_stream>,
        atMost allowed: Int
    ) -> Int32 {
        var status = Z_OK
        output.writeWithUnsafeMutableBytes(minimumWritableBytes: 1) { space in
            let room = min(space.count, allowed, Int(Int32.max))
            stream.pointee.setOutput(UnsafeMutableRawBufferPointer(rebasing: space[..<room]))
            status = CZlib.inflate(stream, Z_NO_FLUSH)
            return room - Int(stream.pointee.avail_out)
        }
        return status
    }
}

extension z_stream {
    /// The counts fit: callers bound both.
    mutating func setInput(_ bytes: UnsafeRawBufferPointer) {
        // zlib only reads from it.
        self.next_in = UnsafeMutablePointer(mutating: bytes.bindMemory(to: UInt8.self).baseAddress)
        self.avail_in = UInt32(bytes.count)
    }

    fileprivate mutating func setOutput(_ bytes: UnsafeMutableRawBufferPointer) {
        self.next_out = bytes.bindMemory(to: UInt8.self).baseAddress
        self.avail_out = UInt32(bytes.count)
    }
}
