// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport

/// Random histories of a client's and a server's streams.
enum StreamHistory {
    enum Step: CustomStringConvertible {
        case open(StreamKind, FramePriority, Int)
        case send(Int, length: Int, isUp: Bool)
        case take(Int, Int, isUp: Bool)
        case widen(Int, window: UInt32, isUp: Bool)
        case finish(Int)
        case answer(Int, length: Int)
        case cancel(Int)
        case call(Int)
        case push(Int)
        case pump(Int, isUp: Bool)
        case deliver(Int, isUp: Bool)
        case pass(Int)
        case damage(isUp: Bool)
        case drain, endPatience, halfClose, lose

        var description: String {
            switch self {
            case .open(let kind, let priority, let length):
                "open(\(kind.clientStreams), \(kind.serverStreams), \(priority.rawValue), \(length))"
            case .send(let index, let length, let isUp): "send(\(index), \(length), \(isUp ? "up" : "down"))"
            case .take(let index, let count, let isUp): "take(\(index), \(count), \(isUp ? "up" : "down"))"
            case .widen(let index, let window, let isUp): "widen(\(index), \(window), \(isUp ? "up" : "down"))"
            case .finish(let index): "finish(\(index))"
            case .answer(let index, let length): "answer(\(index), \(length))"
            case .cancel(let index): "cancel(\(index))"
            case .call(let length): "call(\(length))"
            case .push(let length): "push(\(length))"
            case .pump(let count, let isUp): "pump(\(count), \(isUp ? "up" : "down"))"
            case .deliver(let count, let isUp): "deliver(\(count), \(isUp ? "up" : "down"))"
            case .pass(let seconds): "pass(\(seconds))"
            case .damage(let isUp): "damage(\(isUp ? "up" : "down"))"
            case .drain: "drain"
            case .endPatience: "endPatience"
            case .halfClose: "halfClose"
            case .lose: "lose"
            }
        }
    }

    /// A history: the announcements of both sides, and the steps.
    struct Script {
        var terms: StreamTerms
        var socketBuffer: Int
        var longestItem: Int
        var steps: [Step]
    }

    private static let windows: [UInt32] = [17, 33, 100, 1_000, 8_191, 20_000, 65_552, 65_553, 131_104, 262_144]

    static func script(seed: UInt64, steps: Int = 120) -> Script {
        var generator = SeededGenerator(seed: seed)
        func number(_ range: ClosedRange<Int>) -> Int { Int.random(in: range, using: &generator) }
        func window() -> UInt32 { Self.windows[number(0...Self.windows.count - 1)] }
        let terms = StreamTerms(
            client: StreamWindows(stream: window(), connection: window()),
            server: StreamWindows(stream: window(), connection: window()),
            maximumStreams: UInt32(number(1...6))
        )
        let smallest =
            [
                terms.client.stream, terms.client.connection, terms.server.stream, terms.server.connection,
            ].min() ?? 17
        // Some items are several windows long, but not too many frames.
        let longest = min(300_000, max(60, 40 * (Int(smallest) - 16)))
        func length() -> Int {
            switch number(0...9) {
            case 0: 0
            case 1...4: number(0...min(40, longest))
            case 5...7: number(0...min(9_000, longest))
            case 8: min(longest, [65_535, 65_536, 65_537, 131_072][number(0...3)])
            default: number(0...longest)
            }
        }
        let script = (0..<steps).map { _ -> Step in
            let isUp = number(0...1) == 0
            switch number(0...199) {
            case 0..<20:
                return .open(
                    StreamKind(clientStreams: number(0...3) > 0, serverStreams: number(0...3) > 0),
                    [.low, .default, .default, .high][number(0...3)],
                    number(0...4) == 0 ? number(0...200_000) : number(0...50)
                )
            case 20..<80: return .send(number(0...7), length: length(), isUp: isUp)
            case 80..<110: return .take(number(0...7), number(1...4), isUp: isUp)
            case 110..<115: return .finish(number(0...7))
            case 115..<119:
                return .answer(number(0...7), length: number(0...3) == 0 ? number(0...150_000) : number(0...50))
            case 119..<122: return .cancel(number(0...7))
            case 122..<126: return .call(number(0...3) == 0 ? number(0...200_000) : number(0...100))
            case 126..<129: return .push(number(0...3) == 0 ? number(0...200_000) : number(0...100))
            case 129..<160: return .pump(number(1...20), isUp: isUp)
            case 160..<192: return .deliver(number(1...200) * number(1...1_000), isUp: isUp)
            case 192: return .widen(number(0...7), window: window(), isUp: isUp)
            case 193..<195: return .pass(number(1...20))
            case 195: return number(0...2) == 0 ? .damage(isUp: isUp) : .pass(1)
            case 196: return number(0...3) == 0 ? .drain : .pass(1)
            case 197: return number(0...9) == 0 ? .endPatience : .pass(1)
            case 198: return number(0...9) == 0 ? .halfClose : .pass(1)
            default: return number(0...9) == 0 ? .lose : .pass(1)
            }
        }
        return Script(
            terms: terms,
            socketBuffer: [1, 1_000, 100_000][number(0...2)],
            longestItem: longest,
            steps: script
        )
    }

