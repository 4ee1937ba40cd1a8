// SPDX-License-Identifier: Apache-2.0
import Foundation
import NIOConcurrencyHelpers

#if canImport(Darwin)
import Darwin
#elseif canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Android)
import Android
#endif

/// Looks up all addresses of names, each on a thread of its own, because the system's resolver blocks for as long as
/// the DNS takes. A name that is being looked up is not looked up again meanwhile: whoever asks for it gets the same
/// answer.
final class AddressLookup: Sendable {
    private struct Query: Hashable {
        var host: String
        /// The only family whose addresses are requested; nil for both.
        var family: AddressFamily?
    }

    typealias Answer = @Sendable (Result<[String], any Error>) -> Void

    /// The system's resolver.
    static let system = AddressLookup { host, families throws(AddressLookupError) in
        try AddressLookup.lookUp(host, families)
    }

    private let lookUp: @Sendable (_ host: String, AddressFamilies) throws(AddressLookupError) -> [String]
    private let waiting = NIOLockedValueBox<[Query: [(AddressFamilies, Answer)]]>([:])

    /// - Parameter lookUp: Returns the addresses of a host, in their order and without duplicates. May block.
    init(_ lookUp: @escaping @Sendable (_ host: String, AddressFamilies) throws(AddressLookupError) -> [String]) {
        self.lookUp = lookUp
    }

    /// Calls `answer` with the addresses in the system's order, without duplicates, or with an ``AddressLookupError``,
    /// on another thread. If only one family is allowed, addresses of the other are not requested.
    func addresses(of host: String, _ families: AddressFamilies, _ answer: @escaping Answer) {
        let query = Query(host: host, family: families.only)
        let isFirst = self.waiting.withLockedValue { waiting in
            waiting[query, default: []].append((families, answer))
            return waiting[query]?.count == 1
        }
        guard isFirst else { return }
        Thread.detachNewThread {
            let result: Result<[String], AddressLookupError>
            do throws(AddressLookupError) {
                result = .success(try self.lookUp(host, families))
            } catch {
                result = .failure(error)
            }
            let waiting = self.waiting.withLockedValue { $0.removeValue(forKey: query) ?? [] }
            for (families, answer) in waiting {
                answer(result.mapError { AddressLookupError(host, families, reason: $0.reason) as any Error })
            }
        }
    }

    /// Returns the addresses of ``addresses(of:_:_:)``.
    ///
    /// - Throws: ``AddressLookupError``.
    func addresses(of host: String, _ families: AddressFamilies) async throws -> [String] {
        try await withCheckedThrowingContinuation { continuation in
            self.addresses(of: host, families) { continuation.resume(with: $0) }
        }
    }

    private static func lookUp(_ host: String, _ families: AddressFamilies) throws(AddressLookupError) -> [String] {
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
