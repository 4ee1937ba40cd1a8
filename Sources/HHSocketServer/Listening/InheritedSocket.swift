// SPDX-License-Identifier: Apache-2.0
import HHSocketLink
import HHSocketSystem
import NIOCore

/// A listening socket that the process did not make: a service manager or a parent process did.
struct InheritedSocket {
    /// The number of the first one that systemd passes.
    private static let first: CInt = 3

    let descriptor: CInt
    /// The address to which it is bound.
    let address: Endpoint

    /// - Throws: ``/HHSocket/SocketError`` with code `bindFailed`, if it is not a listening socket of TCP or of the
    ///   Unix domain.
    init(_ descriptor: CInt) throws(SocketError) {
        self.descriptor = descriptor
        var isListening: CInt = 0
        var length = socklen_t(MemoryLayout<CInt>.size)
        guard getsockopt(descriptor, SOL_SOCKET, SO_ACCEPTCONN, &isListening, &length) == 0, isListening != 0,
            let address = Self.address(of: descriptor)
        else {
            throw SocketError(
                .bindFailed,
                message: """
                    cannot listen on descriptor \(descriptor): it is not a listening socket; a unit of systemd needs \
                    another one that ends with .socket
                    """
            )
        }
        self.address = address
    }

    /// The descriptors that systemd has passed to the process whose environment this is.
    static func descriptors(_ environment: (String) -> String?) -> [CInt] {
        guard environment("LISTEN_PID") == "\(getpid())",
            let count = environment("LISTEN_FDS").flatMap({ CInt($0) }), (1...1_024).contains(count)
        else { return [] }
        return Array(Self.first..<Self.first + count)
    }

    /// Sets the number of connections that may wait in the system.
    func setBacklog(_ count: Int) { _ = listen(self.descriptor, CInt(clamping: count)) }

    private static func address(of descriptor: CInt) -> Endpoint? {
        var storage = sockaddr_storage()
        var length = socklen_t(MemoryLayout<sockaddr_storage>.size)
        let address = withUnsafeMutablePointer(to: &storage) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) { raw -> Endpoint? in
                guard getsockname(descriptor, raw, &length) == 0 else { return nil }
                // All addresses begin alike.
                let family = raw.withMemoryRebound(to: sockaddr_un.self, capacity: 1) { $0.pointee.sun_family }
                switch CInt(family) {
                case AF_INET:
                    return raw.withMemoryRebound(to: sockaddr_in.self, capacity: 1) {
                        Self.endpoint(SocketAddress($0.pointee))
                    }
                case AF_INET6:
                    return raw.withMemoryRebound(to: sockaddr_in6.self, capacity: 1) {
                        Self.endpoint(SocketAddress($0.pointee))
                    }
                case AF_UNIX:
                    return raw.withMemoryRebound(to: sockaddr_un.self, capacity: 1) {
                        SocketAddress($0.pointee).pathname.map { Endpoint(unixPath: $0) }
                    }
                default:
                    return nil
                }
            }
        }
        return address
    }

    private static func endpoint(_ address: SocketAddress) -> Endpoint? {
        guard let host = address.ipAddress, let port = address.port else { return nil }
        return Endpoint(host: host, port: port)
    }
}
