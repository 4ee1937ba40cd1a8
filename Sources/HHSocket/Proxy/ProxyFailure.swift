/// Why a proxy did not connect us: the ``SocketError/underlying`` of errors with the code `proxyFailed`.
public struct ProxyFailure: Error, Sendable {
    /// Cases may be added; have a default when you switch over it.
    public enum Reason: Hashable, Sendable {
        /// The proxy requires authentication, and there are no credentials, or none of a kind it accepts.
        case authenticationRequired
        /// The proxy does not accept the credentials.
        case authenticationFailed
        /// The proxy does not want to connect us, or something went wrong with it: HTTP's status, or SOCKS5's reply
        /// code.
        case refused(Int)
        /// The proxy tried, and could not reach the server.
        case serverUnreachable
        /// What answers does not speak HTTP or SOCKS5.
        case notAProxy
        /// The connection ended before the proxy had connected us.
        case closed
        /// Something else; ``ProxyFailure/description`` has it.
        case other
    }

    public var reason: Reason
    /// What failed, in words.
    public var description: String
    /// The system's error, where there is one.
    public var underlying: (any Error)?

    init(_ reason: Reason, _ description: String, underlying: (any Error)? = nil) {
        self.reason = reason
        self.description = description
        self.underlying = underlying
    }
}

extension ProxyFailure: CustomStringConvertible {}
