#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

/// What fields that hold no messages can be of in Swift. Generated code and the runtime use it; there is nothing in it
/// to call.
public protocol FieldValue: Hashable, Sendable {
    /// How many bytes a value takes in a record.
    static var protobufFieldSize: Int { get }
    /// Takes a value out of a record.
    init(protobufField: UnsafeRawPointer)
    /// Puts the value into a record.
    func storeProtobufField(_ slot: RecordSlot)
    /// Whether this is what fields hold that were not sent.
    var isProtobufZero: Bool { get }
}

/// Where a value is put in a record.
@frozen
public struct RecordSlot {
    @usableFromInline let memory: UnsafeMutableRawPointer
    /// For what has no room there.
    @usableFromInline let arena: RecordArena

    @inlinable
    init(_ memory: UnsafeMutableRawPointer, _ arena: RecordArena) {
        self.memory = memory
        self.arena = arena
    }
}

/// Numbers are in records as they are in Swift.
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
    // -0 is sent, as other implementations do.
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
        // What is not UTF-8 does not come so far.
        self.init(decoding: protobufField.load(as: RecordBytes.self).buffer, as: UTF8.self)
    }
    @inlinable
    public func storeProtobufField(_ slot: RecordSlot) {
        let bytes =
            self.utf8.withContiguousStorageIfAvailable { slot.arena.copy(UnsafeRawBufferPointer($0)) }
            // Strings that come from Objective-C may lie otherwise.
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
    /// For open ones. Closed ones come by ``RecordReader/closed(_:_:)``, and are the default where they know no better.
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
