/// Messages to bytes and back, by the engine that this platform has.
@usableFromInline
enum MessageCodec {
    #if ProtobufC && canImport(CProtobufC)
    typealias Engine = ProtobufCEngine
    #else
    typealias Engine = PortableEngine
    #endif

    // The errors are results rather than thrown, because the memory's scope hands on no typed errors.

    @inlinable
    static func read<Message: ProtobufMessage>(_ bytes: UnsafeRawBufferPointer) -> Result<Message, MessageError> {
        let plan = Message.messageDescriptor.plan
        return RecordArena.with { arena in
            switch Self.record(of: bytes, plan, arena) {
            case .success(let record): .success(Message(record: RecordReader(record, plan)))
            case .failure(let error): .failure(error)
            }
        }
    }

    @inlinable
    static func write<Message: ProtobufMessage, Value>(
        _ message: Message,
        _ body: (UnsafeRawBufferPointer) -> Value
    ) -> Result<Value, MessageError> {
        let plan = Message.messageDescriptor.plan
        return RecordArena.with { arena in
            let record = RecordWriter(plan, arena, depth: 1)
            do throws(MessageError) {
                try message.write(to: record)
            } catch {
                return .failure(error)
            }
            switch Self.bytes(of: record) {
            case .success(let bytes): return .success(body(bytes))
            case .failure(let error): return .failure(error)
            }
        }
    }

    @usableFromInline
    static func record(
        of bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) -> Result<UnsafeRawPointer, MessageError> {
        do throws(MessageError) {
            return .success(try Engine.read(bytes, plan, arena))
        } catch {
            return .failure(error)
        }
    }

    @usableFromInline
    static func bytes(of record: RecordWriter) -> Result<UnsafeRawBufferPointer, MessageError> {
        do throws(MessageError) {
            return .success(try Engine.write(record.memory, record.plan, record.arena))
        } catch {
            return .failure(error)
        }
    }
}

/// Turns bytes into records, and records into bytes.
protocol MessageEngine {
    /// Reads a message. What the record points to lies in `arena`, or in `bytes`.
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawPointer

    /// Writes a message, whose required fields are all there. The bytes lie in `arena`.
    static func write(
        _ record: UnsafeMutableRawPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawBufferPointer
}
