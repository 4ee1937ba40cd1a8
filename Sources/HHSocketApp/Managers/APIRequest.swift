// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketFoundation
import HHSocketMessage
import NIOCore

/// A screen's request, with the validity of its answer and the way to decode it.
///
/// ```swift
/// var request = APIRequest(SocketRequest(type: 101, body: "7"), decoding: Profile.self)
/// request.cachePolicy = .returningCached
/// request.validity = .seconds(300)
/// let profile = try await manager.value(for: request)
/// ```
///
/// A cache is used, and calls are shared, only if ``cachePolicy`` allows it: only the author of a request knows whether
/// it may be answered without the server.
public struct APIRequest<Value: Sendable>: Sendable {
    /// The request that is sent: type, body, headers, and the options of the call. Of requests that share a call, the
    /// options of the first apply.
    public var request: SocketRequest
    /// The use of the cache; ``CachePolicy/ignoringCache`` by default.
    public var cachePolicy = CachePolicy.ignoringCache
    /// The age up to which a kept answer is valid for this request; 60 s by default, as in the first client of this
    /// protocol. Other requests with the same key may have another validity.
    public var validity = Duration.seconds(60)
    /// The names of the custom header fields and metadata on which the answer depends, such as a language. Requests
    /// that differ in them have different keys; other headers may differ. None by default.
    public var significantHeaders: Set<String> = []
    /// Bytes that stand for the body when requests are compared, if different bodies mean the same, such as JSON with
    /// its keys in another order. Nil, the default, for the body itself.
    public var canonicalBody: ByteBuffer?
    /// Decodes an answer into the value. If it throws, the request fails, and the answer is not kept.
    let decode: @Sendable (SocketResponse) throws -> Value

    /// - Parameters:
    ///   - request: The request that is sent.
    ///   - decode: Decodes the answer into the value, on the queue of the completion handler or in the task that waits.
    ///     An error that is not a ``/HHSocket/SocketError`` becomes one with the code `decodingFailed`.
    public init(_ request: SocketRequest, decode: @escaping @Sendable (SocketResponse) throws -> Value) {
        self.request = request
        self.decode = decode
    }

    /// The key that the request has in common with equal ones.
    package var key: ResponseKey {
        ResponseKey(
            type: self.request.type,
            body: self.canonicalBody ?? self.request.body,
            header: self.significantHeaders.isEmpty
                ? [:] : self.request.header.filter { self.significantHeaders.contains($0.key) },
            metadata: self.significantHeaders.isEmpty
                ? [:] : self.request.metadata.filter { self.significantHeaders.contains($0.key) }
        )
    }

    /// Returns this request with its value transformed.
    public func map<Other: Sendable>(
        _ transform: @escaping @Sendable (Value) throws -> Other
    ) -> APIRequest<Other> {
        self.mapAnswer { value, _ in try transform(value) }
    }

    /// Returns this request with its value transformed; the closure also receives the answer.
    func mapAnswer<Other: Sendable>(
        _ transform: @escaping @Sendable (Value, SocketResponse) throws -> Other
    ) -> APIRequest<Other> {
        let decode = self.decode
        var other = APIRequest<Other>(self.request) { try transform(try decode($0), $0) }
        other.cachePolicy = self.cachePolicy
        other.validity = self.validity
        other.significantHeaders = self.significantHeaders
        other.canonicalBody = self.canonicalBody
        return other
    }
}

extension APIRequest where Value == ByteBuffer {
    /// Creates a request whose value is the answer's payload.
    public init(_ request: SocketRequest) {
        self.init(request) { $0.body }
    }
}

extension APIRequest where Value: Decodable {
    /// Creates a request whose value is decoded from JSON.
    public init(_ request: SocketRequest, decoding type: Value.Type) {
        self.init(request) { try JSONDecoder().decode(Value.self, from: $0.data) }
    }
}

extension APIRequest where Value: MessageBody {
    /// Creates a request that calls a method.
    ///
    /// Equal messages make equal requests: maps in them are written in the order of their keys. A method without side
    /// effects, by its `idempotency_level`, has ``cachePolicy`` ``CachePolicy/returningCached``, which may be changed.
    ///
    /// - Parameters:
    ///   - method: The method, with the types of its request and its answer.
    ///   - message: The request.
    ///   - options: The options of the call; the defaults if omitted.
    ///   - limits: The limits on the answer's message.
    ///
    /// - Throws: ``/HHSocket/SocketError`` with the code `invalidArgument` if `message` cannot be written.
    public init<Message>(
        _ method: MethodDescriptor<Message, Value>,
        _ message: Message,
        options: CallOptions = CallOptions(),
        limits: MessageLimits = .standard
    ) throws(SocketError) {
        let request: SocketRequest
        do {
            request = SocketRequest(
                type: method.type,
                body: try ByteBuffer(canonicalMessage: message),
                options: options.of(method)
            )
        } catch {
            throw CallOptions.cannotBeWritten(method.name, error)
        }
        self.init(request) { try $0.message(answering: method, limits) }
        if method.idempotency == .noSideEffects { self.cachePolicy = .returningCached }
    }
}
