// SPDX-License-Identifier: Apache-2.0
import CZlib
import NIOCore

@testable import HHSocket
@testable import HHSocketLink

func buffer(hex text: String) -> ByteBuffer { ByteBuffer(bytes: bytes(hex: text)) }

/// A complete frame of the standard format, in the notation of Docs/Protocol.md.
func frame(hex text: String, _ direction: FrameDirection) throws -> Frame {
    var decoder = FrameDecoder(direction: direction)
    decoder.append(buffer(hex: text))
    guard case .frame(let frame)? = try decoder.next() else { throw Missing() }
    return frame
}

struct Missing: Error {}

/// The simplest functions of zlib, with which ours are compared.
enum Oracle {
    static func compress(_ bytes: [UInt8], level: Int32 = 6) throws -> [UInt8] {
        var length = compressBound(uLong(bytes.count))
        var output = [UInt8](repeating: 0, count: Int(length))
        guard compress2(&output, &length, bytes, uLong(bytes.count), level) == Z_OK else { throw Missing() }
        return Array(output[..<Int(length)])
    }

    static func uncompress(_ bytes: [UInt8], to count: Int) throws -> [UInt8] {
        var length = uLong(count)
        var output = [UInt8](repeating: 0, count: max(count, 1))
        guard CZlib.uncompress(&output, &length, bytes, uLong(bytes.count)) == Z_OK else { throw Missing() }
        return Array(output[..<Int(length)])
    }

    /// The compressed stream of `count` zeros, made without allocating them.
    static func zeros(_ count: Int) throws -> [UInt8] {
        var stream = z_stream()
        let chunk = [UInt8](repeating: 0, count: 1 << 20)
        var output: [UInt8] = []
        try withUnsafeMutablePointer(to: &stream) { stream in
            guard deflateInit_(stream, 9, zlibVersion(), Int32(MemoryLayout<z_stream>.size)) == Z_OK else {
                throw Missing()
            }
            defer { deflateEnd(stream) }
            var space = [UInt8](repeating: 0, count: 1 << 16)
            var left = count
            var status = Z_OK
            while status == Z_OK {
                chunk.withUnsafeBufferPointer { chunk in
                    let input = min(left, chunk.count)
                    stream.pointee.next_in = UnsafeMutablePointer(mutating: chunk.baseAddress)
                    stream.pointee.avail_in = UInt32(input)
                    space.withUnsafeMutableBufferPointer { space in
                        stream.pointee.next_out = space.baseAddress
                        stream.pointee.avail_out = UInt32(space.count)
                        status = deflate(stream, left <= chunk.count ? Z_FINISH : Z_NO_FLUSH)
                    }
                    left -= input - Int(stream.pointee.avail_in)
                }
                output += space[..<(space.count - Int(stream.pointee.avail_out))]
            }
        }
        return output
    }
}
