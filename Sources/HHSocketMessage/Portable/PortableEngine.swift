/// Bytes to records and back in Swift alone: for platforms without protobuf-c, and what protobuf-c is compared with
/// elsewhere.
enum PortableEngine: MessageEngine {
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawPointer {
        try PortableReader(arena: arena, memoryLimit: MessageLimits.memory(forLength: bytes.count)).read(bytes, plan)
    }

    static func write(
        _ record: UnsafeMutableRawPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawBufferPointer {
        var writer = PortableWriter(arena: arena)
        writer.write(record, plan)
        return try writer.finished(plan)
    }
}
