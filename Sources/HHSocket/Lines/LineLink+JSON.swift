// SPDX-License-Identifier: Apache-2.0
public import Foundation
import NIOCore

/// `Codable` values, each as JSON on a line.
extension LineLink {
    /// Sends a value as a line of JSON, as ``send(_:)-(String)`` sends text.
    ///
    /// - Parameters:
    ///   - value: The value.
    ///   - encoder: One that writes no delimiter: where that is LF, not with `.prettyPrinted`.
    /// - Throws: ``SocketError``, also with code `invalidArgument` if the value cannot be encoded; the error is
    ///   ``SocketError/underlying``.
    public func send(
        json value: some Encodable & Sendable,
        encoder: JSONEncoder = JSONEncoder()
    ) async throws(SocketError) {
        try await self.send(try Self.line(value, encoder))
    }

    /// Sends a value as a line of JSON, without waiting.
    ///
    /// - Parameters:
    ///   - value: The value.
    ///   - encoder: The encoder, as in ``send(json:encoder:)``.
    ///   - completion: Called once, on the callback queue; nil for no notification.
    package func send(
        json value: some Encodable,
        encoder: JSONEncoder = JSONEncoder(),
        completion: (@Sendable (Result<Void, SocketError>) -> Void)?
    ) {
        do throws(SocketError) {
            self.send(try Self.line(value, encoder), completion: completion)
        } catch {
            guard let completion else { return }
            let driver = self._driver.driver
            driver.configuration.callbackQueue.run(on: driver.loop) { completion(.failure(error)) }
        }
    }

    private static func line(_ value: some Encodable, _ encoder: JSONEncoder) throws(SocketError) -> ByteBuffer {
        do {
            return ByteBuffer(bytes: try encoder.encode(value))
        } catch {
            throw .invalid("a value of the type \(type(of: value)) cannot be encoded: \(error)", underlying: error)
        }
    }
}

extension ReceivedLine {
    /// The value that the line has as JSON.
    ///
    /// - Throws: ``SocketError`` with code `decodingFailed`, whose `underlying` is the decoder's error and whose `body`
    ///   the line.
    public func decoded<Value: Decodable>(
        as type: Value.Type = Value.self,
        decoder: JSONDecoder = JSONDecoder()
    ) throws(SocketError) -> Value {
        do {
            return try decoder.decode(type, from: Data(self.bytes.readableBytesView))
        } catch {
            throw SocketError(
                .decodingFailed,
                message: "a line of \(self.bytes.readableBytes) bytes is not a \(type) in JSON: \(error)",
                underlying: error,
                delivery: .answered,
                body: self.bytes
            )
        }
    }
}

extension ReceivedLines<String> {
    /// The lines as values in JSON, with an error in place of each that cannot be decoded.
    public func decoded<Value: Decodable & Sendable>(
        as type: Value.Type = Value.self,
        decoder: JSONDecoder = JSONDecoder()
    ) -> ReceivedLines<Result<Value, SocketError>> {
        ReceivedLines<Result<Value, SocketError>>(self.inbox) { line in
            Result<Value, SocketError> { () throws(SocketError) in try line.decoded(as: type, decoder: decoder) }
        }
    }
}
