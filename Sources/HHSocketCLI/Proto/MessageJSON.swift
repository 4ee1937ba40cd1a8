import HHSocketMessage
import NIOCore

/// Payloads to JSON and back, by what `.proto` files declare.
struct MessageJSON: Sendable {
    /// Why a text is no such message.
    struct Unsuitable: Error, CustomStringConvertible {
        var description: String
    }

    private let schema: ProtoSchema
    private let emitsDefaults: Bool

    init(_ schema: ProtoSchema, emitsDefaults: Bool = false) {
        self.schema = schema
        self.emitsDefaults = emitsDefaults
    }

    /// The payload that a text in JSON amounts to.
    ///
    /// - Parameter message: The full name of the message.
    func payload(_ text: String, message: String) throws(Unsuitable) -> ByteBuffer {
        do {
            let json = try JSONParser.parse(text)
            return ByteBuffer(bytes: try MessageJSONReader(self.schema).message(json, named: message).serializedBytes())
        } catch {
            throw Unsuitable(description: "\(error)")
        }
    }

    /// A payload in JSON.
    ///
    /// - Parameter message: The full name of the message.
    func json(_ payload: ByteBuffer, message: String) throws(Unsuitable) -> JSONValue {
        guard let type = self.schema.messages[message] else {
            throw Unsuitable(description: "\(message) is not declared")
        }
        do {
            let read = payload.withUnsafeReadableBytes { bytes in
                Result { try DynamicMessage(type.descriptor, serializedBytes: bytes) }
            }
            return try MessageJSONWriter(self.schema, emitsDefaults: self.emitsDefaults).json(
                read.get(),
                named: message
            )
        } catch {
            throw Unsuitable(description: "\(error)")
        }
    }
}
