import FuzzedMessages

@testable import InstrumentedHHSocketMessage

/// Any bytes as a message: each engine reads it or refuses it for the same reason, and what each has read is written as
/// the same bytes.
enum MessageFuzz {
    /// In the order of `make-corpus`.
    private static let kinds: [@Sendable ([UInt8]) -> Void] = [
        { Self.check($0, Fuzz_Nothing.self) }, { Self.check($0, Fuzz_Scalars.self) },
        { Self.check($0, Fuzz_Optionals.self) }, { Self.check($0, Fuzz_Lists.self) },
        { Self.check($0, Fuzz_Maps.self) }, { Self.check($0, Fuzz_Choices.self) },
        { Self.check($0, Fuzz_Node.self) }, { Self.check($0, Fuzz_Required.self) },
        { Self.check($0, Fuzz_Defaults.self) }, { Self.check($0, Fuzz_ClosedLists.self) },
        { Self.check($0, Fuzz_Recursive.self) }, { Self.check($0, Google_Protobuf_Empty.self) },
        { Self.check($0, Google_Protobuf_Timestamp.self) }, { Self.check($0, Google_Protobuf_StringValue.self) },
    ]

    static func run(_ bytes: [UInt8]) {
        var input = Input(bytes)
        let check = input.choice(Self.kinds)
        check(Array(input.rest))
    }

    private static func check<Message: ProtobufMessage>(_ bytes: [UInt8], _ type: Message.Type) {
        let portable = self.read(bytes, type, by: PortableEngine.self)
        let library = self.read(bytes, type, by: ProtobufCEngine.self)
        switch (portable, library) {
        case (.success(let message), .success(let other)):
            self.check(message, other)
            self.checkDynamic(bytes, message)
        case (.failure(let error), .failure(let other)):
            require(error == other, "\(type): \(error) by one engine, \(other) by the other")
            require(!"\(error)".isEmpty, "a refusal without a reason")
            require(self.dynamic(bytes, type) == nil, "\(type): \(error), but it is read as a dynamic message")
        default:
            fatalError("\(type): \(portable) by one engine, \(library) by the other")
        }
    }

    /// Two messages that were read from the same bytes.
    private static func check<Message: ProtobufMessage>(_ message: Message, _ other: Message) {
        let engines: [any MessageEngine.Type] = [PortableEngine.self, ProtobufCEngine.self]
        for writer in engines {
            let written = self.write(message, by: writer)
            require(self.write(other, by: writer) == written, "\(message) and \(other) are not written the same")
            // What a map's value lacks, which was not sent, is missed in writing alone.
            guard case .success(let bytes) = written else { continue }
            for reader in engines {
                switch self.read(bytes, Message.self, by: reader) {
                case .success(let again):
                    require(self.write(again, by: writer) == written, "\(message) became \(again) by \(bytes)")
                case .failure(let error):
                    fatalError("\(message) was written as \(bytes), which are refused: \(error)")
                }
            }
        }
    }

    /// The bytes as a message whose kind is known at run time only. It keeps no unknown fields.
    private static func checkDynamic<Message: ProtobufMessage>(_ bytes: [UInt8], _ message: Message) {
        guard let dynamic = self.dynamic(bytes, Message.self) else {
            fatalError("\(message) is not read as a dynamic message")
        }
        do throws(MessageError) {
            let written = try dynamic.serializedBytes()
            let again = self.dynamic(written, Message.self)
            let length = try again?.serializedBytes().count
            // Maps have no order, so that their bytes may differ.
            require(length == written.count, "\(dynamic) became \(String(describing: again)) by \(written)")
        } catch {
            guard case .missingRequiredField = error.reason else { fatalError("\(dynamic) is not written: \(error)") }
        }
    }

    private static func dynamic<Message: ProtobufMessage>(_ bytes: [UInt8], _ type: Message.Type) -> DynamicMessage? {
        bytes.withUnsafeBytes { try? DynamicMessage(Message.messageDescriptor, serializedBytes: $0) }
    }

    private static func read<Message: ProtobufMessage>(
        _ bytes: [UInt8],
        _ type: Message.Type,
        by engine: any MessageEngine.Type
    ) -> Result<Message, MessageError> {
        let plan = Message.messageDescriptor.plan
        return bytes.withUnsafeBytes { bytes in
            RecordArena.with { arena in
                do throws(MessageError) {
                    return .success(Message(record: RecordReader(try engine.read(bytes, plan, arena), plan)))
                } catch {
                    return .failure(error)
                }
            }
        }
    }

    /// With maps in the order of their keys.
    private static func write<Message: ProtobufMessage>(
        _ message: Message,
        by engine: any MessageEngine.Type
    ) -> Result<[UInt8], MessageError> {
        let plan = Message.messageDescriptor.plan
        return RecordArena.with { arena in
            let record = RecordWriter(plan, arena, depth: 1)
            do throws(MessageError) {
                try message.write(to: record)
                record.sortMaps()
                return .success(Array(try engine.write(record.memory, plan, arena)))
            } catch {
                return .failure(error)
            }
        }
    }
}