    /// Runs a history. Returns the promise that it breaks; nil if it keeps all.
    static func run(_ script: Script, _ steps: [Step]? = nil, flaw: StreamFlaw? = nil) -> String? {
        var world = StreamWorld(script.terms, socketBuffer: script.socketBuffer, flaw: flaw)
        var number = 0
        var last = "the beginning"
        do {
            for step in steps ?? script.steps {
                number += 1
                last = "step \(number), \(step)"
                try self.perform(step, &world)
                try self.check(world, script)
            }
            last = "the end"
            try self.settle(&world, script)
            return nil
        } catch {
            return "\(last): \(error)"
        }
    }

    private static func perform(_ step: Step, _ world: inout StreamWorld) throws {
        func index(_ number: Int) -> Int { world.streams.count - 1 - number }
        switch step {
        case .open(let kind, let priority, let length): world.open(kind, priority, openingLength: length)
        case .send(let number, let length, let isUp): try world.send(index(number), length: length, isUp: isUp)
        case .take(let number, let count, let isUp): world.take(index(number), count, isUp: isUp)
        case .widen(let number, let window, let isUp): world.widen(index(number), to: window, isUp: isUp)
        case .finish(let number): world.finish(index(number))
        case .answer(let number, let length): world.answer(index(number), length: length)
        case .cancel(let number): try world.cancel(index(number))
        case .call(let length): world.call(length: length)
        case .push(let length): world.push(length: length)
        case .pump(let count, let isUp): try world.pump(count, isUp: isUp)
        case .deliver(let count, let isUp): try world.deliver(count, isUp: isUp)
        case .pass(let seconds): try world.pass(.seconds(Int64(seconds)))
        case .damage(let isUp): if isUp { world.damagesNext.up = true } else { world.damagesNext.down = true }
        case .drain: world.server.drain()
        case .endPatience: try world.endPatience()
        case .halfClose: world.isHalfClosed = true
        case .lose: try world.lose()
        }
    }

    // MARK: Promises

    /// Checks at every step that memory is bounded.
    private static func check(_ world: borrowing StreamWorld, _ script: Script) throws {
        var (lastUp, lastDown): (UInt64, UInt64) = (0, 0)
        for stream in world.streams {
            let up = stream.up.inbox.reduce(0) { $0 + $1.payload.readableBytes }
            let down = stream.down.inbox.reduce(0) { $0 + $1.payload.readableBytes }
            guard up <= Int(stream.up.window) + script.longestItem, down <= Int(stream.down.window) + script.longestItem
            else { throw Broken("\(stream.serial): more waits than a window and an item") }
            lastUp += stream.up.inbox.reduce(into: ItemReceipt()) { $0 += $1.receipt }.lastCost
            lastDown += stream.down.inbox.reduce(into: ItemReceipt()) { $0 += $1.receipt }.lastCost
        }
        guard lastUp <= UInt64(script.terms.server.connection), lastDown <= UInt64(script.terms.client.connection)
        else { throw Broken("more waits than the connection's window") }
        guard !world.isLost else { return }
        let room = UInt64(2 * (100_000 + script.longestItem) + 400_000) * UInt64(world.streams.count + 1)
        guard UInt64(world.client.waitingBytes) <= room, UInt64(world.server.waitingBytes) <= room else {
            throw Broken("more waits to be sent than is promised")
        }
        let limit = 400 + 8 * (world.client.count + world.server.count + world.calls.count + world.pushes.count)
        guard world.client.occupiedSlots <= limit, world.server.occupiedSlots <= limit else {
            throw Broken("places are not given back")
        }
    }

