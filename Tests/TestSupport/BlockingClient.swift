// SPDX-License-Identifier: Apache-2.0
#if os(Linux)
#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#endif

/// A client that is only a descriptor, with blocking calls: for tests that measure memory, or in which no task may run.
package final class BlockingClient {
    private let descriptor: CInt

    /// Connects to a server on 127.0.0.1.
    package init(port: Int) throws {
        #if canImport(Musl)
        self.descriptor = socket(AF_INET, SOCK_STREAM, 0)
        #else
        self.descriptor = socket(AF_INET, CInt(SOCK_STREAM.rawValue), 0)
        #endif
        guard self.descriptor >= 0 else { throw Unexpected(description: "no descriptor: \(errno)") }
        var patience = timeval(tv_sec: 60, tv_usec: 0)
        setsockopt(self.descriptor, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = in_port_t(port).bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        let status = withUnsafePointer(to: &address) { address in
            address.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(self.descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        guard status == 0 else { throw Unexpected(description: "no connection: \(errno)") }
    }

    deinit { close(self.descriptor) }

    package func send(_ bytes: [UInt8]) throws {
        var rest = bytes[...]
        while !rest.isEmpty {
            let count = rest.withUnsafeBytes { bytes in
                Self.uninterrupted { write(self.descriptor, bytes.baseAddress, bytes.count) }
            }
            guard count > 0 else { throw Unexpected(description: "nothing can be sent: \(errno)") }
            rest = rest.dropFirst(count)
        }
    }

    /// Reads exactly `count` bytes, and waits at most a minute for each part of them.
    package func receive(_ count: Int) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            var part = [UInt8](repeating: 0, count: count - bytes.count)
            let length = part.withUnsafeMutableBytes { bytes in
                Self.uninterrupted { read(self.descriptor, bytes.baseAddress, bytes.count) }
            }
            guard length > 0 else { throw Unexpected(description: "the server does not answer: \(errno)") }
            bytes += part.prefix(length)
        }
        return bytes
    }

    /// Repeats a call that a signal interrupts. On Linux a call on a socket with a timeout is also interrupted when the
    /// process was stopped and continues.
    private static func uninterrupted(_ call: () -> Int) -> Int {
        while true {
            let result = call()
            if result != -1 || errno != EINTR { return result }
        }
    }
}
#endif
