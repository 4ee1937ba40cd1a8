#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A Swift type for the values of records that are not messages.
protocol FieldValue: Hashable, Sendable {
    /// The size of a value in a record, in bytes.
    static var protobufFieldSize: Int { get }
    /// Creates a value from a record's memory.
    init(protobufField: UnsafeRawPointer)
    /// Stores the value in a record.
    func storeProtobufField(_ slot: RecordSlot)
    /// Whether this is the value of a field that was not sent.
    var isProtobufZero: Bool { get }
}

/// The place of a value in a record.
struct RecordSlot {
    let memory: UnsafeMutableRawPointer
    /// The memory for content that is stored outside the slot, such as the bytes of a string.
    let arena: RecordArena

    init(_ memory: UnsafeMutableRawPointer, _ arena: RecordArena) {
        self.memory = memory
        self.arena = arena
    }
}

/// A number, whose representation in a record is that of Swift.
protocol NumericFieldValue: FieldValue, Numeric, BitwiseCopyable {}

extension NumericFieldValue {
    static var protobufFieldSize: Int { MemoryLayout<Self>.size }
    init(protobufField: UnsafeRawPointer) { self = protobufField.load(as: Self.self) }
    func storeProtobufField(_ slot: RecordSlot) { slot.memory.storeBytes(of: self, as: Self.self) }
}

extension NumericFieldValue where Self: FixedWidthInteger {
    var isProtobufZero: Bool { self == 0 }
}

extension Int32: NumericFieldValue {}
extension Int64: NumericFieldValue {}
extension UInt32: NumericFieldValue {}
extension UInt64: NumericFieldValue {}
extension Float: NumericFieldValue {
    // -0 is sent, as by other implementations.
    var isProtobufZero: Bool { self.bitPattern == 0 }
}
extension Double: NumericFieldValue {
    var isProtobufZero: Bool { self.bitPattern == 0 }
}

extension Bool: FieldValue {
    static var protobufFieldSize: Int { 4 }
    init(protobufField: UnsafeRawPointer) { self = protobufField.load(as: Int32.self) != 0 }
    func storeProtobufField(_ slot: RecordSlot) { slot.memory.storeBytes(of: self ? 1 : 0, as: Int32.self) }
    var isProtobufZero: Bool { !self }
}

extension String: FieldValue {
    static var protobufFieldSize: Int { MemoryLayout<RecordBytes>.size }
    init(protobufField: UnsafeRawPointer) {
        // The engines have rejected invalid UTF-8.
        self.init(decoding: protobufField.load(as: RecordBytes.self).buffer, as: UTF8.self)
    }
    func storeProtobufField(_ slot: RecordSlot) {
        let bytes =
            self.utf8.withContiguousStorageIfAvailable { slot.arena.copy(UnsafeRawBufferPointer($0)) }
            // Strings bridged from Objective-C may not be contiguous UTF-8.
            ?? Array(self.utf8).withUnsafeBytes { slot.arena.copy($0) }
        slot.memory.storeBytes(of: bytes, as: RecordBytes.self)
    }
    var isProtobufZero: Bool { self.isEmpty }
}

extension Data: FieldValue {
    static var protobufFieldSize: Int { MemoryLayout<RecordBytes>.size }
    init(protobufField: UnsafeRawPointer) {
        let bytes = protobufField.load(as: RecordBytes.self).buffer
        self = bytes.isEmpty ? Data() : Data(bytes)
    }
    func storeProtobufField(_ slot: RecordSlot) {
        self.withUnsafeBytes { slot.memory.storeBytes(of: slot.arena.copy($0), as: RecordBytes.self) }
    }
    var isProtobufZero: Bool { self.isEmpty }
}
