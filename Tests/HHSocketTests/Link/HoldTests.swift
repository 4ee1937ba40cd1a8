// SPDX-License-Identifier: Apache-2.0
import NIOCore
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

@Suite struct HoldTests {
    private final class Owner {
        var hold: Hold?
    }

    @Test func aHoldChargesUntilItsOwnerIsGone() {
        let account = CountingAccount()
        var owner: Owner? = Owner()
        owner?.hold = Hold(.memory(100), of: account)
        #expect(account.bytes == 100)
        owner?.hold?.change(to: 70)
        owner?.hold?.change(to: 70)
        #expect(account.bytes == 70)
        owner?.hold = Hold(.keptRequest(10), of: account)
        #expect(account.bytes == Resource.keptRequest(10).bytes)
        owner = nil
        #expect(account.bytes == 0)
    }

    @Test func descriptorsAndHandshakesAreCounted() {
        let account = CountingAccount()
        let owners = (Owner(), Owner())
        owners.0.hold = Hold(.descriptor, of: account)
        owners.1.hold = Hold(.handshake, of: account)
        #expect(account.count(of: .descriptor) == 1)
        #expect(account.count(of: .handshake) == 1)
        #expect(account.bytes == Resource.handshake.bytes)
        owners.0.hold = nil
        owners.1.hold = nil
        #expect(account.count(of: .descriptor) == 0)
        #expect(account.count(of: .handshake) == 0)
        #expect(account.bytes == 0)
    }

    /// zlib's memory is charged while it is allocated; of an inflater that rests, the window remains.
    @Test func zlibsMemoryIsChargedWhileItIsAllocated() throws {
        let account = CountingAccount()
        let direction = DeflateDirection(windowBits: 12, keepsWindow: true)
        var deflater = WebSocketDeflater(direction, account: account)
        var inflater: WebSocketInflater? = WebSocketInflater(direction, account: account)
        #expect(account.bytes == 0)
        let message = ByteBuffer(repeating: 7, count: 1_000)
        var deflated = try #require(deflater?.compress(message))
        let deflating = Resource.deflater(window: 12).bytes
        #expect(account.bytes == deflating)
        var output = ByteBuffer()
        let progress = try inflater?.inflate(&deflated, isEnd: true, into: &output, limit: 1_000)
        #expect(progress == .finished && output == message)
        #expect(account.bytes == deflating + Resource.inflater(window: 12).bytes)
        for _ in 0..<2 { inflater?.releaseUnlessUsed() }
        #expect(account.bytes == deflating + message.readableBytes)
        for _ in 0..<2 { deflater?.releaseUnlessUsed() }
        #expect(account.bytes == message.readableBytes)
        (deflater, inflater) = (nil, nil)
        #expect(account.bytes == 0)
    }
}
