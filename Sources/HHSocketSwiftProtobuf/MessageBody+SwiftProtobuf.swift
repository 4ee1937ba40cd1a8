// SPDX-License-Identifier: Apache-2.0
public import HHSocketMessage
public import SwiftProtobuf

// The implementation of `MessageBody` for swift-protobuf's messages. A type conforms by an extension without members,
// which `protoc-gen-hhsocket` writes with the option `Messages=SwiftProtobuf`:
//
//     extension Chat_Note: MessageBody {}
extension MessageBody where Self: SwiftProtobuf.Message {
    /// Decodes a whole payload.
    ///
    /// - Throws: `BinaryDecodingError` if the bytes are not such a message.
    public init(messageBytes: UnsafeRawBufferPointer) throws {
        try self.init(serializedBytes: messageBytes.bytes)
    }

    /// Decodes a whole payload.
    ///
    /// - Parameters:
    ///   - messageBytes: The payload.
    ///   - limits: Of these, only the depth applies to swift-protobuf.
    /// - Throws: `BinaryDecodingError` if the bytes are not such a message, or it is nested too deeply.
    public init(messageBytes: UnsafeRawBufferPointer, limits: MessageLimits) throws {
        var options = BinaryDecodingOptions()
        options.messageDepthLimit = limits.depth
        try self.init(serializedBytes: messageBytes.bytes, options: options)
    }

    /// Encodes the message and calls `body` once with the payload.
    ///
    /// - Throws: Any error of `body`. `BinaryEncodingError` if the message lacks a required field, or is too large.
    public func withMessageBytes<Result>(_ body: (UnsafeRawBufferPointer) throws -> Result) throws -> Result {
        let bytes: [UInt8] = try self.serializedBytes()
        return try bytes.withUnsafeBytes(body)
    }

    /// Encodes the message deterministically and calls `body` once with the payload.
    ///
    /// - Throws: The errors of ``withMessageBytes(_:)``.
    public func withCanonicalMessageBytes<Result>(
        _ body: (UnsafeRawBufferPointer) throws -> Result
    ) throws -> Result {
        var options = BinaryEncodingOptions()
        options.useDeterministicOrdering = true
        let bytes: [UInt8] = try self.serializedBytes(options: options)
        return try bytes.withUnsafeBytes(body)
    }
}
