// SPDX-License-Identifier: Apache-2.0
import NIOCore

/// The client's side of SOCKS5 (RFC 1928), with RFC 1929 for user and password.
struct SOCKS5Negotiation: ProxyNegotiation {
    private enum State {
        case method, authentication, reply
    }

    private static let version: UInt8 = 5
    private static let noAuthentication: UInt8 = 0
    private static let userAndPassword: UInt8 = 2
    private static let noAcceptableMethod: UInt8 = 0xFF

    private var state = State.method
    /// The encoded credentials; nil without any.
    private let authentication: ByteBuffer?
    private let request: ByteBuffer

    /// Creates the negotiation; nil if the format cannot express a name, the password or the port.
    init?(to server: Endpoint, credentials: Proxy.Credentials?) {
        guard let request = Self.request(to: server) else { return nil }
        self.request = request
        guard let credentials else {
            self.authentication = nil
            return
        }
        let (user, password) = (Array(credentials.user.utf8), Array(credentials.password.utf8))
        guard let userLength = UInt8(exactly: user.count), let passwordLength = UInt8(exactly: password.count) else {
            return nil
        }
        self.authentication = ByteBuffer(bytes: [1, userLength] + user + [passwordLength] + password)
    }

    private static func request(to server: Endpoint) -> ByteBuffer? {
        guard let port = UInt16(exactly: server.port) else { return nil }
        var request = ByteBuffer(bytes: [self.version, 1, 0])
        switch server.ipAddress {
        case .v4(let address):
            request.writeInteger(1 as UInt8)
            request.writeBytes(address.bytes)
        case .v6(let address):
            request.writeInteger(4 as UInt8)
            request.writeBytes(address.bytes)
        case .unixDomainSocket, nil:
            guard let length = UInt8(exactly: server.host.utf8.count), length > 0 else { return nil }
            request.writeBytes([3, length])
            request.writeString(server.host)
        }
        request.writeInteger(port)
        return request
    }

    mutating func begin() -> ByteBuffer {
        let methods = [Self.noAuthentication] + (self.authentication == nil ? [] : [Self.userAndPassword])
        return ByteBuffer(bytes: [Self.version, UInt8(methods.count)] + methods)
    }

    /// Requires at most 262 bytes at once.
    mutating func receive(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep {
        // The first byte reveals another protocol. The answer to the authentication has its own version, 1, which not
        // all proxies write.
        if self.state != .authentication, let version = bytes.firstByte, version != Self.version {
            throw ProxyFailure(
                .notAProxy,
                "the peer does not speak SOCKS5; check the proxy's kind and port"
            )
        }
        switch self.state {
        case .method: return try self.receiveMethod(&bytes)
        case .authentication: return try self.receiveVerdict(&bytes)
        case .reply: return try Self.receiveReply(&bytes)
        }
    }

    private mutating func receiveMethod(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep {
        guard let answer = bytes.readBytes(length: 2) else { return .wait }
        switch (answer[1], self.authentication) {
        case (Self.noAuthentication, _):
            self.state = .reply
            return .send(self.request)
        case (Self.userAndPassword, let authentication?):
            self.state = .authentication
            return .send(authentication)
        case (Self.noAcceptableMethod, nil), (Self.userAndPassword, nil):
            throw ProxyFailure(
                .authenticationRequired,
                "the proxy asks for a user and a password; set Proxy.credentials"
            )
        case (Self.noAcceptableMethod, _):
            throw ProxyFailure(
                .authenticationRequired,
                "the proxy requires authentication other than by a user and a password"
            )
        case (let method, _):
            throw ProxyFailure(.notAProxy, "the proxy chose method \(method) of authentication, which was not offered")
        }
    }

    private mutating func receiveVerdict(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep {
        guard let answer = bytes.readBytes(length: 2) else { return .wait }
        guard answer[1] == 0 else {
            throw ProxyFailure(.authenticationFailed, "the proxy does not accept the user and the password")
        }
        self.state = .reply
        return .send(self.request)
    }

    private static func receiveReply(_ bytes: inout ByteBuffer) throws(ProxyFailure) -> ProxyStep {
        // A proxy that refuses may close at once, without sending the address.
        guard let code: UInt8 = bytes.getInteger(at: bytes.readerIndex + 1) else { return .wait }
        guard code == 0 else { throw self.failure(code) }
        guard let kind: UInt8 = bytes.getInteger(at: bytes.readerIndex + 3) else { return .wait }
        let length: Int
        switch kind {
        case 1:
            length = 4
        case 3:
            guard let count: UInt8 = bytes.getInteger(at: bytes.readerIndex + 4) else { return .wait }
            length = 1 + Int(count)
        case 4:
            length = 16
        default:
            throw ProxyFailure(.notAProxy, "the proxy's answer has an address of the unknown kind \(kind)")
        }
        // The address and port from which the proxy connected are not used.
        return bytes.readSlice(length: 4 + length + 2) == nil ? .wait : .connected
    }

    private static func failure(_ code: UInt8) -> ProxyFailure {
        let (reason, text): (ProxyFailure.Reason, String) =
            switch code {
            case 1: (.refused(1), "it failed, without a reason")
            case 2: (.refused(2), "its rules do not allow this connection")
            case 3: (.serverUnreachable, "it has no network to the server")
            case 4: (.serverUnreachable, "it cannot reach or find the server's host")
            case 5: (.serverUnreachable, "the server refused its connection")
            case 6: (.serverUnreachable, "the server is too far away (TTL expired)")
            case 7: (.refused(7), "it does not support CONNECT")
            case 8: (.refused(8), "it does not support this kind of address")
            default: (.refused(Int(code)), "for a reason that the protocol does not define")
            }
        return ProxyFailure(reason, "the proxy answered \(code): \(text)")
    }
}

extension ByteBuffer {
    fileprivate var firstByte: UInt8? { self.getInteger(at: self.readerIndex) }
}
