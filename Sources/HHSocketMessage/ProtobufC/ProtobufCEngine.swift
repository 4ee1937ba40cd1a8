#if ProtobufC && canImport(CProtobufC)
import CProtobufC

/// Encodes and decodes records with libprotobuf-c.
enum ProtobufCEngine: MessageEngine {
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawPointer {
        var scan = MessageScan()
        try scan.check(bytes, plan)
        let mark = arena.mark
        if !scan.needsPortableEngine, let record = Self.unpack(bytes, plan, arena) { return record }
        // protobuf-c does not give a reason when it fails. It may have reached the memory limit, since it requires more
        // memory for each field than the portable engine.
        arena.release(to: mark)
        return try PortableEngine.read(bytes, plan, arena)
    }

    static func write(
        _ record: UnsafeMutableRawPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawBufferPointer {
        let message = UnsafePointer(record.assumingMemoryBound(to: ProtobufCMessage.self))
        let length = protobuf_c_message_get_packed_size(message)
        guard length <= MessageLimits.length else {
            throw MessageError(.tooLarge, in: plan.pointee.descriptor.name)
        }
        let bytes = arena.take(length)
        let written = protobuf_c_message_pack(message, bytes.assumingMemoryBound(to: UInt8.self))
        assert(written == length, "protobuf-c wrote \(written) bytes of \(length)")
        return UnsafeRawBufferPointer(start: bytes, count: written)
    }

    private static func unpack(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) -> UnsafeRawPointer? {
        var memory = Memory(arena: arena, limit: MessageLimits.standard.memory(forLength: bytes.count))
        return withUnsafeMutablePointer(to: &memory) { memory in Self.unpack(bytes, plan, memory) }
    }

    /// The state of protobuf-c's allocator.
    private struct Memory {
        let arena: RecordArena
        let limit: Int
    }

    private static func unpack(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ memory: UnsafeMutablePointer<Memory>
    ) -> UnsafeRawPointer? {
        var allocator = ProtobufCAllocator(
            alloc: { memory, length in
                guard let memory = memory?.assumingMemoryBound(to: Memory.self).pointee,
                    memory.arena.state.pointee.held <= memory.limit
                else { return nil }
                return memory.arena.take(length)
            },
            // Freed all at once with the arena.
            free: { _, _ in },
            allocator_data: UnsafeMutableRawPointer(memory)
        )
        let descriptor = plan.pointee.protobufC?.assumingMemoryBound(to: ProtobufCMessageDescriptor.self)
        let data = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        return UnsafeRawPointer(protobuf_c_message_unpack(descriptor, &allocator, bytes.count, data))
    }
}
#endif
