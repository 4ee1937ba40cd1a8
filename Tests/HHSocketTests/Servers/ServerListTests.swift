// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

@testable import HHSocket

@Suite struct ServerListTests {
    let start = NIODeadline.uptimeNanoseconds(1_000_000_000_000)
    private func at(_ seconds: Int64) -> NIODeadline { self.start + .seconds(seconds) }
    private var generator = SeededGenerator(seed: 1)

    private func list(_ policy: ServerPolicy = ServerPolicy()) -> ServerList {
        ServerList([serverA, serverB, serverC, serverA], policy: policy)
    }

    @Test func equalsAreTriedInTheListsOrderEachOnce() {
        var generator = self.generator
        #expect(self.list().round(now: self.start, using: &generator) == [serverA, serverB, serverC])
    }

    @Test func serversThatTheUserAsksForAreBounded() {
        var generator = self.generator
        var list = self.list()
        for port in 1...1_000 {
            let endpoint = Endpoint(host: "asked-for", port: port)
            list.prefer(endpoint)
            #expect(list.round(now: self.start, using: &generator).first == endpoint)
        }
        #expect(list.count == 3 + ServerList.maximumRequested)
        #expect([serverA, serverB, serverC].allSatisfy(list.contains))
    }

    @Test func recentFailuresCountAndOldOnesDoNot() {
        var generator = self.generator
        var list = self.list()
        list.failed(serverA, now: self.start, using: &generator)
        #expect(list.round(now: self.at(1), using: &generator) == [serverB, serverC, serverA])
        #expect(list.round(now: self.at(601), using: &generator) == [serverA, serverB, serverC])
    }

    @Test func failuresInARowBanForAGrowingTimeWithACap() {
        var generator = self.generator
        var list = self.list()
        var now = self.start
        var bans: [Int64] = []
        for _ in 0..<3 { list.failed(serverA, now: now, using: &generator) }
        for _ in 0..<10 {
            #expect(list.isBanned(serverA, now: now))
            #expect(!list.round(now: now, using: &generator).contains(serverA))
            let begin = now
            while list.isBanned(serverA, now: now) { now = now + .milliseconds(100) }
            bans.append((now - begin).nanoseconds / 1_000_000_000)
            // On probation: tried after the trusted ones, and one failure is enough.
            #expect(list.round(now: now, using: &generator).last == serverA)
            list.failed(serverA, now: now, using: &generator)
        }
        #expect((7...15).contains(bans[0]), "\(bans)")
        #expect((15...30).contains(bans[1]), "\(bans)")
        #expect((30...60).contains(bans[2]), "\(bans)")
        #expect(bans.allSatisfy { $0 <= 300 } && bans.suffix(4).allSatisfy { $0 >= 150 }, "\(bans)")
    }

    @Test func stableConnectionMakesAServerTrustedAgain() {
        var generator = self.generator
        var list = self.list()
        for _ in 0..<3 { list.failed(serverA, now: self.start, using: &generator) }
        list.proved(serverA, now: self.at(20))
        list.failed(serverA, now: self.at(21), using: &generator)
        #expect(!list.isBanned(serverA, now: self.at(21)))
    }

    @Test func whereAllAreBannedNoneIs() {
        var generator = self.generator
        var list = self.list()
        for server in [serverC, serverA, serverB] {
            for _ in 0..<3 { list.failed(server, now: self.start, using: &generator) }
        }
        #expect(Set(list.round(now: self.at(1), using: &generator)) == [serverA, serverB, serverC])
    }

    @Test func replacingKeepsWhatIsKnownOfThoseThatStay() {
        var generator = self.generator
        var list = self.list()
        for _ in 0..<3 { list.failed(serverA, now: self.start, using: &generator) }
        list.replace(with: [serverA, serverB])
        #expect(list.round(now: self.at(1), using: &generator) == [serverB])
        list.replace(with: [serverC])
        #expect(list.round(now: self.at(1), using: &generator) == [serverC])
    }

    @Test func usersWishForgivesAndComesFirst() {
        var generator = self.generator
        var list = self.list()
        for _ in 0..<3 { list.failed(serverC, now: self.start, using: &generator) }
        list.prefer(serverC)
        #expect(list.round(now: self.at(1), using: &generator) == [serverC, serverA, serverB])
    }

    @Test func equalsMayBeShuffled() {
        var generator = self.generator
        let list = self.list(ServerPolicy(shufflesEquals: true))
        let firsts = Set((0..<50).compactMap { _ in list.round(now: self.start, using: &generator).first })
        #expect(firsts.count == 3)
    }

    @Test(arguments: [true, false]) func listThatIsFoundAgainKeepsThePositionOfTheNextRound(keepsStart: Bool) {
        var generator = self.generator
        var list = self.list()
        list.passOver(serverA)
        list.replace(with: [serverC, serverA, serverB], keepsStart: keepsStart)
        let order = list.round(now: self.start, using: &generator)
        #expect(order == (keepsStart ? [serverB, serverC, serverA] : [serverC, serverA, serverB]))
        list.prefer(serverA)
        list.replace(with: [serverC, serverB], keepsStart: keepsStart)
        #expect(list.round(now: self.start, using: &generator) == [serverC, serverB])
    }
}
