// SPDX-License-Identifier: Apache-2.0
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

/// Lookups that block.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct AddressLookupTests {
    /// A resolver that answers when the test says so.
    private final class Resolver: Sendable {
        let begun = Watched<[String]>([])
        private let gates = NIOLockedValueBox<[String: ConditionLock<Bool>]>([:])

        private func gate(_ host: String) -> ConditionLock<Bool> {
            self.gates.withLockedValue { gates in
                let gate = gates[host] ?? ConditionLock(value: false)
                gates[host] = gate
                return gate
            }
        }

        func lookUp(_ host: String, _ families: AddressFamilies) throws(AddressLookupError) -> [String] {
            self.begun.withLockedValue { $0.append(host) }
            let gate = self.gate(host)
            gate.lock(whenValue: true)
            gate.unlock()
            if host.hasSuffix(".invalid") { throw AddressLookupError(host, families, reason: "unknown") }
            return ["192.0.2.\(host.count)"]
        }

        func answer(_ host: String) {
            let gate = self.gate(host)
            gate.lock()
            gate.unlock(withValue: true)
        }
    }

    private let resolver = Resolver()
    private let time = NIOLockedValueBox(NIODeadline.uptimeNanoseconds(0))
    private let lookup: AddressLookup
    private let answers = Watched<[String]>([])

    init() {
        let (resolver, time) = (self.resolver, self.time)
        self.lookup = AddressLookup(now: { time.withLockedValue { $0 } }) { host, families throws(AddressLookupError) in
            try resolver.lookUp(host, families)
        }
    }

    private func ask(_ host: String, _ families: AddressFamilies = .any) {
        let answers = self.answers
        self.lookup.addresses(of: host, families) { result in
            let text: String
            do { text = "\(host) \(families): \(try result.get())" } catch { text = "\(error)" }
            answers.withLockedValue { $0.append(text) }
        }
    }

    @Test func nameThatTakesLongDelaysNoOther() async throws {
        for number in 0..<200 { self.ask("slow-\(number)") }
        self.ask("fast")
        self.resolver.answer("fast")
        try await self.answers.wait("the other answer") { $0 == [#"fast any: ["192.0.2.4"]"#] }
        for number in 0..<200 { self.resolver.answer("slow-\(number)") }
        try await self.answers.wait("all answers") { $0.count == 201 }
    }

    private func wait(_ time: TimeAmount) {
        self.time.withLockedValue { $0 = $0 + time }
    }

    /// The DNS may not have answered because of a lost packet.
    @Test func lookupThatTakesLongIsNotJoined() async throws {
        self.ask("host")
        self.wait(AddressLookup.youth - .nanoseconds(1))
        self.ask("host")
        try await self.resolver.begun.wait("one lookup for both") { $0.count == 1 }
        self.wait(.nanoseconds(1))
        self.ask("host")
        try await self.resolver.begun.wait("another lookup") { $0.count == 2 }
        self.resolver.answer("host")
        try await self.answers.wait("all answers") { $0.count == 3 }
        #expect(self.resolver.begun.current.count == 2)
    }

    /// The nameserver of the old network may no longer be there.
    @Test func lookupOfANetworkThatWasLeftIsNotJoined() async throws {
        let (home, work) = (NetworkPath(isReachable: true, name: "home"), NetworkPath(isReachable: true, name: "work"))
        self.lookup.networkPathIs(home)
        self.ask("host")
        try await self.resolver.begun.wait("the lookup") { $0.count == 1 }
        // Every client tells of the same change.
        for _ in 0..<3 {
            self.lookup.networkPathIs(work)
            self.ask("host")
        }
        try await self.resolver.begun.wait("one more lookup") { $0.count == 2 }
        self.resolver.answer("host")
        try await self.answers.wait("all answers") { $0.count == 4 }
        #expect(self.resolver.begun.current.count == 2)
    }

    /// Each has a thread.
    @Test func lookupsOfANameAreBounded() async throws {
        for _ in 0..<100 {
            self.ask("host")
            self.wait(AddressLookup.youth)
        }
        try await self.resolver.begun.wait("the lookups of a network") { $0.count == AddressLookup.maximumLookups }
        for number in 0..<100 {
            self.lookup.networkPathIs(NetworkPath(isReachable: true, name: "\(number)"))
            self.ask("host")
        }
        try await self.resolver.begun.wait("all lookups") { $0.count == AddressLookup.maximumLookupsOfAll }
        self.resolver.answer("host")
        try await self.answers.wait("all answers") { $0.count == 200 }
        #expect(self.resolver.begun.current.count == AddressLookup.maximumLookupsOfAll)
    }

    @Test func nameThatIsBeingLookedUpIsNotLookedUpAgain() async throws {
        for _ in 0..<100 { self.ask("host") }
        self.ask("host", .preferIPv6)
        // Others are requested than for both families.
        self.ask("host", .onlyIPv4)
        try await self.resolver.begun.wait("the lookups") { $0.count == 2 }
        self.resolver.answer("host")
        try await self.answers.wait("all answers") { $0.count == 102 }
        #expect(self.resolver.begun.current.count == 2)
        // A later one is.
        self.ask("host")
        try await self.answers.wait("a later answer") { $0.count == 103 }
        #expect(self.resolver.begun.current.count == 3)
    }

    @Test func eachErrorNamesTheFamiliesOfWhoAsked() async throws {
        self.ask("no.invalid", .onlyIPv6)
        self.ask("no.invalid")
        self.resolver.answer("no.invalid")
        try await self.answers.wait("both errors") { $0.count == 2 }
        #expect(self.answers.current.contains { $0.hasPrefix("no.invalid has no IPv6 address (unknown)") })
        #expect(self.answers.current.contains { $0.hasPrefix("no.invalid has no address (unknown)") })
    }
}
