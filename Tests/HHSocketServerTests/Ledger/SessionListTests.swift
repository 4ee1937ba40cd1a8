// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import Testing

@testable import HHSocketServer

@Suite struct SessionListTests {
    private final class Session {
        let number: Int
        var visits = 0
        init(_ number: Int) { self.number = number }
    }

    @Test func permanentMembersAreAlwaysVisited() {
        var random = SplitMix(seed: 7)
        for _ in 0..<200 {
            var list = SessionList<Session>()
            var next = 0
            func append() {
                list.append(Session(next))
                next += 1
            }
            for _ in 0..<Int.random(in: 0...50, using: &random) { append() }
            var faithful = list.all
            var position = list.count
            repeat {
                let slice = list.slice(before: position, count: 7)
                #expect(slice.sessions.count <= 7)
                for session in slice.sessions { session.visits += 1 }
                position = slice.position
                for _ in 0..<Int.random(in: 0...4, using: &random) {
                    if Bool.random(using: &random) {
                        append()
                    } else if let gone = list.all.randomElement(using: &random) {
                        #expect(list.remove(gone) == true)
                        #expect(list.remove(gone) == false)
                        faithful.removeAll { $0 === gone }
                    }
                }
            } while position > 0
            #expect(faithful.allSatisfy { $0.visits >= 1 })
        }
    }

    /// A peer is added when it arrives, and again when it is open.
    @Test func sessionsThatAreAddedAgainKeepTheirPositions() {
        var random = SplitMix(seed: 8)
        for _ in 0..<200 {
            var list = SessionList<Session>()
            var expected: [Session] = []
            for number in 0..<100 {
                switch (Int.random(in: 0..<3, using: &random), expected.randomElement(using: &random)) {
                case (0, let session?):
                    list.append(session)
                case (1, let session?):
                    #expect(list.remove(session) == true)
                    #expect(list.remove(session) == false)
                    expected.removeAll { $0 === session }
                default:
                    let session = Session(number)
                    list.append(session)
                    expected.append(session)
                }
                #expect(Set(list.all.map(\.number)) == Set(expected.map(\.number)))
                #expect(list.count == expected.count)
            }
        }
    }
}
