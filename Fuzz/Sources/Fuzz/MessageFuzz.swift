// SPDX-License-Identifier: Apache-2.0
import FuzzedMessages
import InstrumentedHHSocketProtobufC

@testable import InstrumentedHHSocketMessage

/// Any bytes as a message: generated code and each engine read it, or reject it for the same reason, and all of them
/// write the message that they have read equally.
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
        // The bytes as JSON, which they rarely are.
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

    /// Checks that a message with a JSON form is read from it unchanged. Unknown fields have no such form.
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

    /// Checks that a message that was read is equal after it was written and read again.
    private static func check<Message: ProtobufMessage>(_ message: Message) {
        guard let bytes = self.written(message) else { fatalError("\(message) is read, and is not written") }
        guard case .success(let again) = self.read(bytes, Message.self) else {
            fatalError("\(message) was written as \(bytes), which are refused")
        }
        require(self.written(again) == bytes, "\(message) became \(again) by \(bytes)")
    }

    /// Checks that the bytes that an engine has read and written are an equal message.
    private static func check<Message: ProtobufMessage>(
        _ ours: Result<Message, MessageError>,
        _ theirs: [UInt8],
        by engine: Engine
    ) {
        switch ours {
        case .success(let message):
            // The engine writes ours too, because it writes an unknown number of a closed enumeration in a map in the
            // map's place, not after the known fields, and shortens tags that were longer than necessary.
            guard let written = self.written(message),
                case .success(let bytes) = self.rewritten(written, Message.self, by: engine),
                case .success(let one) = self.read(bytes, Message.self),
                case .success(let other) = self.read(theirs, Message.self)
            else { fatalError("\(message) was written as \(theirs), and one of the two ways is refused") }
            require(self.written(one) == self.written(other), "\(message) is \(other) for \(engine)")
        case .failure(let error):
            // The default message of a map entry without a value may lack required fields.
            guard case .missingRequiredField = error.reason else {
                fatalError("\(Message.self): \(error), but \(engine) reads it")
            }
        }
    }

    /// Checks that the engines have rejected the bytes for this reason.
    private static func check<Message: ProtobufMessage>(
        _ ours: Result<Message, MessageError>,
        _ theirs: MessageError,
        _ type: Message.Type
    ) {
        switch (ours, theirs.reason) {
        case (.success(let message), _): fatalError("\(message) is read, but by engines: \(theirs)")
        case (.failure(let error), _):
            // Generated code checks the last byte of a run of packed numbers first.
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

    /// Writes a message, with maps in the order of their keys.
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
        /// libprotobuf-c, with the parts that it leaves to Swift.
        case library
    }
}
