// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// The order in which clients are authenticated.
@Suite struct AuthenticationLineTests {
    private static func origin(_ number: Int) -> AuthenticationLine.Origin {
        number == 0 ? nil : .init(try? SocketAddress(ipAddress: "10.0.0.\(number)", port: 1))
    }

    /// The ticket of an arrival, if it was accepted.
    private static func ticket(_ arrival: AuthenticationLine.Arrival) -> AuthenticationLine.Ticket? {
        switch arrival {
        case .runs(let ticket), .waits(let ticket, _): ticket
        case .refused: nil
        }
    }

    @Test func someRunOthersWaitAndTheRestIsRefused() {
        var line = AuthenticationLine(maximumRunning: 2, maximumWaiting: 1)
        let arrivals = (0..<4).map { _ in line.arrive(from: Self.origin(1)) }
        #expect(arrivals == [.runs(1), .runs(2), .waits(3, insteadOf: nil), .refused])
        #expect(line.returned() == 3)
        #expect(line.returned() == nil)
        #expect(line.arrive(from: Self.origin(1)) == .runs(5))
    }

    @Test func addressesAlternate() {
        var line = AuthenticationLine(maximumRunning: 1, maximumWaiting: 100)
        _ = line.arrive(from: Self.origin(1))
        let many = (0..<10).map { _ in Self.ticket(line.arrive(from: Self.origin(1))) }
        let single = Self.ticket(line.arrive(from: Self.origin(2)))
        #expect(line.returned() == many[0])
        #expect(line.returned() == single)
        #expect(line.returned() == many[1])
    }

    @Test func whereTooManyWaitOneOfTheAddressWithMostGoes() {
        var line = AuthenticationLine(maximumRunning: 1, maximumWaiting: 4)
        _ = line.arrive(from: Self.origin(1))
        let many = (0..<4).map { _ in Self.ticket(line.arrive(from: Self.origin(1))) }
        #expect(line.arrive(from: Self.origin(1)) == .refused)
        #expect(line.arrive(from: Self.origin(2)) == .waits(7, insteadOf: many[3]))
        #expect(line.arrive(from: Self.origin(3)) == .waits(8, insteadOf: many[2]))
        // Two, one and one: no address has more places than a newcomer's address would have.
        #expect(line.arrive(from: Self.origin(2)) == .refused)
        #expect(line.arrive(from: Self.origin(4)) == .waits(10, insteadOf: many[1]))
        #expect(line.arrive(from: Self.origin(5)) == .refused)
    }

    @Test func abandonedAuthenticationKeepsItsSlotWhileItRuns() {
        var line = AuthenticationLine(maximumRunning: 1, maximumWaiting: 1)
        #expect(line.arrive(from: nil) == .runs(1))
        #expect(line.giveUp(1) == false)
        #expect(line.arrive(from: nil) == .waits(2, insteadOf: nil))
        #expect(line.giveUp(2) == true)
        #expect(line.giveUp(2) == false)
        #expect(line.returned() == nil)
        #expect(line.runningCount == 0)
    }

    /// For example when clients send hello and disconnect, while no authentication returns.
    @Test func abandonedAuthenticationKeepsNothing() {
        var line = AuthenticationLine(maximumRunning: 1, maximumWaiting: 10)
        _ = line.arrive(from: nil)
        let stays = Self.ticket(line.arrive(from: Self.origin(1)))
        for number in 0..<100_000 {
            let origin = number.isMultiple(of: 2) ? Self.origin(number % 200 + 1) : Self.origin(1)
            guard let ticket = Self.ticket(line.arrive(from: origin)) else {
                Issue.record("there is room")
                return
            }
            #expect(line.giveUp(ticket) == true)
            #expect(line.entryCount < 200)
        }
        #expect(line.waitingCount == 1)
        #expect(line.returned() == stays)
    }

