// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocketServer

private let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)

private func address(_ address: String) throws -> ClientAddress {
    try #require(ClientAddress(try SocketAddress(ipAddress: address, port: 1)))
}

@Suite struct ClientAddressTests {
    @Test func eachIPv4AddressIsOneOfItsOwn() throws {
        #expect(try address("10.0.0.1") != address("10.0.0.2"))
        #expect(try address("127.0.0.1") != address("127.0.0.2"))
        #expect(try address("10.0.0.1").around.isEmpty)
        #expect(try address("10.0.0.1").largest == address("10.0.0.1"))
    }

    @Test func anIPv6NetworkOf64BitsIsOneAddress() throws {
        #expect(try address("2001:db8:1:2::1") == address("2001:db8:1:2:ffff::9"))
        #expect(try address("2001:db8:1:2::1") != address("2001:db8:1:3::1"))
    }

    @Test func theNetworksAroundItAreThoseOf56And48Bits() throws {
        let first = try address("2001:db8:1:200::1")
        #expect(first.around.count == 2)
        #expect(try address("2001:db8:1:2ff::1").around == first.around)
        let neighbour = try address("2001:db8:1:300::1")
        #expect(neighbour.around[0] != first.around[0] && neighbour.around[1] == first.around[1])
        #expect(try address("2001:db8:2:200::1").around[1] != first.around[1])
        #expect(first.largest == first.around[1])
        #expect(Set([first] + first.around).count == 3)
    }

    @Test(arguments: ["::ffff:10.0.0.1", "64:ff9b::10.0.0.1"])
    func anIPv4AddressInAnIPv6OneIsThatOfIPv4(mapped: String) throws {
        #expect(try address(mapped) == address("10.0.0.1"))
        #expect(try address(mapped) != address("10.0.0.2"))
    }

    @Test(arguments: ["::1", "::10.0.0.1", "64:ff9b:1::10.0.0.1"])
    func otherIPv6AddressesAreNot(other: String) throws {
        #expect(try address(other) != address("10.0.0.1"))
        #expect(try address(other).around.count == 2)
    }

    @Test func aUnixSocketHasNone() throws {
        #expect(ClientAddress(try SocketAddress(unixDomainSocketPath: "/tmp/x")) == nil)
        #expect(ClientAddress(nil) == nil)
    }
}

@Suite struct AddressTableTests {
    private func table(_ connections: Int = .max, of total: Int = .max, rate: RequestRate? = nil) -> AddressTable {
        AddressTable(AddressTable.Limits(connections: connections, total: total, rate: rate))
    }

    @Test func addressesAreCountedEach() throws {
        var table = table(1)
        let first = try address("10.0.0.1")
        #expect(table.enter(first, now: start) == nil)
        #expect(table.enter(first, now: start) == .tooManyFromOneAddress)
        #expect(table.enter(try address("10.0.0.2"), now: start) == nil)
        table.release(first, now: start)
        #expect(table.enter(first, now: start) == nil)
    }

    @Test func aCustomerOfManyIPv6NetworksHasALargerShareButNotAll() throws {
        let limits = AddressTable.Limits(connections: 8, total: 16, rate: nil)
        #expect((0..<3).map { limits.connections(level: $0) } == [8, 10, 12])
        // The rules for few connections also apply to networks.
        let few = AddressTable.Limits(connections: 8, total: 16_000, rate: nil)
        #expect((0..<3).map { few.connections(level: $0) } == [8, 16, 32])
        #expect(AddressTable.Limits(connections: .max, total: .max, rate: nil).connections(level: 2) == .max)
        #expect(AddressTable.Limits(connections: 1 << 62, total: .max, rate: nil).connections(level: 2) > 1 << 62)

        var table = AddressTable(limits)
        for number in 0..<10 {
            #expect(table.enter(try address("2001:db8:1:1\(number % 2)::1"), now: start) == nil, "\(number)")
        }
        #expect(table.enter(try address("2001:db8:1:12::1"), now: start) == .tooManyFromOneAddress)
        for number in 0..<2 {
            #expect(table.enter(try address("2001:db8:1:200::1"), now: start) == nil, "\(number)")
        }
        #expect(table.enter(try address("2001:db8:1:300::1"), now: start) == .tooManyFromOneAddress)
        #expect(table.enter(try address("2001:db8:2:300::1"), now: start) == nil)
    }

