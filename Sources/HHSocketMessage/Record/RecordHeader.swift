/// What stands at the beginning of a record: protobuf-c's `ProtobufCMessage`.
struct RecordHeader {
    var descriptor: UnsafeRawPointer?
    var unknownCount: UInt32
    var unknown: UnsafeMutablePointer<RecordUnknown>?
}

/// Bytes that lie elsewhere: protobuf-c's `ProtobufCBinaryData`.
@frozen
@usableFromInline
struct RecordBytes {
    @usableFromInline var count: Int
    @usableFromInline var start: UnsafeMutableRawPointer?

    @inlinable
    init(count: Int, start: UnsafeMutableRawPointer?) {
        self.count = count
        self.start = start
    }

    @inlinable
    var buffer: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: self.start, count: self.count) }
}

/// A field that the descriptor does not know: protobuf-c's `ProtobufCMessageUnknownField`.
struct RecordUnknown {
    var number: UInt32
    var wireType: UInt32
    /// As on the wire, behind the tag: with its length, where it has one.
    var value: RecordBytes
}
