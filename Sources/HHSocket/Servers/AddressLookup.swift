import Dispatch
import NIOCore

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Looks up all addresses of a name with the system's resolver.
enum AddressLookup {
    /// Returns the addresses in the system's order, without duplicates.
    static func addresses(of host: String) async throws -> [String] {
        try await withCheckedThrowingContinuation { continuation in
            // `getaddrinfo` blocks for as long as the DNS takes.
            DispatchQueue.global().async {
                continuation.resume(with: Result { try Self.lookUp(host) })
            }
        }
    }

    private static func lookUp(_ host: String) throws -> [String] {
        var hints = addrinfo()
        hints.ai_family = AF_UNSPEC
        #if canImport(Glibc)
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        #else
        hints.ai_socktype = SOCK_STREAM
        #endif
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, nil, &hints, &list)
        guard code == 0, let first = list else {
            throw SocketError(
                .hostNotFound,
                message: """
                    cannot find \(host): \(String(cString: gai_strerror(code))); check its spelling and the DNS
                    """
            )
        }
        defer { freeaddrinfo(first) }
        var addresses: [String] = []
        var seen: Set<String> = []
        var next: UnsafeMutablePointer<addrinfo>? = first
        while let entry = next?.pointee {
            next = entry.ai_next
            if let text = Self.text(entry), seen.insert(text).inserted { addresses.append(text) }
        }
        return addresses
    }

    private static func text(_ entry: addrinfo) -> String? {
        var buffer = [CChar](repeating: 0, count: Int(NI_MAXHOST))
        let code = getnameinfo(
            entry.ai_addr,
            entry.ai_addrlen,
            &buffer,
            socklen_t(buffer.count),
            nil,
            0,
            NI_NUMERICHOST
        )
        guard code == 0 else { return nil }
        return String(decoding: buffer.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }
}
