// SPDX-License-Identifier: Apache-2.0
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The memory that is charged for a unit of a peer's while it arrives.
@Suite struct GrowingUnitTests {
    /// The languages that a server reads with an account.
    enum Unit: CaseIterable { case frame, message }

    private static let length = 4 << 20
    private static let read = 64 << 10

    /// A decoder of one language, and the bytes that announce one unit of ``length`` bytes.
    private static func peer(_ unit: Unit) -> (any Growing, header: [UInt8]) {
        let length = (0..<4).map { UInt8(truncatingIfNeeded: Self.length >> (24 - 8 * $0)) }
        switch unit {
        case .frame:
            return (FrameDecoder(direction: .request), [0, 0, 3, 232, 0, 0, 0, 50] + length)
        case .message:
            let decoder = WebSocketDecoder(
                role: .client,
                mode: .messages(WebSocketLimits()),
                deflate: nil,
                account: nil
            )
            return (decoder, [0x82, 127, 0, 0, 0, 0] + length)
        }
    }

    /// A buffer doubles when it is full. If that were charged at once, some connections would exceed the server's limit
    /// together, before any of them could be told to wait.
    @Test(arguments: Unit.allCases) func oneReadIsNotChargedWithMegabytes(_ unit: Unit) throws {
        var (decoder, header) = Self.peer(unit)
        try decoder.take(ByteBuffer(bytes: header))
        var charged = decoder.charge
        for count in 1..<(Self.length / Self.read) {
            try decoder.take(ByteBuffer(repeating: 0, count: Self.read))
            let change = decoder.charge - charged
            charged += change
            #expect(charged >= count * Self.read)
            #expect(change <= Self.read + 64 << 10, "after \(count) reads")
        }
    }
}

/// A decoder whose unit is never complete.
private protocol Growing {
    var charge: Int { mutating get }
    mutating func take(_ bytes: ByteBuffer) throws
}

extension FrameDecoder: Growing {
    fileprivate var charge: Int { mutating get { self.heldBytes } }

    fileprivate mutating func take(_ bytes: ByteBuffer) throws {
        self.append(bytes)
        let unit = try self.next()
        #expect(unit == nil)
    }
}

extension WebSocketDecoder: Growing {
    fileprivate var charge: Int { self.heldBytes }

    fileprivate mutating func take(_ bytes: ByteBuffer) throws {
        self.append(bytes)
        let unit = try self.next()
        #expect(unit == nil)
    }
}
