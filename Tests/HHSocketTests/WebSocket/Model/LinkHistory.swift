// SPDX-License-Identifier: Apache-2.0
import HHSocketTesting
import TestSupport

@testable import HHSocket
@testable import HHSocketLink

/// A step of a link's history.
enum LinkStep: Sendable, CustomStringConvertible {
    case connect
    case disconnect(code: UInt16, hasReason: Bool)
    case send(length: Int, isText: Bool, SentMessage.Style, count: Int)
    /// Cancels a waiting sender, which `choice` selects.
    case cancel(choice: Int)
    case ping
    /// Servers have this mood from now on.
    case mood(ServerMood)
    /// Answers the waiting request, with these items in the same read.
    case acceptOpening([ServerItem])
    /// The server sends these items, usually in one read.
    case server([ServerItem])
    /// The server sends many short messages.
    case flood(Int)
    case end(SimulatedPeer.End)
    case stopReading
    /// The server reads a number of bytes; nil for all from now on.
    case read(Int?)
    case cut(Bool)
    case network(Bool)
    case background, foreground
    /// The reader of messages takes none, a number of them, or all.
    case hold
    case receive(Int?)
    case switchServer
    case time(Int)

    var description: String {
        switch self {
        case .connect: "connect"
        case .disconnect(let code, _): "disconnect \(code)"
        case .send(let length, let isText, let style, let count):
            "send \(count) x \(length)\(isText ? " as text" : "") (\(style))"
        case .cancel(let choice): "cancel \(choice)"
        case .ping: "ping"
        case .mood(let mood): "the server \(mood)"
        case .acceptOpening(let items): "accept, \(items)"
        case .server(let items): "server \(items)"
        case .flood(let count): "flood of \(count)"
        case .end(let end): "end \(end)"
        case .stopReading: "stop reading"
        case .read(let count): "read \(count.map { "\($0)" } ?? "on")"
        case .cut(let isCut): isCut ? "cut" : "mend"
        case .network(let isReachable): "network \(isReachable)"
        case .background: "background"
        case .foreground: "foreground"
        case .hold: "hold"
        case .receive(let count): "receive \(count.map { "\($0)" } ?? "on")"
        case .switchServer: "switch"
        case .time(let milliseconds): "\(milliseconds) ms"
        }
    }
}

/// Random histories of a link.
enum LinkHistory {
    static func script(seed: UInt64) -> [LinkStep] {
        var generator = SeededGenerator(seed: seed)
        let length = Int.random(in: 5...60, using: &generator)
        var script: [LinkStep] = Int.random(in: 0..<5, using: &generator) == 0 ? [] : [.connect]
        for _ in 0..<length { script.append(self.step(seed, &generator)) }
        return script
    }

    private static func step(_ seed: UInt64, _ generator: inout SeededGenerator) -> LinkStep {
        let choice = Int.random(in: 0..<1_000, using: &generator)
        switch Int.random(in: 0..<118, using: &generator) {
        case 0..<6: return .connect
        case 6..<9: return .disconnect(code: [1_000, 3_000, 4_321][choice % 3], hasReason: choice % 2 == 0)
        case 9..<32: return self.send(seed, choice, &generator)
        case 32..<36: return .cancel(choice: choice)
        case 36..<40: return .ping
        case 40..<47: return .mood(self.mood(&generator))
        case 47..<51: return .acceptOpening(choice % 2 == 0 ? [] : self.items(&generator))
        case 51..<66: return .server(self.items(&generator))
        case 66: return .flood(choice)
        case 67..<70:
            let ends: [SimulatedPeer.End] = [.fin, .fin, .reset(loses: true), .reset(loses: false), .onWrite]
            return .end(ends[choice % 5])
        case 70..<76: return .stopReading
        case 76..<80: return .read(choice % 2 == 0 ? nil : choice * choice / 4)
        case 80..<82: return .cut(true)
        case 82..<84: return .cut(false)
        case 84..<87: return .network(choice % 3 != 0)
        case 87: return .background
        case 88..<90: return .foreground
        case 90..<93: return .hold
        case 93..<97: return .receive(choice % 2 == 0 ? nil : 1 + choice % 5)
        case 97: return .switchServer
        default:
            let most = choice % 3 == 0 ? 25_000 : 2_000
            return .time(Int.random(in: 1...most, using: &generator))
        }
    }

    private static func send(_ seed: UInt64, _ choice: Int, _ generator: inout SeededGenerator) -> LinkStep {
        var length = 6 + choice % 400
        // Long messages are sent in fragments; they are rare, since they take time.
        if seed % 5 == 0, choice % 6 == 0 { length = 60_000 + choice * 200 }
        if seed % 5 == 3 { length = 6 + choice * 2 }
        // With these settings the test does not know which messages have room.
        var styles: [SentMessage.Style] = [.awaited, .completion]
        if seed % 4 == 2 { styles.append(.forgotten) }
        let style = styles[Int.random(in: 0..<styles.count, using: &generator)]
        let count = Int.random(in: 0..<4, using: &generator) == 0 ? 1 + choice % 8 : 1
        return .send(length: length, isText: choice % 2 == 0, style, count: length > 1_000 ? min(count, 2) : count)
    }

    private static func mood(_ generator: inout SeededGenerator) -> ServerMood {
        var mood = ServerMood()
        let choice = Int.random(in: 0..<1_000, using: &generator)
        switch choice % 12 {
        case 0: mood.opening = .refusesConnections
        case 1: mood.opening = .isAway
        case 2: mood.opening = .refuses(503, retryAfter: choice / 12)
        case 3: mood.opening = .refuses(401, retryAfter: nil)
        case 4: mood.opening = .talksNonsense
        case 5: mood.opening = .hangsUp
        case 6, 7: mood.opening = .acceptsLater
        default: break
        }
        mood.answersPings = choice % 5 != 0
        mood.answersCloses = choice % 7 != 0
        mood.capacity = [40, 500, 5_000, 200_000][choice / 12 % 4]
        return mood
    }

    private static func items(_ generator: inout SeededGenerator) -> [ServerItem] {
        (0..<Int.random(in: 1...4, using: &generator)).map { _ in
            let choice = Int.random(in: 0..<1_000, using: &generator)
            switch Int.random(in: 0..<24, using: &generator) {
            case 0..<12:
                let length = choice % 50 == 0 ? 70_000 : 6 + choice % 300
                return .message(isText: choice % 2 == 0, length: length, fragments: choice % 5 == 0 ? 3 : 1)
            case 12..<15: return .ping
            case 15: return .pong
            case 16..<20: return .request(count: 1 + choice % 3)
            case 20..<23:
                let codes: [UInt16?] = [nil, 1_000, 1_001, 1_002, 1_008, 1_011, 1_012, 3_000, 3_500, 4_000, 4_500]
                return .close(codes[choice % codes.count])
            default: return .violation(choice % ServerItem.violations.count)
            }
        }
    }

    /// Runs a script.
    ///
    /// - Returns: The promise that was broken, if one was.
    static func run(
        _ script: [LinkStep],
        seed: UInt64,
        flaw: ((inout LinkWorldSettings) -> Void)? = nil
    ) -> String? {
        var settings = LinkWorldSettings(seed: seed)
        flaw?(&settings)
        do {
            let world = try LinkWorld(settings, seed: seed)
            for (number, step) in script.enumerated() {
                guard let broken = world.take(step) else { continue }
                _ = world.end(heals: false)
                return "step \(number), \(step): \(broken)"
            }
            return world.end(heals: seed % 3 != 0).map { "at the end: \($0)" }
        } catch {
            return "no world: \(error)"
        }
    }
}