    /// Moves everything that can move, and takes the items of the streams that `takes` selects.
    private static func run(_ world: inout StreamWorld, taking takes: (ObservedStream) -> Bool) throws {
        var isMoving = true
        while isMoving {
            isMoving = false
            for isUp in [true, false] {
                if try world.pump(.max, isUp: isUp) > 0 { isMoving = true }
                if try world.deliver(.max, isUp: isUp) > 0 { isMoving = true }
                for index in world.streams.indices where takes(world.streams[index]) {
                    if world.take(index, .max, isUp: isUp) > 0 { isMoving = true }
                }
            }
        }
    }

    /// Ends a history: readers get all items, all streams end, and all credit is returned.
    private static func settle(_ world: inout StreamWorld, _ script: Script) throws {
        try self.run(&world) { $0.serial % 2 == 1 }
        try self.checkProgress(world, script) { $0.serial % 2 == 1 }
        try self.run(&world) { _ in true }
        try self.checkProgress(world, script) { _ in true }
        for index in world.streams.indices {
            world.finish(index)
            if index % 2 == 0 { world.answer(index, length: 70_000) }
        }
        try self.run(&world) { _ in true }
        for index in world.streams.indices { world.answer(index, length: 10) }
        try self.run(&world) { _ in true }
        // A half-closed client grants no credit.
        if world.isHalfClosed { try world.lose() }
        try self.checkEnd(world)
    }

    /// Checks that readers have received all items while the connection's window had room.
    private static func checkProgress(
        _ world: borrowing StreamWorld,
        _ script: Script,
        _ takes: (ObservedStream) -> Bool
    ) throws {
        guard !world.isLost, !world.isHalfClosed else { return }
        func hasRoom(_ window: ReceiveWindow) -> Bool {
            let free = window.window.subtractingOrZero(window.untaken)
            return free >= max(17, min(8_192, window.window - window.window / 2))
        }
        for stream in world.streams where stream.clientEnd == nil && stream.serverEnd == nil && takes(stream) {
            if hasRoom(world.server.receiveWindow), stream.server != nil, !stream.hasAnswered {
                guard stream.up.arrived == stream.up.accepted.count, stream.up.maySend else {
                    throw Broken("\(stream.serial): the client's items do not arrive")
                }
            }
            if hasRoom(world.client.receiveWindow) {
                guard stream.down.arrived == stream.down.accepted.count, stream.down.maySend || stream.hasAnswered
                else {
                    throw Broken("\(stream.serial): the server's items do not arrive")
                }
            }
        }
    }

    private static func checkEnd(_ world: borrowing StreamWorld) throws {
        for stream in world.streams {
            guard let end = stream.clientEnd else { throw Broken("\(stream.serial): no end at the client") }
            guard stream.server == nil || stream.serverEnd != nil else {
                throw Broken("\(stream.serial): no end at the server, at the client \(end.outcome)")
            }
            guard stream.down.inbox.isEmpty, stream.up.inbox.isEmpty else { throw Broken("items were left") }
        }
        guard world.calls.isEmpty, world.pushes.isEmpty else { throw Broken("calls or pushes did not arrive") }
        for (count, held, waiting, window) in [
            (world.client.count, world.client.heldBytes, world.client.waitingBytes, world.client.receiveWindow),
            (world.server.count, world.server.heldBytes, world.server.waitingBytes, world.server.receiveWindow),
        ] {
            guard count == 0, held == 0, waiting == 0, window.untaken == 0 else {
                throw Broken("not given back: \(count) streams, \(held) held, \(waiting) waiting, \(window.untaken)")
            }
        }
        guard !world.isLost else { return }
        guard world.client.sendWindow.sent == world.server.receiveWindow.received,
            world.server.sendWindow.sent == world.client.receiveWindow.received
        else { throw Broken("the two sides have counted differently") }
        for window in [world.client.sendWindow, world.server.sendWindow] where window.isMostlyUsed {
            throw Broken("credit was not given back: \(window)")
        }
        guard world.client.occupiedSlots <= 200, world.server.occupiedSlots <= 200 else {
            throw Broken("places were not given back")
        }
    }
}

extension UInt64 {
    fileprivate func subtractingOrZero(_ other: UInt64) -> UInt64 { self > other ? self - other : 0 }
}
