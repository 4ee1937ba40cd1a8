// SPDX-License-Identifier: Apache-2.0
public import HHSocketLink
import HHSocketSystem

/// An address at which a server accepts connections, with its TLS and its wire format.
public struct ServerListener: Sendable {
    /// The address to listen on: an IP address or a host name. Empty where ``unixPath`` is set.
    package var host: String
    /// The TCP port, 0 to 65,535. 0 selects a free one.
    package var port: Int
    /// The path of a Unix domain socket to listen on instead.
    package var unixPath: String?
    /// A socket of TCP or of the Unix domain that listens already, to use instead of an address: its number as a file
    /// descriptor. The server closes it when it shuts down, so no two listeners may have the same. ``inherited()`` has
    /// those that systemd passes.
    public var descriptor: Int32?
    /// The TLS settings. Nil, the default: anyone on the network path can read and change the traffic.
    public var tls: ServerTLS?
    /// The WebSockets at this address, which carry the frames. Nil, the default, for frames only.
    public var webSocket: WebSocketListening?
    /// The proxies in front of it, such as load balancers, and the way in which they report the addresses of their
    /// clients. None by default: clients have the addresses from which they connect.
    public var proxies = ServerProxies()
    /// The number of connections that may wait in the system until they are accepted, for each listening socket; 4,096
    /// by default. The system has a separate bound, `net.core.somaxconn` on Linux.
    public var backlog = 4_096
    /// The number of sockets that listen at a TCP address (`SO_REUSEPORT`), on an event loop each; 1 by default, and
    /// always 1 if the system does not distribute connections among them, as Linux does.
    ///
    /// One accepts about ten thousand connections a second, 64 in a turn of its event loop. More than one are useful if
    /// that is not enough. The system chooses a socket by a hash of the addresses, and connections wait for a socket
    /// whose event loop is busy. In either case the server distributes connections among its event loops in turn, so
    /// that each has as many as the others. But another process of the same user may then also listen at the address,
    /// and take a part of the connections.
    public var listeningSockets = 1
    /// The layout of frames. In a format whose responses have no status, errors cannot be sent: such answers are
    /// dropped, and counted in ``ServerCounter/errorsNotSent``.
    public var wireFormat: WireFormat
    /// The values of the format's custom response fields, by name, in pushes and pings, and in answers where the
    /// request has no field of that name.
    package var header: [String: [UInt8]]

    /// - Parameters:
    ///   - host: An IP address or a host name; `127.0.0.1` by default, so that nothing is offered to the network
    ///     unasked; `0.0.0.0` is every IPv4 interface, `::` every interface.
    ///   - port: The TCP port, 0 to 65,535. 0, the default, selects a free one, which ``SocketServer/addresses``
    ///     reports.
    ///   - tls: TLS; nil, the default, for none.
    ///   - wireFormat: The layout of frames; the standard format by default.
    ///   - header: The values of the format's custom response fields, by name, in pushes and pings, and in answers
    ///     where the request has no field of that name; those that it has are repeated. Fields that are not named here
    ///     are zero. None by default.
    public init(
        host: String = "127.0.0.1",
        port: Int = 0,
        tls: ServerTLS? = nil,
        wireFormat: WireFormat = .standard,
        header: [String: [UInt8]] = [:]
    ) {
        self.host = host
        self.port = port
        self.tls = tls
        self.wireFormat = wireFormat
        self.header = header
    }

    /// Creates a listener for WebSockets.
    ///
    /// - Parameters:
    ///   - url: `ws://address[:port]/path`, or `tcp+ws://address[:port]/path` for a port that also accepts connections
    ///     that are not WebSockets. With `wss` in place of `ws`, `tls` is required. The port is 80, or 443 for `wss`,
    ///     if the URL has none; 0 selects a free one.
    ///   - tls: TLS; nil, the default, for none.
    ///   - wireFormat: The layout of frames; the standard format by default.
    ///   - header: The values of the format's custom response fields, by name; none by default.
    /// - Throws: ``/HHSocket/SocketError`` with code `invalidArgument` that describes the fault of the URL.
    public init(
        url: String,
        tls: ServerTLS? = nil,
        wireFormat: WireFormat = .standard,
        header: [String: [UInt8]] = [:]
    ) throws(SocketError) {
        let target: WebSocketTarget
        do throws(OpeningError) {
            target = try WebSocketTarget(url, for: .listener)
        } catch {
            throw .invalid("\(error)")
        }
        guard tls != nil || !target.isSecure else {
            throw .invalid("the scheme wss needs a certificate (ServerListener.tls)")
        }
        self.init(host: target.host, port: target.port, tls: tls, wireFormat: wireFormat, header: header)
        self.webSocket = WebSocketListening(path: target.path, sharesPort: target.sharesPort)
    }

    /// - Parameters:
    ///   - unixPath: The path of the socket in the file system, where a stale one is replaced; the system allows 107
    ///     bytes on Linux, and 103 on Apple's.
    ///   - tls: TLS; nil, the default, for none.
    ///   - wireFormat: The layout of frames; the standard format by default.
    ///   - header: The values of the format's custom response fields, by name; none by default.
    public init(
        unixPath: String,
        tls: ServerTLS? = nil,
        wireFormat: WireFormat = .standard,
        header: [String: [UInt8]] = [:]
    ) {
        self.init(host: "", tls: tls, wireFormat: wireFormat, header: header)
        self.unixPath = unixPath
    }

    /// Creates a listener on a socket that listens already.
    package init(descriptor: Int32) {
        self.init(host: "")
        self.descriptor = descriptor
    }

    /// The sockets that systemd passes to the process (`LISTEN_FDS`), in the order of the unit's `ListenStream=`; empty
    /// if the process was started in another way.
    ///
    /// systemd keeps them open while a service restarts, so that no client is refused: new connections wait until the
    /// next process accepts them.
    public static func inherited() -> [ServerListener] {
        InheritedSocket.descriptors { getenv($0).map { String(cString: $0) } }.map { ServerListener(descriptor: $0) }
    }

    /// The address to listen on.
    var endpoint: Endpoint {
        if let descriptor = self.descriptor, let socket = try? InheritedSocket(descriptor) { return socket.address }
        return self.unixPath.map { Endpoint(unixPath: $0) } ?? Endpoint(host: self.host, port: self.port)
    }

    /// The address that clients connect to, by the one that the listener has: a URL, unless the port is shared.
    func url(of address: Endpoint) -> Endpoint {
        guard let webSocket = self.webSocket, !webSocket.sharesPort else { return address }
        return Endpoint(address, isSecure: self.tls != nil, path: webSocket.path ?? "/")
    }
}
