import HHSocketMessage
import NIOCore

/// Converts payloads to JSON and back, using the declarations of `.proto` files.
struct MessageJSON: Sendable {
    /// The reason for which a text or a payload cannot be read as a message.
    struct Unsuitable: Error, CustomStringConvertible {
        var description: String
    }

    /// A message in JSON.
    struct Printed: Sendable, Hashable {
        var json: JSONValue
        /// The parts without a form in protobuf's JSON, each with its place; they are in `json` as their plain fields
        /// or in Base64.
        var faults: [String] = []
    }

    private let schema: ProtoSchema
    private let emitsDefaults: Bool

    init(_ schema: ProtoSchema, emitsDefaults: Bool = false) {
        self.schema = schema
        self.emitsDefaults = emitsDefaults
    }

    /// Returns the payload described by a JSON text.
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

    /// Returns a payload in JSON.
    ///
    /// - Parameter message: The full name of the message.
    func json(_ payload: ByteBuffer, message: String) throws(Unsuitable) -> Printed {
        guard let type = self.schema.messages[message] else {
            throw Unsuitable(description: "\(message) is not declared")
        }
        do {
            let read = payload.withUnsafeReadableBytes { bytes in
                Result { try DynamicMessage(type.descriptor, serializedBytes: bytes) }
            }
            var writer = MessageJSONWriter(self.schema, emitsDefaults: self.emitsDefaults)
            let json = writer.json(try read.get(), type)
            return Printed(json: json, faults: writer.faults)
        } catch {
            throw Unsuitable(description: "\(error)")
        }
    }
}
