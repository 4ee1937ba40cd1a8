// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOConcurrencyHelpers
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

@Suite struct ShardedSumTests {
    @Test func valueIsShortOfLessThanAStepForEachShard() {
        var random = SplitMix(seed: 1)
        let sum = ShardedSum(shards: 3, step: 100)
        var expected = 0
        for _ in 0..<10_000 {
            let change = Int.random(in: -90...100, using: &random)
            sum.add(change, shard: Int.random(in: 0..<3, using: &random))
            expected += change
            #expect(sum.exactValue == expected)
            #expect(abs(sum.value - expected) < 300)
        }
    }

    @Test func smallStepPassesOnAll() {
        let sum = ShardedSum(shards: 2, step: 0)
        sum.add(1, shard: 0)
        sum.add(1, shard: 1)
        #expect(sum.value == 2)
    }

    @Test func threadsLoseNothing() async {
        let sum = ShardedSum(shards: 2, step: 7)
        await withTaskGroup(of: Void.self) { group in
            for task in 0..<4 {
                group.addTask { for number in 0..<10_000 { sum.add(number % 2 == 0 ? 3 : -2, shard: task % 2) } }
            }
        }
        #expect(sum.exactValue == 20_000)
        #expect(abs(sum.value - 20_000) < 14)
    }
}

@Suite struct StandingTests {
    private func standing(_ bytes: Int, of principal: Int? = nil, stall: Int64 = 0) -> Standing {
        Standing(bytes: bytes, principalBytes: principal ?? bytes, stall: .seconds(stall))
    }

    @Test func largestHolderIsClosedFirst() {
        let standings = [self.standing(100), self.standing(300), self.standing(200)]
        #expect(Standing.victims(among: standings, toFree: 1, holdingMoreThan: 0) == [1])
        #expect(Standing.victims(among: standings, toFree: 301, holdingMoreThan: 0) == [1, 2])
        #expect(Standing.victims(among: standings, toFree: 10_000, holdingMoreThan: 0) == [1, 2, 0])
        #expect(Standing.victims(among: standings, toFree: 10_000, holdingMoreThan: 100) == [1, 2])
        #expect(Standing.victims(among: [], toFree: 1, holdingMoreThan: 0) == [])
    }

    @Test func manyConnectionsOfOneAddressGoBeforeOneThatHoldsMore() {
        let crowd = (0..<400).map { _ in self.standing(100 << 10, of: 400 * 100 << 10) }
        let victims = Standing.victims(
            among: [self.standing(1 << 20)] + crowd,
            toFree: 5 << 20,
            holdingMoreThan: 32 << 10
        )
        #expect(!victims.contains(0))
        #expect(victims.count == 52)
    }

    @Test func connectionsThatHoldNothingAreClosedOnlyIfNoOtherIsLeft() {
        let idle = (0..<3).map {
            Standing(bytes: 0, baseCost: 64 << 10, principalBytes: 64 << 10, stall: .seconds(3_600 - $0))
        }
        let holder = self.standing(1 << 20)
        #expect(Standing.victims(among: idle + [holder], toFree: 4 << 20, holdingMoreThan: 32 << 10) == [3])
        #expect(Standing.victims(among: idle, toFree: 100 << 10, holdingMoreThan: 32 << 10) == [0, 1])
    }

    @Test func ofTwoThatHoldTheSameTheOneThatProgressesStays() {
        let standings = [self.standing(1 << 20), self.standing(1 << 20, stall: 5)]
        #expect(Standing.victims(among: standings, toFree: 1, holdingMoreThan: 0) == [1])
    }
}

@Suite struct MemoryReturnTests {
    @Test func memoryThatWasKeptWithoutBeingChargedIsReturned() {
        var memory = MemoryReturn()
        var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        var returns = 0
        for _ in 0..<9 {
            // One connection after the other frees its buffers.
            if memory.isDue(bytes: 8_192, freed: 1 << 20, now: now) { returns += 1 }
            now = now + .seconds(1)
        }
        #expect(returns >= 2)
        #expect(MemoryReturn.minimumBytes == 4 << 20)
    }

