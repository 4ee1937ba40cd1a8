// SPDX-License-Identifier: Apache-2.0
import FuzzedMessages
import InstrumentedHHSocketProtobufC

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
        if case .success(let message) = ours {
            self.check(message)
            self.checkJSON(message)
        }
        // The bytes as a text, which they hardly ever are.
        _ = try? Message(jsonUTF8Bytes: bytes)
        let swift = self.rewritten(bytes, type, by: .swift)
        let library = self.rewritten(bytes, type, by: .library)
        switch (swift, library) {
        case (.success(let one), .success(let other)):
            self.check(ours, one, by: .swift)
            self.check(ours, other, by: .library)
        case (.failure(let error), .failure(let other)):
            require(error == other, "\(type): \(error) by one engine, \(other) by the other")
            require(!"\(error)".isEmpty, "a refusal without a reason")
            self.check(ours, error, type)
        default:
            fatalError("\(type): \(swift) by one engine, \(library) by the other")
        }
    }

    /// A message that has a form in JSON is read from it. Unknown fields have none.
    private static func checkJSON<Message: ProtobufMessage>(_ message: Message) {
        guard let text = try? message.jsonString() else { return }
        do throws(MessageJSONError) {
            let again = try Message(jsonString: text)
            let other = try again.jsonString()
            require(other == text, "\(text) became \(other)")
        } catch {
            fatalError("\(message) was written as \(text), which is refused: \(error)")
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
        by engine: Engine
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
        case (.success(let message), _): fatalError("\(message) is read, but by engines: \(theirs)")
        case (.failure(let error), _):
            // Of a run of packed numbers, generated code looks at the last byte first.
            let ofRuns: [MessageError.Reason] = [.truncated, .malformedVarint]
            require(
                error.reason == theirs.reason || ofRuns.contains(error.reason) && ofRuns.contains(theirs.reason),
                "\(type): \(error), but by engines: \(theirs)"
            )
        }
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
        by engine: Engine
    ) -> Result<[UInt8], MessageError> {
        let descriptor = Message.messageDescriptor
        return bytes.withUnsafeBytes { bytes in
            do throws(MessageError) {
                switch engine {
                case .swift: return .success(try DynamicMessage(descriptor, serializedBytes: bytes).serializedBytes())
                case .library:
                    let codec = DynamicCodec(descriptor)
                    return .success(try codec.bytes(codec.message(bytes)))
                }
            } catch {
                return .failure(error)
            }
        }
    }

    /// A reader and writer of messages whose type is known at run time only.
    private enum Engine {
        case swift
        /// libprotobuf-c, and what it leaves to Swift.
        case library
    }
}
