// SPDX-License-Identifier: Apache-2.0
import HHSocketMessage
import NIOCore

/// Converts payloads to JSON and back, using the declarations of `.proto` files.
struct PayloadJSON: Sendable {
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

    /// The length of the longest text that is read from a file, in bytes: a message is shorter than its text.
    static let longestText = 64 << 20

    private let schema: ProtoSchema
    private let encoding: MessageJSON.EncodingOptions
    private let decoding: MessageJSON.DecodingOptions

    init(_ schema: ProtoSchema, emitsDefaults: Bool = false) {
        self.schema = schema
        let extensions = schema.extensions.map(\.declaration)
        let types = MessageTypes(extensions: extensions) { schema.messages[$0]?.descriptor }
        var encoding = MessageJSON.EncodingOptions()
        encoding.alwaysPrintFieldsWithNoPresence = emitsDefaults
        encoding.types = types
        encoding.acceptsUndeclaredTypes = true
        self.encoding = encoding
        var decoding = MessageJSON.DecodingOptions()
        decoding.types = types
        decoding.acceptsUndeclaredTypes = true
        self.decoding = decoding
    }

    /// Returns the payload described by a JSON text.
    ///
    /// - Parameter message: The full name of the message.
    func payload(_ text: String, message: String) throws(Unsuitable) -> ByteBuffer {
        let type = try self.type(message)
        do {
            let json = try JSONParser.parse(text)
            let message = try MessageJSONReader(self.decoding).message(json, type.descriptor)
            return ByteBuffer(bytes: try type.codec.bytes(message))
        } catch {
            throw Unsuitable(description: "\(error)")
        }
    }

    /// Returns a payload in JSON.
    ///
    /// - Parameter message: The full name of the message.
    func json(_ payload: ByteBuffer, message: String) throws(Unsuitable) -> Printed {
        let type = try self.type(message)
        do {
            let read = payload.withUnsafeReadableBytes { bytes in Result { try type.codec.message(bytes) } }
            var writer = MessageJSONWriter(self.encoding)
            let json = writer.json(try read.get())
            return Printed(json: json, faults: writer.faults)
        } catch {
            throw Unsuitable(description: "\(error)")
        }
    }

    private func type(_ name: String) throws(Unsuitable) -> ProtoMessage {
        guard let type = self.schema.messages[name] else { throw Unsuitable(description: "\(name) is not declared") }
        return type
    }
}
