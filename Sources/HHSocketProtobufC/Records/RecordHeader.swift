// SPDX-License-Identifier: Apache-2.0
/// The beginning of a record: protobuf-c's `ProtobufCMessage`.
struct RecordHeader {
    var descriptor: UnsafeRawPointer?
    var unknownCount: UInt32
    var unknown: UnsafeMutablePointer<RecordUnknown>?
}

/// A reference to bytes outside the record: protobuf-c's `ProtobufCBinaryData`.
struct RecordBytes {
    var count: Int
    var start: UnsafeMutableRawPointer?

    var buffer: UnsafeRawBufferPointer { UnsafeRawBufferPointer(start: self.start, count: self.count) }
}

/// An unknown field: protobuf-c's `ProtobufCMessageUnknownField`.
struct RecordUnknown {
    var number: UInt32
    var wireType: UInt32
    /// The value as on the wire, without the tag, but with its length if it is delimited by one.
    var value: RecordBytes
}