    @Test func memoryIsReturnedOnceMuchLessIsHeldThanBefore() {
        var memory = MemoryReturn()
        let mebibyte = 1 << 20
        var now = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
        #expect(memory.isDue(bytes: 0, now: now) == false)
        #expect(memory.isDue(bytes: 100 * mebibyte, now: now) == false)
        #expect(memory.isDue(bytes: 97 * mebibyte, now: now) == false)
        #expect(memory.isDue(bytes: 50 * mebibyte, now: now) == true)
        // Memory is returned at most every few seconds, and only if enough was freed.
        #expect(memory.isDue(bytes: 10 * mebibyte, now: now + .seconds(1)) == false)
        for _ in 0..<3 {
            now = now + .seconds(3)
            #expect(memory.isDue(bytes: 10 * mebibyte, now: now) == true)
        }
        // Only memory freed since the last return counts.
        #expect(memory.isDue(bytes: 7 * mebibyte, now: now + .seconds(10)) == false)
    }
}

@Suite struct LedgerTests {
    /// Otherwise the units of clients that are being closed would fill what is left, and others would be refused.
    @Test func longUnitsAreReadSlowlyBeforeRequestsAreRefused() {
        var limits = ServerLimits()
        limits.maximumBufferedBytes = 64 << 20
        let ledger = Ledger(limits, shards: 1)
        defer { ledger.end() }
        let account = LedgerAccount(ledger, shard: 0, baseCost: 0)
        ledger.add(55 << 20, shard: 0)
        #expect(account.pauseInLongUnits == nil)
        ledger.add(2 << 20, shard: 0)
        #expect(account.pauseInLongUnits != nil && !ledger.isFull)
        ledger.add(-2 << 20, shard: 0)
        #expect(account.pauseInLongUnits == nil)
    }

    /// It would be refused for what others are read once more before they are closed.
    @Test func connectionThatHoldsLittleMayExceedTheLimitByASixteenth() {
        let ledger = self.ledger(bytes: 64 << 20)
        defer { ledger.end() }
        let (heavy, light) = (
            LedgerAccount(ledger, shard: 0, baseCost: 0), LedgerAccount(ledger, shard: 0, baseCost: 0)
        )
        heavy.held(300 << 10)
        ledger.add(64 << 20, shard: 0)
        #expect(heavy.isFull && !light.isFull)
        #expect(light.hasRoom(for: 256 << 10) && !light.hasRoom(for: 257 << 10))
        ledger.add(4 << 20, shard: 0)
        #expect(light.isFull)
    }

    /// A connection that records that it was asked to close.
    private final class Holder: LedgerHolder {
        private let isAsked = NIOLockedValueBox(false)
        var isEvicted: Bool { self.isAsked.withLockedValue { $0 } }
        func evict() { self.isAsked.withLockedValue { $0 = true } }
    }

    private func address(_ last: UInt8) throws -> ClientAddress? {
        ClientAddress(try SocketAddress(ipAddress: "192.0.2.\(last)", port: 1))
    }

    private func ledger(bytes: Int = 1 << 30, perConnection: Int = 64 << 20, inFlight: Int = 1_000) -> Ledger {
        var limits = ServerLimits()
        limits.maximumBufferedBytes = bytes
        limits.maximumBufferedBytesPerConnection = perConnection
        limits.maximumInFlight = inFlight
        return Ledger(limits, shards: 2)
    }

    /// Open connections of different addresses, on both shards in turn.
    private func connections(_ count: Int, of ledger: Ledger) throws -> ([LedgerAccount], [Holder]) {
        let holders = (0..<count).map { _ in Holder() }
        let accounts = holders.indices.map { LedgerAccount(ledger, shard: $0 % 2, baseCost: 1) }
        for (number, account) in accounts.enumerated() {
            account.open(from: try self.address(UInt8(number)), holder: holders[number])
        }
        return (accounts, holders)
    }

