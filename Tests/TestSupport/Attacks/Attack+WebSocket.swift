// SPDX-License-Identifier: Apache-2.0
import HHSocket
import HHSocketTesting
import NIOCore

extension HostileClient.Attack {
    private typealias Act = HostileClient.Act

    /// Runs one of ``onWebSockets``. The attackers do not wait for the answers to their openings.
    func attackWebSockets(_ target: Target, _ strength: Int) async throws -> [HostileClient] {
        var target = target
        target.opensWebSocket = false
        // They do not read the server's answers either, which they would have to keep.
        var deaf = target
        deaf.reads = false
        let few = Array(1...(4 * strength))
        switch self {
        case .slowOpenings:
            return try await self.each(of: Array(1...(20 * strength)), target) { number in
                .opening().cut(after: 40 + number).dribbled()
            }
        case .openingFlood:
            return try await self.each(of: Array(1...(200 * strength)), target) { number in
                switch number % 3 {
                case 0: .opening()
                case 1: .opening().cut(after: number)
                default: .opening().then(.reset)
                }
            }
        case .largeOpenings:
            let padding = String(repeating: "x", count: 4 << 20)
            return try await self.each(of: few, target) { _ in .opening(headers: ["X-Padding": padding]) }
        case .endlessFragments:
            let fragments = 131_071
            return try await self.each(of: few, target) { number in
                .glued(
                    .opening(),
                    .webSocketFrame(.binary([]).unfinished()),
                    .webSocketFrame(.continuation().unfinished()).times(number % 2 == 0 ? fragments : fragments * 2)
                )
            }
        case .hugeMessages:
            let lengths: [UInt64] = [.max, 1 << 63, (1 << 63) - 1, 1 << 40, 1 << 32, (16 << 20) + 1, 16 << 20]
            let whole = ByteBuffer(repeating: 0x61, count: 15 << 20)
            let announced = try await self.each(of: lengths, deaf) { length in
                .opening().then(.webSocketFrame(.text("a beginning").announcing(length: length)))
            }
            return try await announced
                + self.each(of: few, deaf) { _ in
                    .opening().then(.webSocketFrame(.binary(whole).announcing(length: 16 << 20)))
                }
        case .deflateBombs:
            let small = WebSocketFrame.deflateBomb(inflatingTo: 900_000)
            let large = WebSocketFrame.deflateBomb(inflatingTo: 64 << 20)
            return try await self.each(of: few, deaf) { _ in
                .glued(
                    .opening(headers: ["Sec-WebSocket-Extensions": "permessage-deflate"]),
                    .webSocketFrame(small).times(100),
                    .webSocketFrame(large).times(10)
                )
            }
        case .webSocketPings:
            let ping = WebSocketFrame.ping(ByteBuffer(repeating: 0x61, count: 125))
            return try await self.each(of: [0, 1], deaf) { _ in
                .opening().then(.webSocketFrame(ping).times(50_000 * strength))
            }
        case .illegalFrames:
            let frames = (1...strength).flatMap { _ in Self.forbiddenFrames }
            return try await self.each(of: frames, target) { frames in
                .glued(.opening(), .binary([]), .webSocketFrames(frames), .text("nobody may see this"))
            }
        case .closeFlood:
            return try await self.each(of: Array(1...(50 * strength)), target) { _ in
                .opening().then(.webSocketFrame(.close(code: 1_000)).times(1_000))
            }
        case .brokenTexts:
            var text = ByteBuffer(repeating: 0x61, count: 8 << 20)
            text.writeInteger(0xFF as UInt8)
            let message = Act.webSocketFrame(WebSocketFrame(.text, text))
            return try await self.each(of: few, deaf) { number in
                .opening().then(number % 2 == 0 ? message : message.fragmented(length: 1_000))
            }
        default:
            return []
        }
    }

    /// Illegal sequences of frames, one in each row.
    private static var forbiddenFrames: [[WebSocketFrame]] {
        let long = ByteBuffer(repeating: 0x61, count: 126)
        return [
            [.text("x").unmasked()], [.text("x").reserving(bits: 0b100)], [.ping().reserving(bits: 0b001)],
            [WebSocketFrame(.init(rawValue: 3))], [WebSocketFrame(.init(rawValue: 11))], [.ping().unfinished()],
            [.ping(long)], [.text("x").measured(in: .bits16)], [.text("x").measured(in: .bits64)],
            [.continuation("x")], [.text("x").unfinished(), .text("y")], [.close(payload: ByteBuffer(bytes: [3]))],
            [.close(code: 1_005)], [.close(code: 999)], [.close(code: 5_000)],
        ]
    }
}
