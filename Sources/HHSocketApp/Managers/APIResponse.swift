/// What an ``APIManager`` got for a request.
public struct APIResponse<Value: Sendable>: Sendable {
    /// What the request asked for.
    public var value: Value
    /// Where it comes from: the server, or the cache.
    public var source: ResponseSource
    /// The answer that the value was made of. One from the cache has the serial of the call that brought it.
    public var response: SocketResponse

    /// Whether it was in the cache.
    public var isHit: Bool { self.source.isHit }

    public init(value: Value, source: ResponseSource, response: SocketResponse) {
        self.value = value
        self.source = source
        self.response = response
    }
}