    @Test func everySumKnowsWhatIsHeldAndIsGivenItBack() throws {
        let ledger = self.ledger()
        let one = try #require(try self.address(1))
        let key = ledger.principals.enter(.address(one))
        do {
            let accounts = (0..<2).map { LedgerAccount(ledger, shard: $0, baseCost: 8 << 10) }
            for account in accounts { account.open(from: one, holder: Holder()) }
            #expect((ledger.bytes, ledger.connectionBytes, key.bytes) == (16 << 10, 16 << 10, 16 << 10))
            accounts[0].held(100_000)
            #expect((accounts[0].bytes, ledger.bytes, key.bytes) == (108_192, 116_384, 116_384))
            // A small change is reported later.
            accounts[0].held(100)
            #expect((accounts[0].bytes, ledger.bytes) == (108_292, 116_384))
            accounts[0].settle()
            #expect((ledger.bytes, key.bytes) == (116_484, 116_484))
            accounts[0].setIdentity("alice")
            accounts[0].setIdentity(nil)
            // A handler holds the bytes after the end of the connection.
            accounts[0].close()
            accounts[0].close()
            #expect((ledger.bytes, ledger.connectionBytes) == (108_292, 8_192))
            accounts[0].held(-100_000)
        }
        #expect((ledger.bytes, ledger.connectionBytes, key.bytes) == (8_192, 8_192, 8_192) || ledger.bytes == 0)
        ledger.principals.release(key)
        ledger.end()
    }

    @Test func principalsAreForgottenWithTheirLastConnection() throws {
        let ledger = self.ledger()
        let accounts = (0..<3).map { LedgerAccount(ledger, shard: $0 % 2, baseCost: 1) }
        for (number, account) in accounts.enumerated() {
            account.open(from: try self.address(UInt8(number / 2)), holder: Holder())
            account.setIdentity("alice")
        }
        #expect(ledger.principals.count == 3)
        for account in accounts { account.close() }
        withExtendedLifetime(accounts) {}
        ledger.end()
    }

    @Test func requestsInFlightAreBounded() {
        let ledger = self.ledger(inFlight: 2)
        let accounts = (0..<2).map { LedgerAccount(ledger, shard: $0, baseCost: 1) }
        #expect(accounts.allSatisfy { $0.startRequest() })
        #expect(!accounts[0].startRequest())
        accounts[1].finishedRequest()
        #expect(accounts[0].startRequest())
        #expect(ledger.requestsInFlight == 2)
        ledger.end()
    }

    @Test func largestHolderIsClosedBeforeTheLimitIsReached() async throws {
        let ledger = self.ledger(bytes: 100 << 20)
        let (accounts, holders) = try self.connections(4, of: ledger)
        for (account, mebibytes) in zip(accounts, [10, 40, 20, 10]) { account.held(mebibytes << 20) }
        #expect(!holders.contains { $0.isEvicted })
        accounts[0].held(9 << 20)
        try await eventually("the end of the second") { holders[1].isEvicted }
        #expect(!accounts[0].isFull)
        accounts[1].held(-40 << 20)
        accounts[1].close()
        // One eviction was enough.
        try await eventually("the end of evictions") { !ledger.isClosingConnections }
        #expect(holders.map(\.isEvicted) == [false, true, false, false])
        // The limit is exceeded again.
        accounts[0].held(40 << 20)
        try await eventually("the end of the first") { holders[0].isEvicted }
        accounts[0].close()
        accounts[0].held(-59 << 20)
        ledger.end()
    }

    /// Neither a client that does not close its side nor a handler that does not return has others closed.
    @Test func memoryThatIsReleasedSlowlyIsNotFreedTwice() async throws {
        let ledger = self.ledger(bytes: 100 << 20)
        let (accounts, holders) = try self.connections(4, of: ledger)
        for (account, mebibytes) in zip(accounts, [10, 40, 20, 19]) { account.held(mebibytes << 20) }
        try await eventually("the end of the second") { holders[1].isEvicted }
        // Its connection ends, and its handlers return later, round after round.
        accounts[1].close()
        for _ in 1...8 {
            try await Task.sleep(for: .milliseconds(25))
            accounts[1].held(-4 << 20)
        }
        try await eventually("the end of evictions") { !ledger.isClosingConnections }
        #expect(holders.map(\.isEvicted) == [false, true, false, false])
        ledger.end()
    }

    @Test func limitOfAConnectionIsItsOwn() throws {
        let ledger = self.ledger(perConnection: 1 << 20)
        let accounts = (0..<2).map { LedgerAccount(ledger, shard: $0, baseCost: 1) }
        accounts[0].held(1 << 20)
        #expect(accounts[0].hasRoom(for: 0) && !accounts[0].hasRoom(for: 1) && !accounts[0].isFull)
        accounts[0].held(1)
        #expect(accounts[0].isFull && !accounts[1].isFull)
        ledger.end()
    }
}
