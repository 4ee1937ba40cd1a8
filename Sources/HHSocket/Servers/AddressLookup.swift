// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketSystem
import NIOConcurrencyHelpers
import NIOCore

/// Looks up all addresses of names, each on a thread of its own, because the system's resolver blocks for as long as
/// the DNS takes. Whoever asks for a name while it is being looked up gets the same answer, as long as that lookup is
/// young and of the same network: one that hangs, or that asks the DNS of a network that the machine has left, is not
/// waited for by others, for whom a new one may take milliseconds. The lookups of a name are bounded.
final class AddressLookup: Sendable {
    private struct Query: Hashable {
        var host: String
        /// The only family whose addresses are requested; nil for both.
        var family: AddressFamily?
    }

    /// A lookup that is under way.
    private struct Lookup {
        var number: UInt64
        var began: NIODeadline
        /// The ``State/network`` in which it began.
        var network: UInt64
        var waiting: [(AddressFamilies, Answer)] = []
    }

    private struct State {
        /// Those of each name, the oldest first.
        var lookups: [Query: [Lookup]] = [:]
        var lastNumber: UInt64 = 0
        var path: NetworkPath?
        /// The number of changes of the network.
        var network: UInt64 = 0
    }

    /// The age up to which a lookup is joined.
    static let youth = TimeAmount.seconds(2)
    /// The greatest number of lookups of a name in one network. Beyond it, the newest is joined.
    static let maximumLookups = 4
    /// The greatest number of lookups of a name, with those of networks that were left.
    static let maximumLookupsOfAll = 8

    typealias Answer = @Sendable (Result<[String], any Error>) -> Void

    /// The system's resolver.
    static let system = AddressLookup { host, families throws(AddressLookupError) in
        try AddressLookup.lookUp(host, families)
    }

    private let lookUp: @Sendable (_ host: String, AddressFamilies) throws(AddressLookupError) -> [String]
    private let now: @Sendable () -> NIODeadline
    private let state = NIOLockedValueBox(State())

    /// - Parameters:
    ///   - now: The current time.
    ///   - lookUp: Returns the addresses of a host, in their order and without duplicates. May block.
    init(
        now: @escaping @Sendable () -> NIODeadline = { .now() },
        _ lookUp: @escaping @Sendable (_ host: String, AddressFamilies) throws(AddressLookupError) -> [String]
    ) {
        self.now = now
        self.lookUp = lookUp
    }

    /// Records the path of the network. Each client says it, so only one that differs from the last is a change.
    func networkPathIs(_ path: NetworkPath) {
        self.state.withLockedValue { state in
            if let last = state.path, last != path { state.network += 1 }
            state.path = path
        }
    }

    /// Calls `answer` with the addresses in the system's order, without duplicates, or with an ``AddressLookupError``,
    /// on another thread. If only one family is allowed, addresses of the other are not requested.
    func addresses(of host: String, _ families: AddressFamilies, _ answer: @escaping Answer) {
        let query = Query(host: host, family: families.only)
        guard let number = self.state.withLockedValue({ self.join(query, allowing: families, answer, in: &$0) }) else {
            return
        }
        Thread.detachNewThread {
            let result = Result { () throws(AddressLookupError) in try self.lookUp(host, families) }
            for (families, answer) in self.state.withLockedValue({ self.end(number, of: query, in: &$0) }) {
                answer(result.mapError { AddressLookupError(host, families, reason: $0.reason) as any Error })
            }
        }
    }

    /// Has `answer` wait for the newest lookup of a name.
    ///
    /// - Returns: The number of the lookup if it must begin; nil if it has.
    private func join(
        _ query: Query,
        allowing families: AddressFamilies,
        _ answer: @escaping Answer,
        in state: inout State
    ) -> UInt64? {
        var lookups = state.lookups[query] ?? []
        defer { state.lookups[query] = lookups }
        let now = self.now()
        let ofThisNetwork = lookups.count { $0.network == state.network }
        let mayBegin = ofThisNetwork < Self.maximumLookups && lookups.count < Self.maximumLookupsOfAll
        if let newest = lookups.last, !mayBegin || newest.network == state.network && now - newest.began < Self.youth {
            lookups[lookups.count - 1].waiting.append((families, answer))
            return nil
        }
        state.lastNumber += 1
        lookups.append(
            Lookup(number: state.lastNumber, began: now, network: state.network, waiting: [(families, answer)])
        )
        return state.lastNumber
    }

    /// Removes a lookup that has ended. Returns those that wait for it.
    private func end(_ number: UInt64, of query: Query, in state: inout State) -> [(AddressFamilies, Answer)] {
        guard let index = state.lookups[query]?.firstIndex(where: { $0.number == number }) else { return [] }
        let waiting = state.lookups[query]?.remove(at: index).waiting ?? []
        if state.lookups[query]?.isEmpty == true { state.lookups[query] = nil }
        return waiting
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
