// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#elseif canImport(Android)
import Android
#endif

/// A reservation of a port of 127.0.0.1 without listening: while the port is bound, the system gives it to no other
/// process, and refuses connections to it.
final class PortReservation: Sendable {
    private let descriptor: NIOLockedValueBox<CInt>

    /// Creates a reservation; nil if another process has taken the port meanwhile, which then needs no reservation.
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
        guard result == 0 else {
            close(descriptor)
            return nil
        }
        self.descriptor = NIOLockedValueBox(descriptor)
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
