#if ProtobufC && canImport(CProtobufC)
import CProtobufC

/// Bytes to records and back by libprotobuf-c.
enum ProtobufCEngine: MessageEngine {
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawPointer {
        var scan = MessageScan()
        try scan.check(bytes, plan)
        if !scan.mustMerge, let record = Self.unpack(bytes, plan, arena) { return record }
        // protobuf-c replaces a message in a oneof that it should merge, and does not say why it refuses what it refuses.
        return try PortableEngine.read(bytes, plan, arena)
    }

    static func write(
        _ record: UnsafeMutableRawPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawBufferPointer {
        let message = UnsafePointer(record.assumingMemoryBound(to: ProtobufCMessage.self))
        let length = protobuf_c_message_get_packed_size(message)
        guard length < MessageLimits.length else {
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
        var allocator = ProtobufCAllocator(
            alloc: { arena, length in
                arena.map { RecordArena($0.assumingMemoryBound(to: RecordArena.State.self)).take(length) }
            },
            // All at once, with the arena.
            free: { _, _ in },
            allocator_data: UnsafeMutableRawPointer(arena.state)
        )
        let descriptor = plan.pointee.protobufC?.assumingMemoryBound(to: ProtobufCMessageDescriptor.self)
        let data = bytes.baseAddress?.assumingMemoryBound(to: UInt8.self)
        return UnsafeRawPointer(protobuf_c_message_unpack(descriptor, &allocator, bytes.count, data))
    }
}
#endif
