// SPDX-License-Identifier: Apache-2.0
import CZlib
import NIOCore

/// Decompresses a body in parts, so that its caller can do other work in between.
package struct BodyInflater: ~Copyable {
    // On the heap, as zlib stores a pointer to it.
    private let stream: UnsafeMutablePointer<z_stream>
    private let isBegun: Bool
    private let input: ByteBuffer
    private var consumed = 0
    private var output = ByteBuffer()
    /// The largest size of the decompressed body, in bytes.
    private let limit: Int

    /// - Parameters:
    ///   - body: The compressed body.
    ///   - limit: The largest size of the result, in bytes; at most one byte beyond it is decompressed.
    package init(_ body: ByteBuffer, limit: Int) {
        self.input = body
        self.limit = limit
        self.stream = .allocate(capacity: 1)
        self.stream.initialize(to: z_stream())
        self.isBegun =
            body.readableBytes <= Int(Int32.max)
            && inflateInit_(self.stream, zlibVersion(), Int32(MemoryLayout<z_stream>.size)) == Z_OK
    }

    deinit {
        if self.isBegun { inflateEnd(self.stream) }
        self.stream.deallocate()
    }

    /// The number of bytes that have been decompressed.
    package var length: Int { self.output.readableBytes }

    /// Decompresses at most `count` more bytes.
    ///
    /// - Returns: The whole body, once it is complete; nil before.
    /// - Throws: ``EnvelopeError/bodyTooLarge(limit:)``, ``EnvelopeError/compressionMalformed(_:)``.
    package mutating func next(_ count: Int) throws(EnvelopeError) -> ByteBuffer? {
        guard self.isBegun else { throw .compressionMalformed("there is no memory to read it") }
        var output = ByteBuffer()
        swap(&output, &self.output)
        let (stream, limit, consumed) = (self.stream, self.limit, self.consumed)
        let step = self.input.withUnsafeReadableBytes { input in
            stream.pointee.setInput(UnsafeRawBufferPointer(rebasing: input.dropFirst(consumed)))
            return Zlib.inflate(stream, limit: limit, atMost: count, into: &output)
        }
        self.consumed = self.input.readableBytes - Int(stream.pointee.avail_in)
        swap(&output, &self.output)
        switch step {
        case .over: return self.output
        case .more: return nil
        case .failed(let failure): throw EnvelopeError(failure, limit: limit)
        }
    }
}

extension EnvelopeError {
    /// - Parameter limit: The largest size that a decompressed body might have had, in bytes.
    init(_ failure: Zlib.Failure, limit: Int) {
        switch failure {
        case .tooLarge: self = .bodyTooLarge(limit: limit)
        case .malformed(let reason): self = .compressionMalformed(reason)
        }
    }
}
