// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOCore
import NIOPosix

extension SocketError {
    /// Returns the error for a failed attempt, by the error of NIO's.
    static func connecting(
        to endpoint: Endpoint,
        through proxy: Proxy?,
        _ stage: Dialer.Stage,
        failedWith error: any Error,
        timeout: Duration
    ) -> SocketError {
        let error = TLSFailure(error) ?? error
        let isPath = endpoint.unixPath != nil && proxy == nil
        let (code, reason) = self.classify(error, isPath: isPath, timeout: timeout)
        let isProxyMissing = proxy != nil && stage == .connecting
        return SocketError(
            code,
            message: "cannot connect to \(endpoint)\(proxy.through): \(isProxyMissing ? "the proxy: " : "")\(reason)",
            underlying: error,
            endpoint: endpoint
        )
    }

    /// Returns the error for an attempt that the app's own closure has ended.
    static func preparing(_ endpoint: Endpoint, _ stage: Dialer.Stage, failedWith error: any Error) -> SocketError {
        if var known = error as? SocketError {
            known.endpoint = endpoint
            return known
        }
        let what = stage == .admission ? "" : "its request could not be prepared (WebSocketOptions.prepare): "
        let refusal = error as? HandshakeRefusal
        return SocketError(
            .handshakeRefused,
            message: "cannot connect to \(endpoint): \(what)\(refusal?.reason ?? "\(error)")",
            underlying: refusal?.underlying ?? error,
            endpoint: endpoint
        )
    }

    /// Returns the most informative of the errors of several addresses: a refusal is more informative than a missing
    /// route. Nil if there are none.
    static func mostInformative(of errors: [any Error]) -> (any Error)? {
        errors.first { self.classify($0, timeout: .zero).0 == .connectionRefused } ?? errors.last
    }

    private static func classify(
        _ error: any Error,
        isPath: Bool = false,
        timeout: Duration
    ) -> (Code, String) {
        switch error {
        case ChannelError.connectTimeout:
            return (.connectTimeout, "no answer within \(timeout); the host may be down or behind a firewall")
        case is ConnectedToItself:
            return (
                .connectionRefused,
                "connection refused; nothing listens on this port, and the system connected the socket to itself"
            )
        case let failure as ProxyFailure:
            return (.proxyFailed, failure.description)
        case let failure as TLSFailure:
            return (.tlsFailed, failure.description)
        case let error as OpeningError:
            return (error.isInvalidArgument ? .invalidArgument : .handshakeRefused, error.description)
        case let refusal as WebSocketRefusal:
            return (.handshakeRefused, "the server refused the WebSocket: \(refusal)")
        case let error as UnixPathTooLong:
            return (.invalidArgument, error.description)
        case let error as IOError:
            return self.classify(error, isPath: isPath)
        case let error as NIOConnectionError:
            if let cause = self.mostInformative(of: error.connectionErrors.map(\.error)) {
                return self.classify(cause, timeout: timeout)
            }
            if let cause = error.dnsAError ?? error.dnsAAAAError {
                return (.hostNotFound, "the name has no address (\(cause)); check its spelling and the DNS")
            }
            return (.connectFailed, "no address of \(error.host) could be tried")
        case let error as AddressLookupError:
            return (.hostNotFound, error.description)
        case is SocketAddressError:
            return (.hostNotFound, "the host has no usable address (\(error)); check its spelling and the DNS")
        default:
            return (.connectFailed, "\(error)")
        }
    }

    private static func classify(_ error: IOError, isPath: Bool) -> (Code, String) {
        switch error.errnoCode {
        case ECONNREFUSED:
            (.connectionRefused, "connection refused; nothing listens \(isPath ? "at this path" : "on this port")")
        case ENETUNREACH, EHOSTUNREACH, ENETDOWN, EHOSTDOWN, EADDRNOTAVAIL:
            (.networkUnreachable, "the network cannot reach it (\(error.systemReason))")
        case ENOENT:
            (.connectionRefused, "there is no such socket; check the path and that the server runs")
        case EACCES, EPERM:
            (.connectFailed, "permission denied")
        case ETIMEDOUT:
            (.connectTimeout, "no answer before the system gave up; the host may be down or behind a firewall")
        default:
            (.connectFailed, error.systemReason)
        }
    }
}

extension Proxy? {
    /// The words that name the proxy in an error's message.
    var through: String { self.map { " through \($0)" } ?? "" }
}

extension IOError {
    /// The system's words for the error, such as "Connection reset by peer", without the function of NIO's that met it.
    var systemReason: String { String(cString: strerror(self.errnoCode)) }
}
