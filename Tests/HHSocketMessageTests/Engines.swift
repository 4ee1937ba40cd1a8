@testable import HHSocketMessage

/// The engines that there are here: the portable one everywhere, protobuf-c where the package is built with it.
enum Engines {
    static var all: [any MessageEngine.Type] {
        #if ProtobufC && canImport(CProtobufC)
        [PortableEngine.self, ProtobufCEngine.self]
        #else
        [PortableEngine.self]
        #endif
    }
}

extension MessageEngine {
    static func read<Message: ProtobufMessage>(_ bytes: [UInt8], as type: Message.Type) throws -> Message {
        let plan = Message.messageDescriptor.plan
        return try bytes.withUnsafeBytes { bytes in
            RecordArena.with { arena in
                Result { Message(record: RecordReader(try Self.read(bytes, plan, arena), plan)) }
            }
        }.get()
    }

    static func write<Message: ProtobufMessage>(_ message: Message) throws -> [UInt8] {
        let plan = Message.messageDescriptor.plan
        return try RecordArena.with { arena in
            Result {
                let record = RecordWriter(plan, arena, depth: 1)
                try message.write(to: record)
                return Array(try Self.write(record.memory, plan, arena))
            }
        }.get()
    }
}
