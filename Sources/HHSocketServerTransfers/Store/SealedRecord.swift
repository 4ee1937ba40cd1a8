// SPDX-License-Identifier: Apache-2.0
import HHSocketServer
import HHSocketTransferValues
import NIOCore

/// Bytes in a small file, with a hash by which damage is found.
enum SealedRecord {
    /// The greatest length of such a file.
    static let maximumLength = 8 << 10

    /// - Parameter kind: The prefix: four letters and a version.
    static func seal(_ kind: String, _ write: (inout ByteBuffer) -> Void) -> [UInt8] {
        var record = ByteBuffer(string: kind)
        write(&record)
        record.writeBytes(record.withUnsafeReadableBytes { SHA256.hash(of: $0) })
        return Array(buffer: record)
    }

    /// Returns the value that `read` decodes from the sealed bytes; nil if it does not read all of them, or if they are
    /// damaged or of another kind.
    static func open<Content>(
        _ bytes: [UInt8],
        kind: String,
        read: (inout ByteBuffer) -> Content?
    ) -> Content? {
        guard bytes.count <= Self.maximumLength, bytes.count >= SHA256.byteCount else { return nil }
        let count = bytes.count - SHA256.byteCount
        let hash = bytes.withUnsafeBytes { SHA256.hash(of: UnsafeRawBufferPointer(rebasing: $0[..<count])) }
        guard hash == Array(bytes[count...]) else { return nil }
        var record = ByteBuffer(bytes: bytes[..<count])
        guard record.readString(length: kind.utf8.count) == kind, let content = read(&record),
            record.readableBytes == 0
        else { return nil }
        return content
    }
}

extension ByteBuffer {
    mutating func writeShortString(_ text: String) {
        let bytes = text.utf8.prefix(Int(UInt16.max))
        self.writeInteger(UInt16(bytes.count))
        self.writeBytes(bytes)
    }

    mutating func readShortString() -> String? {
        guard let length = self.readInteger(as: UInt16.self) else { return nil }
        return self.readString(length: Int(length))
    }

    mutating func writeDigest(_ digest: TransferDigest) { self.writeBytes(digest.bytes) }

    mutating func readDigest() -> TransferDigest? {
        self.readBytes(length: TransferDigest.byteCount).flatMap { TransferDigest(bytes: $0) }
    }
}
