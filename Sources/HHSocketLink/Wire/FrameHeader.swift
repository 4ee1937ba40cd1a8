// SPDX-License-Identifier: Apache-2.0
/// The fields before a payload.
@usableFromInline
package struct FrameHeader: Equatable, Sendable {
    @usableFromInline package var type: UInt32
    @usableFromInline package var serial: UInt32
    @usableFromInline package var status: Status
    /// The payload's length in bytes.
    @usableFromInline package var length: UInt32
    /// The header's own length in bytes.
    @usableFromInline var headerLength: Int

    @inlinable
    package init(type: UInt32, serial: UInt32, status: Status, length: UInt32, headerLength: Int) {
        self.type = type
        self.serial = serial
        self.status = status
        self.length = length
        self.headerLength = headerLength
    }

    /// Reads a standard header from the first `direction.headerLength` bytes, which must exist.
    @inlinable
    init(_ bytes: UnsafeRawBufferPointer, direction: FrameDirection) {
        self.type = bytes.bigEndianWord(at: 0)
        self.serial = bytes.bigEndianWord(at: 4)
        self.headerLength = direction.headerLength
        switch direction {
        case .request:
            self.status = .ok
            self.length = bytes.bigEndianWord(at: 8)
        case .response:
            self.status = Status(rawValue: bytes.bigEndianWord(at: 8))
            self.length = bytes.bigEndianWord(at: 12)
        }
    }

    /// Writes a standard header over the first `direction.headerLength` bytes, which must exist.
    @inlinable
    func write(to bytes: UnsafeMutableRawBufferPointer, direction: FrameDirection) {
        bytes.storeBigEndian(self.type, at: 0)
        bytes.storeBigEndian(self.serial, at: 4)
        switch direction {
        case .request:
            bytes.storeBigEndian(self.length, at: 8)
        case .response:
            bytes.storeBigEndian(self.status.rawValue, at: 8)
            bytes.storeBigEndian(self.length, at: 12)
        }
    }
}

extension UnsafeRawBufferPointer {
    @inlinable
    func bigEndianWord(at offset: Int) -> UInt32 {
        UInt32(bigEndian: self.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
    }
}

extension UnsafeMutableRawBufferPointer {
    @inlinable
    func storeBigEndian(_ word: UInt32, at offset: Int) {
        self.storeBytes(of: word.bigEndian, toByteOffset: offset, as: UInt32.self)
    }
}
