// SPDX-License-Identifier: Apache-2.0
import CZlib
package import NIOCore

/// Inflates the compressed messages of the peer (RFC 7692, section 7.2.2), in slices and up to a limit.
///
/// References beyond the agreed window are detected only if zlib has dropped the bytes, which depends on how the
/// message is split; they do not increase its memory.
///
/// zlib's memory is 7 KiB and the window. It is allocated when a message begins, and kept while it is needed: after a
/// pause only the bytes of the window are kept, if later messages may refer to them.
///
/// `Sendable` is not checked by the compiler because of the pointer to zlib's state. It holds because an inflater has
/// one owner, a decoder or a test, which makes all calls itself; a decoder is a structure whose calls are `mutating`,
/// so that only one thread at a time can make them, and which never shares its inflater. Copies of a decoder, which
/// would share it, must not be used alongside each other.
package final class WebSocketInflater: @unchecked Sendable {
    /// The outcome of a call to ``inflate(_:isEnd:into:limit:budget:)``.
    package enum Progress: Hashable, Sendable {
        /// All input has been consumed, and all of its output written.
        case needsInput
        /// The budget has been spent. There may be more output, even if all input has been consumed.
        case moreOutput
        /// The message has ended. The next call begins another one.
        case finished
    }

    /// One call of zlib's.
    private struct Step {
        var status = Z_OK
        var taken = 0
        var written = 0
        /// Whether there was no room for more output.
        var isFull = false
    }

    /// The end of the last block of each message, which is not sent.
    private static let tail: [UInt8] = [0x00, 0x00, 0xFF, 0xFF]
    /// The smallest first capacity of the output, in bytes.
    private static let minimumCapacity = 256

    private let windowBits: Int32
    private let keepsWindow: Bool
    private let account: (any LinkAccount)?
    /// The charge for zlib's memory, or for the window.
    private var hold: Hold?
    /// zlib keeps a pointer to the stream, so it must not move.
    private var stream: UnsafeMutablePointer<z_stream>?
    /// The last bytes inflated, to which messages refer, while zlib's memory is freed.
    private var window: [UInt8] = []
    /// Whether there was input since the last call of ``releaseUnlessUsed()``.
    private var wasUsed = false
    /// Whether an incomplete message has begun.
    private var isUnfinished = false
    /// The length of the output of the message so far, in bytes; not counted without a limit.
    private var length = 0
    /// The number of bytes of the tail that zlib has consumed.
    private var tailTaken = 0
    /// Whether zlib may have output for which there was no room.
    private var mayHoldOutput = false
    /// Whether the last input was a block that is marked as the final one (RFC 7692, section 7.2.3.4).
    private var isAfterFinalBlock = false
    /// Whether the last input ended a block, with no bits left in its last byte.
    private var isBetweenBlocks = false

    /// - Parameter account: The account that is charged for zlib's memory; nil at a client.
    package init(_ direction: DeflateDirection, account: (any LinkAccount)?) {
        self.account = account
        // zlib inflates raw data with 9 bits or more, which includes smaller windows.
        self.windowBits = Int32(min(max(direction.windowBits, 9), 15))
        self.keepsWindow = direction.keepsWindow
    }

    deinit { self.release() }

    /// Whether zlib's memory is allocated.
    package var isAllocated: Bool { self.stream != nil }

    /// Frees zlib's memory where nothing is lost: between messages that do not refer to earlier ones.
    package func releaseIfIdle() {
        guard !self.isUnfinished, !self.keepsWindow else { return }
        self.release()
    }

    /// Frees zlib's memory between messages, unless there was input since the last call. If messages refer to the
    /// window, its present bytes are kept.
    package func releaseUnlessUsed() {
        defer { self.wasUsed = false }
        guard !self.wasUsed, !self.isUnfinished, let stream = self.stream else { return }
        if self.keepsWindow {
            var length: UInt32 = 0
            guard inflateGetDictionary(stream, nil, &length) == Z_OK else { return }
            var window = [UInt8](repeating: 0, count: Int(length))
            let status = window.withUnsafeMutableBufferPointer {
                inflateGetDictionary(stream, $0.baseAddress, &length)
            }
            guard status == Z_OK else { return }
            self.window = window
        }
        self.release()
    }

    private func release() {
        guard let stream = self.stream.take() else { return }
        inflateEnd(stream)
        stream.deallocate()
        if self.window.isEmpty { self.hold = nil } else { self.hold?.change(to: self.window.count) }
    }

    /// Inflates the next bytes of a message. The inflater must not be used after a violation.
    ///
    /// - Parameters:
    ///   - input: The bytes, unmasked. The bytes that zlib consumes are read.
    ///   - isEnd: Whether the message ends with them.
    ///   - output: The buffer that the output is appended to, also before a violation.
    ///   - limit: The largest output of the whole message, in bytes; `.max` for no limit. At most one byte beyond it is
    ///     inflated, which is not appended.
    ///   - budget: The largest output of this call, in bytes; 1 or more.
    package func inflate(
        _ input: inout ByteBuffer,
        isEnd: Bool,
        into output: inout ByteBuffer,
        limit: Int,
        budget: Int = .max
    ) throws(WebSocketViolation) -> Progress {
        do throws(WebSocketViolation) {
            return try self.run(&input, isEnd: isEnd, into: &output, limit: limit, budget: max(budget, 1))
        } catch {
            self.release()
            throw error
        }
    }

    private func run(
        _ input: inout ByteBuffer,
        isEnd: Bool,
        into output: inout ByteBuffer,
        limit: Int,
        budget: Int
    ) throws(WebSocketViolation) -> Progress {
        let stream = try self.begin()
        var budget = budget
        while true {
            if input.readableBytes == 0, !self.mayHoldOutput {
                guard isEnd else { return .needsInput }
                // A message that ends with a final block needs no tail to end.
                if self.isAfterFinalBlock || self.tailTaken == Self.tail.count {
                    try self.finish(stream)
                    return .finished
                }
            }
            guard budget > 0 else { return .moreOutput }
            let allowed = limit == .max ? .max : max(limit - self.length, 0)
            let isInputEmpty: Bool
            let step: Step
            if input.readableBytes > 0 || !isEnd {
                isInputEmpty = input.readableBytes == 0
                step = Self.step(stream, &input, into: &output, room: min(allowed, budget))
            } else {
                var tail = ByteBuffer(bytes: Self.tail[self.tailTaken...])
                isInputEmpty = tail.readableBytes == 0
                step = Self.step(stream, &tail, into: &output, room: min(allowed, budget))
                self.tailTaken += step.taken
            }
            if allowed == 0, step.isFull {
                throw .messageTooLong(length: UInt64(max(limit, 0)) + 1, limit: limit)
            }
            if limit != .max { self.length += step.written }
            budget -= step.written
            self.mayHoldOutput = step.isFull
            if step.taken > 0 { self.isAfterFinalBlock = false }
            // zlib's sign for it, which a further call without input clears.
            if step.taken > 0 || step.written > 0 { self.isBetweenBlocks = stream.pointee.data_type == 128 }
            switch step.status {
            case Z_STREAM_END:
                // The following input begins with a new block, which may refer to the current window.
                guard inflateResetKeep(stream) == Z_OK else { throw .notDeflate("zlib cannot be reset") }
                self.isAfterFinalBlock = true
                self.mayHoldOutput = false
            case Z_OK:
                break
            case Z_BUF_ERROR where isInputEmpty:
                // There was no more output.
                break
            default:
                throw .notDeflate(
                    stream.pointee.msg.map { String(cString: $0) } ?? "zlib's error \(step.status)"
                )
            }
        }
    }

    private func begin() throws(WebSocketViolation) -> UnsafeMutablePointer<z_stream> {
        self.isUnfinished = true
        self.wasUsed = true
        if let stream = self.stream { return stream }
        let stream = UnsafeMutablePointer<z_stream>.allocate(capacity: 1)
        stream.initialize(to: z_stream())
        let size = Int32(MemoryLayout<z_stream>.size)
        guard inflateInit2_(stream, -self.windowBits, zlibVersion(), size) == Z_OK else {
            stream.deallocate()
            throw .notDeflate("there is no memory to inflate it")
        }
        self.stream = stream
        self.hold = Hold(.inflater(window: Int(self.windowBits)), of: self.account)
        guard !self.window.isEmpty else { return stream }
        let status = self.window.withUnsafeBufferPointer {
            inflateSetDictionary(stream, $0.baseAddress, UInt32($0.count))
        }
        guard status == Z_OK else { throw .notDeflate("there is no memory to inflate it") }
        self.window = []
        return stream
    }

    private func finish(_ stream: UnsafeMutablePointer<z_stream>) throws(WebSocketViolation) {
        guard self.isAfterFinalBlock || self.isBetweenBlocks else { throw .notDeflate("it ends within a block") }
        if !self.keepsWindow {
            guard inflateReset(stream) == Z_OK else { throw .notDeflate("zlib cannot be reset") }
        }
        self.isUnfinished = false
        self.length = 0
        self.tailTaken = 0
        self.isAfterFinalBlock = false
        self.isBetweenBlocks = false
    }

    /// Calls zlib once.
    ///
    /// - Parameter room: The largest output, in bytes. With 0 one byte is inflated to see whether there is any, and not
    ///   appended.
    private static func step(
        _ stream: UnsafeMutablePointer<z_stream>,
        _ input: inout ByteBuffer,
        into output: inout ByteBuffer,
        room: Int
    ) -> Step {
        var step = Step()
        input.readWithUnsafeReadableBytes { source in
            stream.pointee.read(from: source)
            let available = Int(stream.pointee.avail_in)
            if room == 0 {
                var probe: UInt8 = 0
                withUnsafeMutableBytes(of: &probe) { probe in
                    stream.pointee.write(to: probe)
                    step.status = CZlib.inflate(stream, Z_SYNC_FLUSH)
                }
            } else {
                let growth = max(output.readableBytes, min(source.count, 1 << 20) * 2, Self.minimumCapacity)
                let minimum = output.writableBytes > 0 ? 1 : min(room, growth)
                output.writeWithUnsafeMutableBytes(minimumWritableBytes: minimum) { space in
                    stream.pointee.write(to: UnsafeMutableRawBufferPointer(rebasing: space.prefix(room)))
                    let space = Int(stream.pointee.avail_out)
                    step.status = CZlib.inflate(stream, Z_SYNC_FLUSH)
                    step.written = space - Int(stream.pointee.avail_out)
                    return step.written
                }
            }
            step.isFull = stream.pointee.avail_out == 0
            step.taken = available - Int(stream.pointee.avail_in)
            return step.taken
        }
        return step
    }
}

extension z_stream {
    /// The largest number of bytes that is passed to zlib at once; it counts in 32 bits.
    static let maximumCount = 1 << 30

    /// Sets the input of the next call: as many of `bytes` as zlib can consume at once.
    mutating func read(from bytes: UnsafeRawBufferPointer) {
        // zlib does not write to it.
        self.next_in = UnsafeMutablePointer(mutating: bytes.bindMemory(to: UInt8.self).baseAddress)
        self.avail_in = UInt32(min(bytes.count, Self.maximumCount))
    }

    /// Sets the space for the output of the next call, as much of `bytes` as zlib can fill at once.
    mutating func write(to bytes: UnsafeMutableRawBufferPointer) {
        self.next_out = bytes.bindMemory(to: UInt8.self).baseAddress
        self.avail_out = UInt32(min(bytes.count, Self.maximumCount))
    }
}
