// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The content of a PROXY header.
enum ProxyHeader: Hashable, Sendable {
    /// The address of the client for which the proxy has connected.
    case client(SocketAddress)
    /// The proxy connects for itself, for example for a health check, or does not name its client.
    case proxyItself
}

/// The reasons why a connection's first bytes are not a PROXY header.
enum ProxyHeaderFault: Error, Hashable {
    /// The connection begins otherwise.
    case missing
    /// Version 1: no end of the line in 107 bytes.
    case lineTooLong
    /// Version 1: the line is not `PROXY TCP4 address address port port` or the like.
    case line
    /// Version 2 announces a version that is unknown.
    case version(UInt8)
    case command(UInt8)
    /// The family of addresses, and the protocol.
    case family(UInt8)
    /// Version 2 announces more bytes than are accepted.
    case tooLong(Int)
    /// Version 2 announces fewer bytes than its addresses have.
    case tooShort(Int)
    /// The connection ended within the header.
    case incomplete
    case timeout(Duration)
}

extension ProxyHeaderFault: CustomStringConvertible {
    var description: String {
        switch self {
        case .missing:
            """
            the connection begins without one; have the proxy send it (HAProxy: send-proxy-v2, nginx: proxy_protocol \
            on), or do not list its address in ServerProxies.proxyProtocol
            """
        case .lineTooLong: "its line does not end within \(ProxyHeaderReader.longestLine) bytes"
        case .line: "its line names no protocol, addresses and ports as version 1 has them"
        case .version(let version): "its version is \(version); 1 and 2 are known"
        case .command(let command): "its command is \(command); 0 (LOCAL) and 1 (PROXY) are known"
        case .family(let family): "its family of addresses is unknown: 0x\(String(family, radix: 16))"
        case .tooLong(let length): "it has \(length) bytes; \(ProxyHeaderReader.largestBlock) are accepted"
        case .tooShort(let length): "its \(length) bytes are too few for its addresses"
        case .incomplete: "the connection ended within it"
        case .timeout(let time): "it has not come within \(time)"
        }
    }
}
