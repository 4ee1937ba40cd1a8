// SPDX-License-Identifier: Apache-2.0
import NIOCore

extension ProtobufMessage {
    /// Returns the message in JSON. The same message always has the same text.
    ///
    /// - Throws: ``MessageJSONError`` if a part of the message has no form in JSON, such as a timestamp out of range,
    ///   or the message cannot be encoded.
    public func jsonString(options: MessageJSON.EncodingOptions = .init()) throws(MessageJSONError) -> String {
        var writer = MessageJSONWriter(options)
        let json = writer.json(try self.dynamic())
        if let fault = writer.firstFault { throw fault }
        return json.text(isIndented: options.isIndented)
    }

    /// Creates a message from JSON.
    ///
    /// - Throws: ``MessageJSONError`` if the text is not JSON, or not such a message.
    public init(
        jsonString text: String,
        options: MessageJSON.DecodingOptions = .init()
    ) throws(MessageJSONError) {
        try self.init(json: Array(text.utf8), options)
    }

    /// Creates a message from JSON in UTF-8.
    ///
    /// - Throws: ``MessageJSONError`` if the bytes are not JSON, or not such a message.
    public init(
        jsonUTF8Bytes bytes: some Collection<UInt8>,
        options: MessageJSON.DecodingOptions = .init()
    ) throws(MessageJSONError) {
        let bytes = Array(bytes)
        guard bytes.withUnsafeBytes(UTF8Validator.isValid) else {
            throw MessageJSONError("the text is not UTF-8", at: nil)
        }
        try self.init(json: bytes, options)
    }

    private init(json: [UInt8], _ options: MessageJSON.DecodingOptions) throws(MessageJSONError) {
        let value: JSONValue
        do throws(JSONSyntaxError) {
            value = try JSONParser.parse(json)
        } catch {
            throw MessageJSONError(error.description, at: nil)
        }
        let message = try MessageJSONReader(options).message(value, Self.messageDescriptor)
        do throws(MessageError) {
            try self.init(serializedBytes: try message.serializedBytes())
        } catch {
            throw MessageJSONError(error.description, at: nil)
        }
    }

    /// The message by the names of its fields.
    private func dynamic() throws(MessageJSONError) -> DynamicMessage {
        do throws(MessageError) {
            // With the entries of maps in order.
            let bytes = try self.buffer(isCanonical: true)
            return try DynamicMessage(Self.messageDescriptor, serializedBytes: Array(bytes.readableBytesView))
        } catch {
            throw MessageJSONError(error.description, at: nil)
        }
    }
}
