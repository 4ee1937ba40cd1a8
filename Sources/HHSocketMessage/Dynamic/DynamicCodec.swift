/// Encodes and decodes messages whose type is known at run time only, with this platform's engine.
enum MessageCodec {
    #if ProtobufC && canImport(CProtobufC)
    typealias Engine = ProtobufCEngine
    #else
    typealias Engine = PortableEngine
    #endif

    // Errors are returned in a `Result` because withUnsafeTemporaryAllocation does not rethrow typed errors.

    /// Decodes `bytes` into a record and calls `body` with it.
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

    /// Fills a record with `fill`, encodes it, and calls `body` with the bytes.
    static func write<Value>(
        _ plan: UnsafePointer<MessagePlan>,
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
            switch Self.bytes(of: record) {
            case .success(let bytes): return .success(body(bytes))
            case .failure(let error): return .failure(error)
            }
        }
    }

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

    static func bytes(of record: RecordWriter) -> Result<UnsafeRawBufferPointer, MessageError> {
        do throws(MessageError) {
            return .success(try Engine.write(record.memory, record.plan, record.arena))
        } catch {
            return .failure(error)
        }
    }
}

/// Decodes bytes into records, and encodes records.
protocol MessageEngine {
    /// Decodes a message. The memory that the record points to is in `arena` or in `bytes`.
    static func read(
        _ bytes: UnsafeRawBufferPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawPointer

    /// Encodes a message that has all its required fields. The bytes are in `arena`.
    static func write(
        _ record: UnsafeMutableRawPointer,
        _ plan: UnsafePointer<MessagePlan>,
        _ arena: RecordArena
    ) throws(MessageError) -> UnsafeRawBufferPointer
}
