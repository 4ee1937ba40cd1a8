// SPDX-License-Identifier: Apache-2.0
import HHSocketSystem
import NIOConcurrencyHelpers
import NIOCore

/// A reservation of a port of 127.0.0.1 without listening: while the port is bound, the system gives it to no other
/// process, and refuses connections to it.
final class PortReservation: Sendable {
    /// The reserved port.
    let port: Int
    private let descriptor: NIOLockedValueBox<CInt>

    /// Creates a reservation, of any free port for 0; nil if another process has taken the port meanwhile, which then
    /// needs no reservation.
    init?(port: Int) {
        guard let address = try? SocketAddress(ipAddress: "127.0.0.1", port: port) else { return nil }
        #if canImport(Glibc)
        let descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        #else
        let descriptor = socket(AF_INET, SOCK_STREAM, 0)
        #endif
        guard descriptor >= 0 else { return nil }
        var yes: CInt = 1
        setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &yes, socklen_t(MemoryLayout<CInt>.size))
        let result = address.withSockAddr { bind(descriptor, $0, socklen_t($1)) }
        guard result == 0, let bound = Self.port(of: descriptor) else {
            close(descriptor)
            return nil
        }
        self.port = bound
        self.descriptor = NIOLockedValueBox(descriptor)
    }

    /// The port of a socket of IPv4, which on all systems is the third and fourth byte of its address.
    private static func port(of descriptor: CInt) -> Int? {
        var address = [UInt8](repeating: 0, count: 128)
        var length = socklen_t(address.count)
        let result = address.withUnsafeMutableBytes { bytes in
            bytes.withMemoryRebound(to: sockaddr.self) { getsockname(descriptor, $0.baseAddress, &length) }
        }
        return result == 0 ? Int(address[2]) << 8 | Int(address[3]) : nil
    }

    /// Begins to connect the port to another one of 127.0.0.1.
    ///
    /// - Returns: Whether that is possible.
    func connect(to port: Int) -> Bool {
        guard let address = try? SocketAddress(ipAddress: "127.0.0.1", port: port) else { return false }
        return self.descriptor.withLockedValue { descriptor in
            _ = fcntl(descriptor, F_SETFL, O_NONBLOCK)
            let result = address.withSockAddr { HHSocketSystem.connect(descriptor, $0, socklen_t($1)) }
            return result == 0 || errno == EINPROGRESS
        }
    }

    func end() {
        self.descriptor.withLockedValue { descriptor in
            if descriptor >= 0 { close(descriptor) }
            descriptor = -1
        }
    }

    deinit {
        self.end()
    }
}
