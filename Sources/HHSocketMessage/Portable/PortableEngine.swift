/// An engine in pure Swift, for platforms without protobuf-c. Elsewhere, protobuf-c falls back to it and is compared
/// with it in tests.
enum PortableEngine: MessageEngine {
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawPointer {
        try PortableReader(arena: arena, memoryLimit: MessageLimits.standard.memory(forLength: bytes.count)).read(
            bytes,
            plan
        )
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
