#if canImport(FoundationEssentials)
public import FoundationEssentials
#else
public import Foundation
#endif

extension ProtobufMessage {
    /// Encodes the message.
    ///
    /// - Throws: ``MessageError``, as ``serializedBytes()`` does.
    public func serializedData() throws(MessageError) -> Data { Data(try self.serializedBytes()) }
}
