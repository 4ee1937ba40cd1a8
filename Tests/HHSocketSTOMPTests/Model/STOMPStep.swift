// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport

@testable import HHSocketSTOMP

/// One step of a history, by the user, the broker or the network.
enum STOMPStep: CustomStringConvertible {
    enum Mood: Int { case accepts, refusesConnections, isAway, isSilent, hangsUp }
    enum Style: Int { case awaited, completion, forgotten }
    enum End: Int { case fin, reset, loss }

    case connect
    case disconnect
    case send(count: Int, length: Int, receipt: Bool, Style)
    case cancel(choice: Int)
    case subscribe(destination: Int, STOMPAckMode, window: Int?)
    case unsubscribe(choice: Int)
    case publish(destination: Int, count: Int)
    case settle(choice: Int, isAck: Bool, receipt: Bool)
    case transaction(sends: Int, settles: Int, commits: Bool)
    case end(End)
    /// The broker ends the connection with an ERROR, about the oldest frame that awaits a receipt or about nothing.
    case error(blames: Bool)
    case mood(Mood)
    case cut(Bool)
    case broker(isReading: Bool)
    case hold
    case receive
    case network(isReachable: Bool)
    case background
    case foreground
    case switchServer
    case time(milliseconds: Int)

    var description: String {
        switch self {
        case .connect: ".connect"
        case .disconnect: ".disconnect"
        case .send(let count, let length, let receipt, let style):
            ".send(count: \(count), length: \(length), receipt: \(receipt), .\(style))"
        case .cancel(let choice): ".cancel(choice: \(choice))"
        case .subscribe(let destination, let mode, let window):
            ".subscribe(destination: \(destination), .\(mode), window: \(window.map { "\($0)" } ?? "nil"))"
        case .unsubscribe(let choice): ".unsubscribe(choice: \(choice))"
        case .publish(let destination, let count): ".publish(destination: \(destination), count: \(count))"
        case .settle(let choice, let isAck, let receipt):
            ".settle(choice: \(choice), isAck: \(isAck), receipt: \(receipt))"
        case .transaction(let sends, let settles, let commits):
            ".transaction(sends: \(sends), settles: \(settles), commits: \(commits))"
        case .end(let end): ".end(.\(end))"
        case .error(let blames): ".error(blames: \(blames))"
        case .mood(let mood): ".mood(.\(mood))"
        case .cut(let isCut): ".cut(\(isCut))"
        case .broker(let isReading): ".broker(isReading: \(isReading))"
        case .hold: ".hold"
        case .receive: ".receive"
        case .network(let isReachable): ".network(isReachable: \(isReachable))"
        case .background: ".background"
        case .foreground: ".foreground"
        case .switchServer: ".switchServer"
        case .time(let milliseconds): ".time(milliseconds: \(milliseconds))"
        }
    }

    /// Returns a history of up to 60 steps, determined by the seed.
    static func script(seed: UInt64) -> [STOMPStep] {
        var generator = SeededGenerator(seed: seed)
        let count = Int.random(in: 5...60, using: &generator)
        return [.connect] + (0..<count).map { _ in self.step(&generator) }
    }

    private static func step(_ generator: inout SeededGenerator) -> STOMPStep {
        let choice = Int.random(in: 0..<10_000, using: &generator)
        func pick<T>(_ values: [T]) -> T { values[choice / 7 % values.count] }
        switch Int.random(in: 0..<100, using: &generator) {
        case 0..<16:
            let length = choice % 40 == 0 ? 70_000 + choice * 20 : choice % 300
            return .send(
                count: choice % 5 == 0 ? 12 : 1 + choice % 2,
                length: length,
                receipt: choice % 2 == 0,
                pick([.awaited, .awaited, .completion, .forgotten])
            )
        case 16..<19: return .cancel(choice: choice)
        case 19..<30:
            return .subscribe(
                destination: choice % 5,
                pick(STOMPAckMode.allCases),
                window: choice % 3 == 0 ? 1 + choice % 4 : nil
            )
        case 30..<33: return .unsubscribe(choice: choice)
        case 33..<43: return .publish(destination: choice % 5, count: choice % 9 == 0 ? 300 : 1 + choice % 6)
        case 43..<57: return .settle(choice: choice, isAck: choice % 4 != 0, receipt: choice % 3 == 0)
        case 57..<62: return .transaction(sends: choice % 3, settles: choice / 3 % 3, commits: choice % 4 != 0)
        case 62..<67: return .end(pick([.fin, .reset, .loss]))
        case 67..<69: return .error(blames: choice % 2 == 0)
        case 69..<72: return .mood(pick([.accepts, .accepts, .refusesConnections, .isAway, .isSilent, .hangsUp]))
        case 72..<75: return .cut(choice % 2 == 0)
        case 75..<77: return .broker(isReading: choice % 3 != 0)
        case 77..<79: return .hold
        case 79..<82: return .receive
        case 82..<84: return .network(isReachable: choice % 3 != 0)
        case 84: return .background
        case 85: return .foreground
        case 86: return .switchServer
        case 87..<89: return .connect
        case 89: return .disconnect
        default: return .time(milliseconds: pick([1, 50, 700, 3_100, 7_000, 21_000]))
        }
    }
}
