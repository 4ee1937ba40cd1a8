// SPDX-License-Identifier: Apache-2.0
/// A failure with a reason by which programs can distinguish it from others: the ``SocketError/underlying`` of errors
/// with the codes `proxyFailed` (``ProxyFailure``) and `tlsFailed` (``TLSFailure``).
public struct NamedFailure<Name: Hashable & Sendable>: Error, Sendable, CustomStringConvertible {
    /// The reason for a failure.
    package typealias Reason = Name

    public package(set) var reason: Name
    /// A description of the failure.
    public package(set) var description: String
    /// The system's error, or that of NIOSSL, if there is one.
    public package(set) var underlying: (any Error)?

    init(_ reason: Reason, _ description: String, underlying: (any Error)? = nil) {
        self.reason = reason
        self.description = description
        self.underlying = underlying
    }
}
