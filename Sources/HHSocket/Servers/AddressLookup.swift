// SPDX-License-Identifier: Apache-2.0
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
    /// Returns the addresses in the system's order, without duplicates. If only one family is allowed, addresses of the
    /// other are not requested.
    ///
    /// - Throws: ``AddressLookupError``.
    static func addresses(of host: String, _ families: AddressFamilies) async throws -> [String] {
        try await withCheckedThrowingContinuation { continuation in
            // `getaddrinfo` blocks for as long as the DNS takes.
            DispatchQueue.global().async {
                continuation.resume(with: Result { try Self.lookUp(host, families) })
            }
        }
    }

    private static func lookUp(_ host: String, _ families: AddressFamilies) throws -> [String] {
        var hints = addrinfo()
        hints.ai_family =
            switch families.only {
            case nil: AF_UNSPEC
            case .ipv4: AF_INET
            case .ipv6: AF_INET6
            }
        #if canImport(Glibc)
        hints.ai_socktype = CInt(SOCK_STREAM.rawValue)
        #else
        hints.ai_socktype = SOCK_STREAM
        #endif
        var list: UnsafeMutablePointer<addrinfo>?
        let code = getaddrinfo(host, nil, &hints, &list)
        guard code == 0, let first = list else {
            throw AddressLookupError(host, families, reason: String(cString: gai_strerror(code)))
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

/// A host name without an address that may be used.
struct AddressLookupError: Error, CustomStringConvertible {
    let host: String
    let families: AddressFamilies
    /// The system's words.
    let reason: String

    init(_ host: String, _ families: AddressFamilies, reason: String) {
        self.host = host
        self.families = families
        self.reason = reason
    }

    var description: String {
        guard let only = self.families.only else {
            return "\(self.host) has no address (\(self.reason)); check its spelling and the DNS"
        }
        return """
            \(self.host) has no \(only) address (\(self.reason)), and \(self.families.setting); check its spelling and \
            the DNS, or allow \(only.other) there
            """
    }
}
