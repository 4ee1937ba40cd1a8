// SPDX-License-Identifier: Apache-2.0
import Atomics
import CProtobufC
package import HHSocketMessage

/// Decodes and encodes messages whose type is known only at run time, with libprotobuf-c.
///
/// Messages that libprotobuf-c does not accept, or would decode differently, are left to the decoder in
/// Swift: groups, messages to be merged, closed enumerations, and malformed bytes.
package final class DynamicCodec: Sendable {
    private let descriptor: MessageDescriptor
    private let lazyTable = ManagedAtomicLazyReference<MessageTable>()

    /// Creates the codec of a message, which any number of threads may use.
    package init(_ descriptor: MessageDescriptor) {
        self.descriptor = descriptor
    }

    /// The tables, made on first use: the descriptors of nested messages may not exist earlier.
    private var table: MessageTable {
        self.lazyTable.load() ?? self.lazyTable.storeIfNilThenLoad(MessageTable(self.descriptor))
    }

    /// Decodes a message.
    ///
    /// - Throws: ``/HHSocketMessage/MessageError`` if the bytes are not such a message, or it exceeds the limits.
    package func message(
        _ bytes: UnsafeRawBufferPointer,
        limits: MessageLimits = .standard
    ) throws(MessageError) -> DynamicMessage {
        if let message = self.unpacked(bytes, limits: limits) { return message }
        return try DynamicMessage(self.descriptor, serializedBytes: bytes, limits: limits)
    }

    /// Encodes a message of the codec's type.
    ///
    /// - Throws: ``/HHSocketMessage/MessageError`` if a required field is missing, the message is nested too deeply, or
    ///   it is too large.
    package func bytes(_ message: DynamicMessage) throws(MessageError) -> [UInt8] {
        precondition(message.descriptor === self.descriptor, "the codec is that of \(self.descriptor.name)")
        let table = self.table
        guard table.isPlain else { return try message.serializedBytes() }
        // libprotobuf-c checks nothing.
        _ = try message.serializedLength()
        return RecordArena.with { arena in
            let record = RecordWriter(table.root, arena)
            record.fill(message)
            return Self.packed(record)
        }
    }

    /// Decodes a message with libprotobuf-c; nil if it does not accept the bytes.
    package func unpacked(_ bytes: UnsafeRawBufferPointer, limits: MessageLimits = .standard) -> DynamicMessage? {
        let table = self.table
        guard table.isPlain, MessageScan(depth: limits.depth).isPlain(bytes, table.root) else { return nil }
        return RecordArena.with { arena in
            var memory = Memory(arena: arena, limit: limits.memory(forLength: bytes.count))
            return withUnsafeMutablePointer(to: &memory) { memory in
                guard let record = Self.record(from: bytes, by: table.root, in: memory) else { return nil }
                return RecordReader(record, table.root).message
            }
        }
    }

    private static func packed(_ record: RecordWriter) -> [UInt8] {
        let message = UnsafePointer(record.memory.assumingMemoryBound(to: ProtobufCMessage.self))
        let length = protobuf_c_message_get_packed_size(message)
        return [UInt8](unsafeUninitializedCapacity: length) { memory, count in
            count = memory.baseAddress.map { protobuf_c_message_pack(message, $0) } ?? 0
            assert(count == length, "libprotobuf-c wrote \(count) bytes of \(length)")
        }
    }

    /// The state of libprotobuf-c's allocator.
    private struct Memory {
        let arena: RecordArena
        let limit: Int
    }

    private static func record(
        from bytes: UnsafeRawBufferPointer,
        by plan: UnsafePointer<MessagePlan>,
        in memory: UnsafeMutablePointer<Memory>
    ) -> UnsafeRawPointer? {
        var allocator = ProtobufCAllocator(
            alloc: { memory, length in
                guard let memory = memory?.assumingMemoryBound(to: Memory.self).pointee,
                    memory.arena.held <= memory.limit
                else { return nil }
                return memory.arena.take(length)
            },
            // Freed all at once with the arena.
            free: { _, _ in },
            allocator_data: UnsafeMutableRawPointer(memory)
        )
        let descriptor = plan.pointee.protobufC.assumingMemoryBound(to: ProtobufCMessageDescriptor.self)
        let data = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        return UnsafeRawPointer(protobuf_c_message_unpack(descriptor, &allocator, bytes.count, data))
    }
}
