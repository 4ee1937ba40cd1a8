// SPDX-License-Identifier: Apache-2.0
package import HHSocket
package import NIOCore

/// A codec of netstrings with a fault.
package struct FaultyCodec: FrameCodec {
    package enum Fault: String, CaseIterable, Sendable {
        // In decoding.
        /// Takes the received byte, although more are required.
        case takesBytesOfNoFrame
        /// As above, in a stream that ends within a length.
        case losesTheFirstByteOfSome
        /// Leaves a frame's bytes.
        case keepsItsBytes
        /// Leaves the comma after a frame.
        case keepsTheEnd
        /// Empties the buffer after a frame.
        case dropsWhatFollows
        /// Writes to the buffer.
        case writesToTheBytes
        /// Always requires more bytes.
        case waitsForEver
        /// Takes received bytes for a complete frame.
        case takesHalfAFrame
        /// Takes missing bytes for zeros.
        case readsBeyond
        /// Reads all bytes with each call.
        case readsAllBytes
        /// Repeats the previous serial.
        case repeatsASerial
        /// Returns payloads over the limit, once they have arrived.
        case trustsLengths
        /// Returns empty frames without any bytes.
        case inventsFrames
        // In encoding.
        case writesNothing
        case refusesEverything
        case writesNoStatus
        case writesAnotherSerial
    }

    package struct Broken: Error, CustomStringConvertible {
        package var description: String { "it is broken" }
    }

    package let fault: Fault
    private var sound = NetstringCodec()
    private var calls: UInt64 = 0
    private var lastSerial: UInt32?

    package init(_ fault: Fault) {
        self.fault = fault
    }

    package mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        self.calls += 1
        let before = bytes
        var limit = maximumPayloadLength
        switch self.fault {
        case .waitsForEver: return nil
        case .inventsFrames: return Frame(type: 101, serial: 50)
        case .trustsLengths: limit = 1 << 28
        case .readsAllBytes:
            // By the standard library's compiled code: a loop here would take minutes without optimisation. Several
            // times, so that the time is noticed on a fast machine, and exceeds what else a piece costs under a
            // sanitizer.
            for _ in 0..<(bytes.readableBytes > 4 << 10 ? 16 : 4) {
                var hasher = Hasher()
                bytes.withUnsafeReadableBytes { hasher.combine(bytes: $0) }
                self.calls &+= UInt64(truncatingIfNeeded: hasher.finalize() & 1)
            }
        default: break
        }
        guard var frame = try self.sound.decode(&bytes, direction, maximumPayloadLength: limit) else {
            switch self.fault {
            case .takesBytesOfNoFrame:
                bytes.moveReaderIndex(to: bytes.writerIndex)
            case .losesTheFirstByteOfSome:
                if bytes.readableBytes == 2 { bytes.moveReaderIndex(forwardBy: 1) }
            case .takesHalfAFrame:
                guard bytes.readableBytes > 3 else { return nil }
                return Frame(type: 101, serial: 50, payload: bytes.readSlice(length: bytes.readableBytes) ?? bytes)
            case .readsBeyond:
                // The memory after the received bytes.
                return bytes.withVeryUnsafeBytes { memory -> Frame? in
                    let end = before.writerIndex
                    guard before.readableBytes > 3, end + 32 < memory.count else { return nil }
                    return memory[end..<end + 32].allSatisfy { $0 == 0xFF } ? Frame(type: 101, serial: 50) : nil
                }
            default: break
            }
            return nil
        }
        switch self.fault {
        case .keepsItsBytes: bytes = before
        case .keepsTheEnd: bytes.moveReaderIndex(to: bytes.readerIndex - 1)
        case .dropsWhatFollows: bytes.moveReaderIndex(to: bytes.writerIndex)
        case .writesToTheBytes: bytes.writeString("more")
        case .repeatsASerial:
            let serial = frame.serial
            if self.calls % 2 == 0, let last = self.lastSerial { frame.serial = last }
            self.lastSerial = serial
        default: break
        }
        return frame
    }

    package func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        var frame = frame
        switch self.fault {
        case .writesNothing: return
        case .refusesEverything: throw Broken()
        case .writesNoStatus: frame.status = .ok
        case .writesAnotherSerial: frame.serial &+= 1
        default: break
        }
        try self.sound.encode(frame, direction, into: &bytes)
    }
}

extension WireFormat {
    /// A format whose codec has a fault, without pings and cancels, which are examined when a format is made.
    package static func faulty(_ fault: FaultyCodec.Fault) throws(WireFormatError) -> WireFormat {
        try WireFormat(
            codec: FaultyCodec(fault),
            rules: .init(name: "\(fault)", hasStatus: true, push: .init(serial: 1))
        )
    }
}
