public import HHSocketMessage
public import SwiftProtobuf

// Lets swift-protobuf's messages be bodies. A type says that it is one in an extension without members, which
// `protoc-gen-hhsocket` writes with the option `Messages=SwiftProtobuf`:
//
//     extension Chat_Note: MessageBody {}
extension MessageBody where Self: SwiftProtobuf.Message {
    /// Reads a whole payload.
    ///
    /// - Throws: `BinaryDecodingError`: the bytes are no such message.
    public init(messageBytes: UnsafeRawBufferPointer) throws {
        try self.init(serializedBytes: messageBytes.bytes)
    }

    /// Calls `body` once with the payload.
    ///
    /// - Throws: What `body` throws. `BinaryEncodingError`: the message lacks a required field, or is too large.
    public func withMessageBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        let bytes: [UInt8] = try self.serializedBytes()
        return try bytes.withUnsafeBytes(body)
    }

    /// Calls `body` once with the payload, the same for equal messages.
    ///
    /// - Throws: As ``withMessageBytes(_:)``.
    public func withCanonicalMessageBytes<Result>(
        _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        var options = BinaryEncodingOptions()
        options.useDeterministicOrdering = true
        let bytes: [UInt8] = try self.serializedBytes(options: options)
        return try bytes.withUnsafeBytes(body)
    }
}
