// SPDX-License-Identifier: Apache-2.0
/// The result of a request to an ``APIManager``.
public struct APIResponse<Value: Sendable>: Sendable {
    /// The requested value.
    public let value: Value
    /// The origin of the value: the server, or the cache.
    public let source: ResponseSource
    /// The answer that the value was decoded from. An answer from the cache has the serial of its original call.
    public let response: SocketResponse

    /// Whether the value was in the cache.
    public var isHit: Bool { self.source.isHit }

    package init(value: Value, source: ResponseSource, response: SocketResponse) {
        self.value = value
        self.source = source
        self.response = response
    }
}