    @Test func newConnectionsOfAnAddressHaveARate() throws {
        var table = table(rate: RequestRate(perSecond: 10, burst: 2))
        let first = try address("10.0.0.1")
        for refusal in [nil, nil, .tooOftenFromOneAddress] as [ConnectionQuota.Refusal?] {
            #expect(table.enter(first, now: start) == refusal)
            if refusal == nil { table.release(first, now: start) }
        }
        #expect(table.enter(try address("10.0.0.2"), now: start) == nil)
        #expect(table.enter(first, now: start + .milliseconds(99)) == .tooOftenFromOneAddress)
        #expect(table.enter(first, now: start + .milliseconds(101)) == nil)
    }

    /// Otherwise a client that is rejected repeatedly would use up its neighbours' rate.
    @Test func refusedConnectionsDoNotCountForEnclosingNetworks() throws {
        var table = table(rate: RequestRate(perSecond: 0.001, burst: 1))
        let first = try address("2001:db8:1:1::1")
        #expect(table.enter(first, now: start) == nil)
        for _ in 0..<10 { #expect(table.enter(first, now: start) == .tooOftenFromOneAddress) }
        #expect(table.enter(try address("2001:db8:1:2::1"), now: start) == nil)
        #expect(table.enter(try address("2001:db8:1:3::1"), now: start) == .tooOftenFromOneAddress)
        for number in [0x200, 0x300] {
            #expect(table.enter(try address("2001:db8:1:\(String(number, radix: 16))::1"), now: start) == nil)
        }
        #expect(table.enter(try address("2001:db8:1:400::1"), now: start) == .tooOftenFromOneAddress)
    }

    @Test func addressesAreForgottenOnceTheirLimitsAreFullAgain() throws {
        var table = table(10, rate: RequestRate(perSecond: 1, burst: 10))
        for number in 0..<100 {
            let address = try address("10.0.1.\(number)")
            #expect(table.enter(address, now: start) == nil)
            table.release(address, now: start)
        }
        #expect(table.count == 100)
        let last = try address("10.0.0.1")
        for second in 2..<32 {
            let now = start + .seconds(Int64(second))
            #expect(table.enter(last, now: now) == nil)
            table.release(last, now: now)
        }
        #expect(table.count == 1)
    }

    @Test func theTableIsBounded() throws {
        var table = table(10, rate: RequestRate(perSecond: 0.001, burst: 10))
        for number in 0..<(2 * AddressTable.maximumIdle) {
            let address = try address("10.1.\(number / 256).\(number % 256)")
            #expect(table.enter(address, now: start) == nil)
            table.release(address, now: start)
        }
        #expect(table.count <= AddressTable.maximumIdle + 1)
        // An address with a connection is not forgotten.
        let honest = try address("10.0.0.1")
        for _ in 0..<10 { #expect(table.enter(honest, now: start) == nil) }
        for number in 0..<(2 * AddressTable.maximumIdle) {
            let address = try address("10.2.\(number / 256).\(number % 256)")
            #expect(table.enter(address, now: start) == nil)
            table.release(address, now: start)
        }
        #expect(table.enter(honest, now: start) == .tooManyFromOneAddress)
    }
}

@Suite struct ConnectionQuotaTests {
    private func quota(maximum: Int, perAddress: Int = .max, _ change: (inout ServerLimits) -> Void = { _ in })
        -> ConnectionQuota
    {
        var limits = ServerLimits()
        limits.maximumConnections = maximum
        limits.maximumConnectionsPerAddress = perAddress
        change(&limits)
        return ConnectionQuota(ConnectionQuota.Limits(limits, descriptors: maximum + 400, loops: 1))
    }

    @Test func oneTooManyIsRefusedUntilAnotherGoes() throws {
        let quota = quota(maximum: 2)
        func enter() -> (slot: ConnectionSlot, refusal: ConnectionQuota.Refusal?) {
            let slot = ConnectionSlot(in: quota)
            return (slot, slot.admit(nil, now: start, makingRoom: { false }))
        }
        let first = enter()
        #expect(first.refusal == nil && enter().refusal == nil)
        #expect(enter().refusal == .tooMany)
        #expect(quota.total == 2)
        first.slot.release()
        first.slot.release()
        #expect(quota.total == 1)
        #expect(enter().refusal == nil)
    }

    @Test func roomIsMadeForTheNextButNotForAnyNumber() throws {
        let quota = quota(maximum: 2)
        #expect(quota.limits.overshoot == 50)
        var made = 0
        for number in 0..<200 {
            let slot = ConnectionSlot(in: quota)
            let refusal = slot.admit(nil, now: start) {
                made += 1
                return true
            }
            #expect((refusal == nil) == (number < 52))
        }
        #expect(made == 50)
    }

    @Test func noRoomIsMadeForAClientThatIsRefusedForItsAddress() throws {
        let quota = quota(maximum: 1, perAddress: 1)
        let address = try address("10.0.0.1")
        #expect(ConnectionSlot(in: quota).admit(address, now: start, makingRoom: { false }) == nil)
        let refusal = ConnectionSlot(in: quota).admit(address, now: start) {
            Issue.record("room is made")
            return true
        }
        #expect(refusal == .tooManyFromOneAddress)
        #expect(quota.total == 1)
    }

    @Test func onlySomeExcessClientsAreNotified() {
        let quota = quota(maximum: 1)
        for _ in 0..<3 { #expect(quota.beginRefusal(maximum: 3)) }
        #expect(!quota.beginRefusal(maximum: 3))
        quota.refusalIsOver()
        #expect(quota.beginRefusal(maximum: 3))
    }

    // MARK: Defaults

    @Test func byDefaultThereAreAsManyConnectionsAsDescriptorsLessAReserve() {
        let limits = ConnectionQuota.Limits(ServerLimits(), descriptors: 20_000, loops: 2)
        #expect(limits.maximum == 20_000 - 64 - 1_250 - 8)
        #expect(limits.perAddress.connections == limits.maximum / 2)
        #expect(limits.perAddress.rate == RequestRate(perSecond: 100, burst: 1_000))
    }

    /// Nothing that clients cause takes a descriptor that the process needs for itself.
    @Test(arguments: [2_048, 4_096, 20_000, 65_536, 1 << 20])
    func theReserveHasRoomForAllThatIsTakenFromIt(descriptors: Int) {
        let limits = ConnectionQuota.Limits(ServerLimits(), descriptors: descriptors, loops: 2)
        let taken = [
            limits.overshoot, limits.maximumRefusals, DescriptorLimit.spares(of: descriptors),
            DescriptorLimit.margin(of: descriptors), DescriptorLimit.files(of: descriptors),
        ]
        #expect(taken.reduce(0, +) <= descriptors - limits.maximum - DescriptorLimit.fewest / 2, "\(taken)")
    }

    @Test(arguments: [1, 16, 64, 256, 1_024, 1 << 20])
    func anyNumberOfDescriptorsGivesLimitsThatWork(descriptors: Int) {
        let limits = ConnectionQuota.Limits(ServerLimits(), descriptors: descriptors, loops: 4)
        #expect(limits.maximum >= 1 && limits.perAddress.connections >= 1)
        #expect(limits.overshoot >= 1 && limits.maximumRefusals >= 1)
    }

    @Test func noLimitIsSaidExplicitly() {
        var limits = ServerLimits()
        limits.maximumConnections = .max
        var quota = ConnectionQuota.Limits(limits, descriptors: 1_024, loops: 2)
        #expect(quota.maximum == .max && quota.perAddress.connections == .max)
        limits.maximumConnectionsPerAddress = 10
        quota = ConnectionQuota.Limits(limits, descriptors: nil, loops: 2)
        #expect(quota.maximum == .max && quota.perAddress.connections == 10)
        limits = ServerLimits()
        limits.maximumConnectionsPerAddress = .max
        limits.connectionRatePerAddress = nil
        quota = ConnectionQuota.Limits(limits, descriptors: 1_024, loops: 2)
        #expect(!quota.perAddress.isNeeded && quota.maximum < 1_024)
    }
}
