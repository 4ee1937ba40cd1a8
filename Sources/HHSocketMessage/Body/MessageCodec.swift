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
        Self.read(bytes, Message.messageDescriptor.plan) { Message(record: $0) }
    }

    /// Reads a record, and hands it to `body`.
    @inlinable
    static func read<Value>(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ body: (RecordReader) -> Value
    ) -> Result<Value, MessageError> {
        RecordArena.with { arena in
            switch Self.record(of: bytes, plan, arena) {
            case .success(let record): .success(body(RecordReader(record, plan)))
            case .failure(let error): .failure(error)
            }
        }
    }

    @inlinable
    static func write<Message: ProtobufMessage, Value>(
        _ message: Message,
        isCanonical: Bool = false,
        _ body: (UnsafeRawBufferPointer) -> Value
    ) -> Result<Value, MessageError> {
        Self.write(
            Message.messageDescriptor.plan,
            isCanonical: isCanonical,
            { record throws(MessageError) in try message.write(to: record) },
            body
        )
    }

    /// Has a record filled, and hands its bytes to `body`.
    ///
    /// - Parameter isCanonical: Whether maps are written in the order of their keys.
    @inlinable
    static func write<Value>(
        _ plan: UnsafePointer<MessagePlan>,
        isCanonical: Bool = false,
        _ fill: (RecordWriter) throws(MessageError) -> Void,
        _ body: (UnsafeRawBufferPointer) -> Value
    ) -> Result<Value, MessageError> {
        RecordArena.with { arena in
            let record = RecordWriter(plan, arena, depth: 1)
            do throws(MessageError) {
                try fill(record)
            } catch {
                return .failure(error)
            }
            if isCanonical { record.sortMaps() }
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
