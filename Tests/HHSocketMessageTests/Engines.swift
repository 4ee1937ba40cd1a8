@testable import HHSocketMessage

/// The engines for messages whose type is known at run time only: the portable one everywhere, protobuf-c where the
/// package is built with it. They share no code with what generated messages use.
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
    /// Reads a message and writes it again, with its unknown fields.
    static func rewritten(_ bytes: [UInt8], _ descriptor: MessageDescriptor) throws -> [UInt8] {
        let plan = descriptor.plan
        return try bytes.withUnsafeBytes { bytes in
            RecordArena.with { arena in
                Result {
                    let record = UnsafeMutableRawPointer(mutating: try Self.read(bytes, plan, arena))
                    // protobuf-c writes its own records alone; it may have left this one to the portable engine.
                    let isOwn = record.load(as: UnsafeRawPointer?.self) != nil
                    let writer: any MessageEngine.Type = isOwn ? Self.self : PortableEngine.self
                    return Array(try writer.write(record, plan, arena))
                }
            }
        }.get()
    }

    /// Reads a message.
    ///
    /// - Returns: The number of bytes that were allocated for it.
    static func read(_ bytes: [UInt8], _ descriptor: MessageDescriptor) throws -> Int {
        try bytes.withUnsafeBytes { bytes in
            RecordArena.with { arena in
                Result {
                    _ = try Self.read(bytes, descriptor.plan, arena)
                    return arena.state.pointee.held
                }
            }
        }.get()
    }
}
