// SPDX-License-Identifier: Apache-2.0
import HHSocket
import NIOCore
import TestSupport
import Testing

@testable import HHSocketServer

/// Units that carry nothing cost a server work in proportion to their number, however they come. Where the work can be
/// counted, it is.
@Suite struct ServerEmptyUnitTests {
    struct Case: CustomTestStringConvertible, Sendable {
        var testDescription: String
        var count = 2_000
        /// Makes the input of this number of units, and returns the work on it.
        var prepare: @Sendable (Int) throws -> () throws -> Void
    }

    // MARK: Answers in order

    private static let answers: [Case] = [
        Case(testDescription: "answers in order") { count in
            var order = AnswerOrder<Int>()
            return {
                for _ in 0..<count { order.reserve() }
                var sent = 0
                for number in 1...UInt64(count) { sent += order.answer(number, 0).count }
                #expect(sent == count && order.count == 0)
            }
        },
        Case(testDescription: "answers in the reverse order") { count in
            var order = AnswerOrder<Int>()
            return {
                for _ in 0..<count { order.reserve() }
                var sent = 0
                for number in (1...UInt64(count)).reversed() { sent += order.answer(number, 0).count }
                #expect(sent == count && order.heldCount == 0)
            }
        },
        Case(testDescription: "cancels behind a request that is not answered") { count in
            var order = AnswerOrder<Int>()
            return {
                for _ in 0...count { order.reserve() }
                for number in 2...UInt64(count + 1) { #expect(order.abandon(number).isEmpty) }
                #expect(order.answer(1, 0) == [0])
                #expect(order.count == 0)
            }
        },
        Case(testDescription: "cancels of requests that are no longer in line") { count in
            var order = AnswerOrder<Int>()
            return {
                for number in 1...UInt64(count) {
                    order.reserve()
                    _ = order.answer(number, 0)
                    #expect(order.abandon(number).isEmpty)
                    #expect(order.abandon(1).isEmpty)
                }
            }
        },
    ]

    // MARK: Pushes

    private static let pushes = Case(testDescription: "empty pushes that are not read") { count in
        var queue = PushQueue(maximumCount: .max, maximumBytes: .max)
        return {
            for _ in 0..<count { _ = queue.append(PushQueue.Push(bytes: OwnedBytes())) }
            while queue.popFirst() != nil {}
            #expect(queue.cost == 0)
        }
    }

    // MARK: What comes before TLS and frames

    private static func read<Header>(
        _ name: String,
        count: Int,
        _ bytes: @escaping @Sendable (Int) -> [UInt8],
        _ makeReader: @escaping @Sendable () -> (ByteBuffer) throws -> Header?
    ) -> Case {
        Case(testDescription: "\(name), byte by byte", count: count) { count in
            let read = makeReader()
            let pieces = bytes(count).map { ByteBuffer(bytes: [$0]) }
            return {
                var steps = 0
                for piece in pieces {
                    steps += 1
                    if try read(piece) != nil { break }
                }
                // It is complete with its last byte, and not before.
                #expect(steps == pieces.count)
            }
        }
    }

    private static func proxyHeader() -> (ByteBuffer) throws -> ProxyHeader? {
        var reader = ProxyHeaderReader()
        return {
            reader.append($0)
            return try reader.next()
        }
    }

    private static func big(_ number: Int) -> [UInt8] { [UInt8(number >> 8), UInt8(number & 0xFF)] }

    /// The first record of TLS's handshake, with empty extensions.
    private static func hello(_ count: Int) -> [UInt8] {
        let extensions = (0..<count).flatMap { _ in [0xFA, 0xFA, 0, 0] as [UInt8] }
        let body =
            [3, 3] + [UInt8](repeating: 7, count: 32) + [0] + [0, 2, 0x13, 1] + [1, 0] + Self.big(extensions.count)
            + extensions
        return [1, 0] + Self.big(body.count) + body
    }

    private static let openings: [Case] = [
        // Four times as many are a little less than a header may have.
        read(
            "PROXY: additions without a value",
            count: 300,
            { count in
                let additions = (0..<count).flatMap { _ in [0xE0, 0, 0] as [UInt8] }
                let block = [192, 0, 2, 7, 198, 51, 100, 1, 0x12, 0x67, 1, 0xBB] + additions
                return [0x0D, 0x0A, 0x0D, 0x0A, 0, 0x0D, 0x0A, 0x51, 0x55, 0x49, 0x54, 0x0A, 0x21, 0x11]
                    + Self.big(block.count) + block
            },
            { Self.proxyHeader() }
        ),
        // Each byte is a record of its own.
        Case(testDescription: "TLS: records of a byte", count: 900) { count in
            var reader = ClientHelloReader()
            let records = Self.hello(count).map { ByteBuffer(bytes: [22, 3, 1, 0, 1, $0]) }
            return {
                var result = ClientHelloReader.Result.incomplete
                for record in records {
                    var record = record
                    #expect(result == .incomplete)
                    result = reader.read(&record)
                }
                #expect(result == .offered([]))
            }
        },
        Case(testDescription: "TLS: extensions without content", count: 900) { count in
            var reader = ClientHelloReader()
            let hello = Self.hello(count)
            var record = ByteBuffer(bytes: [22, 3, 1] + Self.big(hello.count) + hello)
            return { #expect(reader.read(&record) == .offered([])) }
        },
    ]

    @Test(arguments: answers + openings + [pushes])
    func fourTimesAsManyTakeFourTimesTheWork(_ units: Case) throws {
        let growth = try WorkGrowth(units.count, units.prepare)
        #expect(growth.isLinear, "\(growth)")
    }
}
