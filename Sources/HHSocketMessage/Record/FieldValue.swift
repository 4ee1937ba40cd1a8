#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// A Swift type for fields that are not messages. Used by generated code and the runtime; applications do not call its
/// members.
public protocol FieldValue: Hashable, Sendable {
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
@frozen
@_documentation(visibility: internal)
public struct RecordSlot {
    @usableFromInline let memory: UnsafeMutableRawPointer
    /// The memory for content that is stored outside the slot, such as the bytes of a string.
    @usableFromInline let arena: RecordArena

    @inlinable
    init(_ memory: UnsafeMutableRawPointer, _ arena: RecordArena) {
        self.memory = memory
        self.arena = arena
    }
}

/// A number, whose representation in a record is that of Swift.
public protocol NumericFieldValue: FieldValue, Numeric, BitwiseCopyable {}

extension NumericFieldValue {
    @inlinable
    public static var protobufFieldSize: Int { MemoryLayout<Self>.size }
    @inlinable
    public init(protobufField: UnsafeRawPointer) { self = protobufField.load(as: Self.self) }
    @inlinable
    public func storeProtobufField(_ slot: RecordSlot) { slot.memory.storeBytes(of: self, as: Self.self) }
}

extension NumericFieldValue where Self: FixedWidthInteger {
    @inlinable
    public var isProtobufZero: Bool { self == 0 }
}

extension Int32: NumericFieldValue {}
extension Int64: NumericFieldValue {}
extension UInt32: NumericFieldValue {}
extension UInt64: NumericFieldValue {}
extension Float: NumericFieldValue {
    // -0 is sent, as by other implementations.
    @inlinable
    public var isProtobufZero: Bool { self.bitPattern == 0 }
}
extension Double: NumericFieldValue {
    @inlinable
    public var isProtobufZero: Bool { self.bitPattern == 0 }
}

extension Bool: FieldValue {
    @inlinable
    public static var protobufFieldSize: Int { 4 }
    @inlinable
    public init(protobufField: UnsafeRawPointer) { self = protobufField.load(as: Int32.self) != 0 }
    @inlinable
    public func storeProtobufField(_ slot: RecordSlot) { slot.memory.storeBytes(of: self ? 1 : 0, as: Int32.self) }
    @inlinable
    public var isProtobufZero: Bool { !self }
}

extension String: FieldValue {
    @inlinable
    public static var protobufFieldSize: Int { MemoryLayout<RecordBytes>.size }
    @inlinable
    public init(protobufField: UnsafeRawPointer) {
        // The engines have rejected invalid UTF-8.
        self.init(decoding: protobufField.load(as: RecordBytes.self).buffer, as: UTF8.self)
    }
    @inlinable
    public func storeProtobufField(_ slot: RecordSlot) {
        let bytes =
            self.utf8.withContiguousStorageIfAvailable { slot.arena.copy(UnsafeRawBufferPointer($0)) }
            // Strings bridged from Objective-C may not be contiguous UTF-8.
            ?? Array(self.utf8).withUnsafeBytes { slot.arena.copy($0) }
        slot.memory.storeBytes(of: bytes, as: RecordBytes.self)
    }
    @inlinable
    public var isProtobufZero: Bool { self.isEmpty }
}

extension Data: FieldValue {
    @inlinable
    public static var protobufFieldSize: Int { MemoryLayout<RecordBytes>.size }
    @inlinable
    public init(protobufField: UnsafeRawPointer) {
        let bytes = protobufField.load(as: RecordBytes.self).buffer
        self = bytes.isEmpty ? Data() : Data(bytes)
    }
    @inlinable
    public func storeProtobufField(_ slot: RecordSlot) {
        self.withUnsafeBytes { slot.memory.storeBytes(of: slot.arena.copy($0), as: RecordBytes.self) }
    }
    @inlinable
    public var isProtobufZero: Bool { self.isEmpty }
}

extension ProtobufEnum {
    @inlinable
    public static var protobufFieldSize: Int { 4 }
    /// Creates a value of an open enumeration. Closed ones are read by ``RecordReader/closed(_:_:)``; here an
    /// undeclared number gives the default.
    @inlinable
    public init(protobufField: UnsafeRawPointer) {
        self = Self(rawValue: Int(protobufField.load(as: Int32.self))) ?? Self()
    }
    @inlinable
    public func storeProtobufField(_ slot: RecordSlot) {
        slot.memory.storeBytes(of: Int32(truncatingIfNeeded: self.rawValue), as: Int32.self)
    }
    @inlinable
    public var isProtobufZero: Bool { self.rawValue == 0 }
}
