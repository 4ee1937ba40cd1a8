// SPDX-License-Identifier: Apache-2.0
package import NIOCore

/// The payload of a frame that was just read: bytes of the buffer of a read, until they are owned.
///
/// It is not copyable, so that no slice of a read is kept by accident, which would keep up to 256 KiB. What is kept is
/// owned, or appended to bytes that are owned.
@usableFromInline
package struct LentBytes: ~Copyable {
    @usableFromInline var buffer: ByteBuffer

    @inlinable
    @inline(__always)
    package init(_ buffer: consuming ByteBuffer) {
        self.buffer = buffer
    }

    @inlinable
    package var count: Int { self.buffer.readableBytes }

    /// Owns the bytes from here on, although they are passed on as lent ones.
    ///
    /// - Returns: The memory that they keep, in bytes.
    mutating func own() -> Int {
        let owned = OwnedBytes(self.buffer)
        self.buffer = owned.buffer
        return owned.charge
    }

    /// The bytes for a value of the application's, which keeps them at its own expense, or for a function that does not
    /// keep them. `KeptBytesSourceTests` lists the calls.
    @inlinable
    @inline(__always)
    package consuming func lend() -> ByteBuffer { self.buffer }
}

/// Bytes that may be kept: they keep at most twice their length.
@usableFromInline
package struct OwnedBytes: Sendable, Hashable {
    @usableFromInline package private(set) var buffer: ByteBuffer

    package init() {
        self.buffer = ByteBuffer()
    }

    /// Copies the bytes if they are less than half of the memory that they keep.
    package init(_ buffer: consuming ByteBuffer) {
        self.buffer = buffer.detached
    }

    /// Bytes that were made here, in memory of their own.
    package init(made buffer: consuming ByteBuffer) {
        self.buffer = buffer
    }

    /// The first of several pieces: a copy with room for as much again, since appending to a slice copies it anyway.
    init(gathering first: borrowing LentBytes) {
        var buffer = ByteBufferAllocator().buffer(capacity: 2 * first.count)
        buffer.writeImmutableBuffer(first.buffer)
        self.buffer = buffer
    }

    /// Appends a copy of the bytes.
    package mutating func append(_ bytes: borrowing LentBytes) { self.buffer.writeImmutableBuffer(bytes.buffer) }

    /// A part of the bytes, in the same memory; nil if there are fewer.
    package func slice(at offset: Int, length: Int) -> ByteBuffer? {
        self.buffer.getSlice(at: self.buffer.readerIndex + offset, length: length)
    }

    package var count: Int { self.buffer.readableBytes }
    /// The memory that they keep, in bytes.
    package var charge: Int { self.buffer.storageCapacity }
}

/// A frame of the present read.
@usableFromInline
package struct ArrivedFrame: ~Copyable {
    @usableFromInline package var type: UInt32
    @usableFromInline package private(set) var serial: UInt32
    @usableFromInline package private(set) var status: Status
    @usableFromInline private(set) var isMarkedAsPush: Bool
    @usableFromInline package var payload: LentBytes
    /// As in ``Frame/customFields``.
    @usableFromInline package private(set) var customFields: [UInt8]?

    @inlinable
    package init(_ header: FrameHeader, _ payload: consuming LentBytes) {
        self.type = header.type
        self.serial = header.serial
        self.status = header.status
        self.isMarkedAsPush = false
        self.payload = payload
        self.customFields = nil
    }

    /// A frame whose payload was owned before, or that a decoder of another format has made.
    package init(_ frame: consuming Frame) {
        self.type = frame.type
        self.serial = frame.serial
        self.status = frame.status
        self.isMarkedAsPush = frame.isMarkedAsPush
        self.customFields = frame.customFields
        self.payload = LentBytes(frame.takePayload())
    }

    /// Room for a frame.
    @inlinable
    package init() {
        self.init(FrameHeader(type: 0, serial: 0, status: .ok, length: 0, headerLength: 0), LentBytes(ByteBuffer()))
    }

    /// The length of the payload, in bytes.
    @inlinable
    package var length: Int { self.payload.count }

    @inlinable
    package consuming func takePayload() -> LentBytes { self.payload }

    /// Owns the payload from here on.
    ///
    /// - Returns: The memory that it keeps, in bytes.
    package mutating func own() -> Int { self.payload.own() }

    /// The frame, which may be kept.
    package consuming func owned() -> Frame {
        _ = self.own()
        return self.lend()
    }

    /// A frame that may be kept, of one that is only borrowed.
    package borrowing func kept() -> Frame {
        var frame = self.hollow()
        frame.payload = self.payload.buffer.detached
        return frame
    }

    /// The frame for the application, or for a function that does not keep it, like ``LentBytes/lend()``.
    @usableFromInline
    package consuming func lend() -> Frame {
        var frame = self.hollow()
        frame.payload = self.payload.lend()
        return frame
    }

    /// The frame without its payload.
    package borrowing func hollow() -> Frame {
        var frame = Frame(type: self.type, serial: self.serial, status: self.status, customFields: self.customFields)
        frame.isMarkedAsPush = self.isMarkedAsPush
        return frame
    }
}
