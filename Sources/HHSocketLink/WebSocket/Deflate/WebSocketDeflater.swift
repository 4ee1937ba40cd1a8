// SPDX-License-Identifier: Apache-2.0
import CZlib
package import NIOCore

/// Deflates messages (RFC 7692, section 7.2.1).
///
/// zlib's memory is 264 KiB for a window of 15 bits, and 40 KiB for 12. It is allocated for the first message, and kept
/// while later ones may refer to it; a message after a long pause need not.
///
/// `Sendable` is not checked by the compiler because of the pointer to zlib's state. It holds because a deflater has
/// one owner, an encoder or a test, which makes all calls itself; an encoder is a structure whose calls are `mutating`,
/// so that only one thread at a time can make them, and which never shares its deflater. Copies of an encoder, which
/// would share it, must not be used alongside each other.
package final class WebSocketDeflater: @unchecked Sendable {
    /// The length of the shortest message that is compressed, in bytes: for less it hardly pays.
    package static let defaultMinimumLength = 256
    /// The end of the output of each flush, which is not sent.
    private static let tail: [UInt8] = [0x00, 0x00, 0xFF, 0xFF]

    private let minimumLength: Int
    private let windowBits: Int32
    private let keepsWindow: Bool
    private let level: Int32
    private let account: (any LinkAccount)?
    /// The charge for zlib's memory, while it is allocated.
    private var hold: Hold?
    /// zlib keeps a pointer to the stream, so it must not move.
    private var stream: UnsafeMutablePointer<z_stream>?
    /// Whether a message was compressed since the last call of ``releaseUnlessUsed()``.
    private var wasUsed = false

    /// Nil if zlib cannot deflate with the window: it has 8 bits.
    ///
    /// - Parameters:
    ///   - direction: The parameters for our messages.
    ///   - account: The account that is charged for zlib's memory; nil at a client.
    ///   - level: zlib's level, 1 to 9; others are clamped.
    ///   - minimumLength: The length of the shortest message that is compressed, in bytes. With 0 all are, also those
    ///     that get longer by it.
    package init?(
        _ direction: DeflateDirection,
        account: (any LinkAccount)?,
        level: Int = 6,
        minimumLength: Int = defaultMinimumLength
    ) {
        self.minimumLength = minimumLength
        self.account = account
        guard direction.canDeflate else { return nil }
        self.windowBits = Int32(direction.windowBits)
        self.keepsWindow = direction.keepsWindow
        self.level = Int32(min(max(level, 1), 9))
    }

    deinit { self.release() }

    /// Whether zlib's memory is allocated.
    package var isAllocated: Bool { self.stream != nil }

    /// Frees zlib's memory, unless a message was compressed since the last call. The next message refers to no earlier
    /// one then.
    package func releaseUnlessUsed() {
        if !self.wasUsed { self.release() }
        self.wasUsed = false
    }

    private func release() {
        guard let stream = self.stream.take() else { return }
        deflateEnd(stream)
        stream.deallocate()
        self.hold = nil
    }

    /// Compresses a whole message; nil if it must be sent uncompressed, because it is short or would not become
    /// shorter.
    ///
    /// The result must be sent, and in the order of the calls: later messages refer to it.
    package func compress(_ message: ByteBuffer) -> ByteBuffer? {
        guard message.readableBytes >= max(self.minimumLength, 1), message.readableBytes < z_stream.maximumCount,
            let stream = self.begin()
        else { return nil }
        self.wasUsed = true
        // All messages includes those that get longer by it.
        let bound =
            self.minimumLength > 0 ? message.readableBytes : Int(deflateBound(stream, uLong(message.readableBytes)))
        let output = Self.deflate(stream, message, bound: bound)
        if !self.keepsWindow {
            self.release()
        } else if output == nil, deflateReset(stream) != Z_OK {
            // The message is in our window now but will not be in the peer's: without a reset, which empties ours,
            // later messages might refer to it.
            self.release()
        }
        return output
    }

    private func begin() -> UnsafeMutablePointer<z_stream>? {
        if let stream = self.stream { return stream }
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        let status = deflateInit2_(
            stream,
            self.level,
            Z_DEFLATED,
            -self.windowBits,
            Int32(Resource.deflatingLevel(window: Int(self.windowBits))),
            Z_DEFAULT_STRATEGY,
            zlibVersion(),
            Int32(MemoryLayout<z_stream>.size)
        )
        guard status == Z_OK else {
            stream.deallocate()
            return nil
        }
        self.stream = stream
        self.hold = Hold(.deflater(window: Int(self.windowBits)), of: self.account)
        return stream
    }

    /// Deflates and flushes; nil if the output, without its tail, is not shorter than the message.
    ///
    /// - Parameter bound: The length that the output has to be less than, in bytes.
    private static func deflate(
        _ stream: UnsafeMutablePointer<z_stream>,
        _ message: ByteBuffer,
        bound: Int
    ) -> ByteBuffer? {
        // One byte stays free if the output is short enough, which shows that zlib's flush is complete.
        let maximum = bound + Self.tail.count
        var output = ByteBuffer()
        let isComplete = message.withUnsafeReadableBytes { source in
            stream.pointee.read(from: source)
            var capacity = min(max(source.count / 4, Self.defaultMinimumLength), maximum)
            while output.readableBytes < maximum {
                var status = Z_OK
                let room = min(capacity, maximum) - output.readableBytes
                output.writeWithUnsafeMutableBytes(minimumWritableBytes: room) { space in
                    stream.pointee.write(to: UnsafeMutableRawBufferPointer(rebasing: space[..<room]))
                    status = CZlib.deflate(stream, Z_SYNC_FLUSH)
                    return room - Int(stream.pointee.avail_out)
                }
                // The second means that the output ended exactly where the space did.
                guard status == Z_OK || status == Z_BUF_ERROR else { return false }
                if stream.pointee.avail_out > 0 { return stream.pointee.avail_in == 0 }
                capacity = output.readableBytes * 2
            }
            return false
        }
        let length = output.readableBytes - Self.tail.count
        guard isComplete, length > 0,
            output.getBytes(at: output.readerIndex + length, length: Self.tail.count) == Self.tail
        else { return nil }
        output.moveWriterIndex(to: output.readerIndex + length)
        return output
    }
}