    /// A simple model to compare with: lists that are searched.
    private struct Model {
        var running: Set<AuthenticationLine.Ticket> = []
        var waiting: [(ticket: AuthenticationLine.Ticket, origin: Int)] = []

        func count(_ origin: Int) -> Int { self.waiting.count { $0.origin == origin } }
        var largest: Int { Set(self.waiting.map(\.origin)).map { self.count($0) }.max() ?? 0 }
    }

    @Test func randomHistoriesKeepThePromises() {
        for seed in 0..<UInt64(min(historyCount, 20_000) / 4) {
            var random = SeededGenerator(seed: seed)
            let maximumRunning = Int.random(in: 1...4, using: &random)
            let maximumWaiting = Int.random(in: 0...8, using: &random)
            let origins = Int.random(in: 1...5, using: &random)
            var line = AuthenticationLine(maximumRunning: maximumRunning, maximumWaiting: maximumWaiting)
            var model = Model()
            /// The number of turns of each address since the arrival of another's oldest waiting client.
            var served: [Int: [Int: Int]] = [:]
            for _ in 0..<120 {
                switch Int.random(in: 0..<6, using: &random) {
                case 0..<3:
                    let origin = Int.random(in: 0..<origins, using: &random)
                    let (own, largest) = (model.count(origin), model.largest)
                    switch line.arrive(from: Self.origin(origin)) {
                    case .runs(let ticket):
                        #expect(model.running.count < maximumRunning && model.waiting.isEmpty)
                        model.running.insert(ticket)
                    case .waits(let ticket, let displaced):
                        #expect(model.running.count == maximumRunning)
                        if let displaced {
                            #expect(model.waiting.count == maximumWaiting)
                            guard let index = model.waiting.firstIndex(where: { $0.ticket == displaced }) else {
                                Issue.record("seed \(seed): \(displaced) did not wait")
                                return
                            }
                            let loser = model.waiting.remove(at: index)
                            #expect(model.count(loser.origin) + 1 == largest && own + 1 < largest)
                            #expect(!model.waiting.contains { $0.origin == loser.origin && $0.ticket > displaced })
                        } else {
                            #expect(model.waiting.count < maximumWaiting)
                        }
                        model.waiting.append((ticket, origin))
                        if own == 0 { served[origin] = [:] }
                    case .refused:
                        #expect(model.waiting.count == maximumWaiting && own + 1 >= largest)
                    }
                case 3..<5:
                    guard let ended = model.running.randomElement(using: &random) else { continue }
                    model.running.remove(ended)
                    guard let next = line.returned() else {
                        #expect(model.waiting.isEmpty)
                        continue
                    }
                    guard let index = model.waiting.firstIndex(where: { $0.ticket == next }) else {
                        Issue.record("seed \(seed): \(next) did not wait")
                        return
                    }
                    let origin = model.waiting.remove(at: index).origin
                    // The client is the oldest of its address, and no address has had more than one turn while another
                    // waited.
                    #expect(!model.waiting.contains { $0.origin == origin && $0.ticket < next })
                    for other in Set(model.waiting.map(\.origin)) where other != origin {
                        served[other, default: [:]][origin, default: 0] += 1
                        #expect(served[other]?[origin] ?? 0 <= 1, "seed \(seed): \(origin) has come before \(other)")
                    }
                    served[origin] = [:]
                    model.running.insert(next)
                default:
                    let all = model.running.sorted() + model.waiting.map(\.ticket)
                    guard let ticket = all.randomElement(using: &random) else { continue }
                    let waits = model.waiting.contains { $0.ticket == ticket }
                    #expect(line.giveUp(ticket) == waits)
                    model.waiting.removeAll { $0.ticket == ticket }
                }
                #expect(line.runningCount == model.running.count)
                #expect(line.waitingCount == model.waiting.count)
                #expect(model.running.count <= maximumRunning && model.waiting.count <= maximumWaiting)
            }
        }
    }
}
