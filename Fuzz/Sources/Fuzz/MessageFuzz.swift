import FuzzedMessages

@testable import InstrumentedHHSocketMessage

/// Any bytes as a message: a generated one and each engine read it or refuse it for the same reason, and what each has
/// read is written as the same message.
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
        let ours = self.read(bytes, type)
        if case .success(let message) = ours { self.check(message) }
        let portable = self.rewritten(bytes, type, by: PortableEngine.self)
        let library = self.rewritten(bytes, type, by: ProtobufCEngine.self)
        switch (portable, library) {
        case (.success(let one), .success(let other)):
            self.check(ours, one, by: PortableEngine.self)
            self.check(ours, other, by: ProtobufCEngine.self)
            self.checkDynamic(bytes, type)
        case (.failure(let error), .failure(let other)):
            require(error == other, "\(type): \(error) by one engine, \(other) by the other")
            require(!"\(error)".isEmpty, "a refusal without a reason")
            require(self.dynamic(bytes, type) == nil, "\(type): \(error), but it is read as a dynamic message")
            self.check(ours, error, type)
        default:
            fatalError("\(type): \(portable) by one engine, \(library) by the other")
        }
    }

    /// A message that was read is written, read again, and the same.
    private static func check<Message: ProtobufMessage>(_ message: Message) {
        guard let bytes = self.written(message) else { fatalError("\(message) is read, and is not written") }
        guard case .success(let again) = self.read(bytes, Message.self) else {
            fatalError("\(message) was written as \(bytes), which are refused")
        }
        require(self.written(again) == bytes, "\(message) became \(again) by \(bytes)")
    }

    /// The bytes that an engine has read and written are the same message.
    private static func check<Message: ProtobufMessage>(
        _ ours: Result<Message, MessageError>,
        _ theirs: [UInt8],
        by engine: any MessageEngine.Type
    ) {
        switch ours {
        case .success(let message):
            // Written by the engine too, which has an unknown number of a closed enumeration in a map where the map is,
            // and not behind the known fields, and writes tags anew that came longer than they need be.
            guard let written = self.written(message),
                case .success(let bytes) = self.rewritten(written, Message.self, by: engine),
                case .success(let one) = self.read(bytes, Message.self),
                case .success(let other) = self.read(theirs, Message.self)
            else { fatalError("\(message) was written as \(theirs), and one of the two ways is refused") }
            require(self.written(one) == self.written(other), "\(message) is \(other) for \(engine)")
        case .failure(let error):
            // A message that stands for the value that an entry of a map lacks.
            guard case .missingRequiredField = error.reason else {
                fatalError("\(Message.self): \(error), but \(engine) reads it")
            }
        }
    }

    /// The engines have refused the bytes for this reason.
    private static func check<Message: ProtobufMessage>(
        _ ours: Result<Message, MessageError>,
        _ theirs: MessageError,
        _ type: Message.Type
    ) {
        switch (ours, theirs.reason) {
        // What generated messages keep as unknown fields; there may be something else wrong behind it.
        case (_, .group), (_, .wireTypeMismatch): break
        case (.success(let message), _): fatalError("\(message) is read, but by engines: \(theirs)")
        case (.failure(let error), _):
            require(self.isSame(error, theirs), "\(type): \(error), but by engines: \(theirs)")
        }
    }

    /// Generated messages name the map where engines name the field of its entry.
    private static func isSame(_ ours: MessageError, _ theirs: MessageError) -> Bool {
        if case .invalidUTF8(let field) = theirs.reason, ["key", "value"].contains(field),
            case .invalidUTF8 = ours.reason
        {
            return true
        }
        return ours.reason == theirs.reason
    }

    /// The bytes as a message whose kind is known at run time only. It keeps no unknown fields.
    private static func checkDynamic<Message: ProtobufMessage>(_ bytes: [UInt8], _ type: Message.Type) {
        guard let dynamic = self.dynamic(bytes, type) else { fatalError("\(type) is not read as a dynamic message") }
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
        _ type: Message.Type
    ) -> Result<Message, MessageError> {
        Result { () throws(MessageError) in try Message(serializedBytes: bytes) }
    }

    /// With maps in the order of their keys.
    private static func written(_ message: some ProtobufMessage) -> [UInt8]? {
        try? message.withCanonicalMessageBytes { Array($0) }
    }

    private static func rewritten<Message: ProtobufMessage>(
        _ bytes: [UInt8],
        _ type: Message.Type,
        by engine: any MessageEngine.Type
    ) -> Result<[UInt8], MessageError> {
        let plan = Message.messageDescriptor.plan
        return bytes.withUnsafeBytes { bytes in
            RecordArena.with { arena in
                do throws(MessageError) {
                    let record = UnsafeMutableRawPointer(mutating: try engine.read(bytes, plan, arena))
                    // protobuf-c writes its own records alone; it may have left this one to the portable engine.
                    let isOwn = record.load(as: UnsafeRawPointer?.self) != nil
                    let writer: any MessageEngine.Type = isOwn ? engine : PortableEngine.self
                    return .success(Array(try writer.write(record, plan, arena)))
                } catch {
                    return .failure(error)
                }
            }
        }
    }
}
