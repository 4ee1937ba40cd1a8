import HHSocket
import HHSocketMessage
import NIOCore

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// A screen's request, with the time that its answer is valid and the way to decode it.
///
/// ```swift
/// var request = APIRequest(SocketRequest(type: 101, body: "7"), decoding: Profile.self)
/// request.cachePolicy = .returningCached
/// request.validity = .seconds(300)
/// let profile = try await manager.value(for: request)
/// ```
/// A cache is asked, and calls are shared, only where ``cachePolicy`` says so: whether a request may be answered
/// without the server only its author knows.
public struct APIRequest<Value: Sendable>: Sendable {
    /// The request that is sent: type, body, headers, and how the call is made. Of calls that are shared, the first to
    /// begin decides how.
    public var request: SocketRequest
    /// The use of the cache; ``CachePolicy/ignoringCache`` by default.
    public var cachePolicy = CachePolicy.ignoringCache
    /// For how long an answer that was kept may be given to this request, from when it came; 60 s by default, as in the
    /// first client of this protocol. Other requests of the same key may think otherwise.
    public var validity = Duration.seconds(60)
    /// The names of those among the request's custom header fields and metadata on which the answer depends, such as a
    /// language. Requests that differ in them are different; in other headers they may differ. None by default.
    public var significantHeaders: Set<String> = []
    /// Bytes that stand for the body when requests are compared, where different bodies mean the same, such as JSON
    /// with its keys in another order. Nil, the default, for the body itself.
    public var canonicalBody: ByteBuffer?
    /// Makes the value of an answer. Where it throws, the request fails, and the answer is not kept.
    let decode: @Sendable (SocketResponse) throws -> Value

    /// - Parameters:
    ///   - request: What is sent.
    ///   - decode: Makes the value of the answer, where the completion handler runs, or in the task that waits. What it
    ///     throws that is no ``HHSocket/SocketError`` becomes one with the code `decodingFailed`.
    public init(_ request: SocketRequest, decode: @escaping @Sendable (SocketResponse) throws -> Value) {
        self.request = request
        self.decode = decode
    }

    /// The key that the request has in common with equal ones.
    public var key: ResponseKey {
        ResponseKey(
            type: self.request.type,
            body: self.canonicalBody ?? self.request.body,
            header: self.significantHeaders.isEmpty
                ? [:] : self.request.header.filter { self.significantHeaders.contains($0.key) },
            metadata: self.significantHeaders.isEmpty
                ? [:] : self.request.metadata.filter { self.significantHeaders.contains($0.key) }
        )
    }

    /// This request, for something that is made of the value.
    public func map<Other: Sendable>(
        _ transform: @escaping @Sendable (Value) throws -> Other
    ) -> APIRequest<Other> {
        self.mapAnswer { value, _ in try transform(value) }
    }

    /// This request, for something that is made of the value with the answer at hand.
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
    /// A request for the answer's payload.
    public init(_ request: SocketRequest) {
        self.init(request) { $0.body }
    }
}

extension APIRequest where Value: Decodable {
    /// A request for an answer in JSON.
    public init(_ request: SocketRequest, decoding type: Value.Type) {
        self.init(request) { try JSONDecoder().decode(Value.self, from: $0.data) }
    }
}

extension APIRequest where Value: MessageBody {
    /// A call of a method.
    ///
    /// Equal messages make the same request: maps in them are written in the order of their keys.
    ///
    /// - Parameters:
    ///   - method: Which method: what is sent and what comes back.
    ///   - message: The request.
    ///   - options: How the call is made; as by default if left out.
    /// - Throws: ``HHSocket/SocketError`` with the code `invalidArgument`: `message` cannot be written.
    public init<Message>(
        _ method: MethodDescriptor<Message, Value>,
        _ message: Message,
        options: CallOptions = CallOptions()
    ) throws(SocketError) {
        let request: SocketRequest
        do {
            request = SocketRequest(
                type: method.type,
                body: try ByteBuffer(canonicalMessage: message),
                options: options
            )
        } catch {
            throw CallOptions.cannotBeWritten(method.name, error)
        }
        self.init(request) { try $0.message(answering: method) }
    }
}
