// SPDX-License-Identifier: Apache-2.0
import Benchmark
import HHSocketMessage
import ReferenceMessages
import SwiftProtobuf

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// Messages of several lengths, by HHSocket and by swift-protobuf: what counts is the ratio of the two in one run.
func messageBenchmarks() {
    do {
        let small = try Bench_Small(serializedBytes: MessageSample.small.serializedBytes() as [UInt8])
        compare("60 B", small, MessageSample.small)
        let medium = try Bench_Medium(serializedBytes: MessageSample.medium(1).serializedBytes() as [UInt8])
        compare("1 KiB", medium, MessageSample.medium(1))
        let large = try Bench_Large(serializedBytes: MessageSample.large.serializedBytes() as [UInt8])
        compare("64 KiB", large, MessageSample.large)
        let packed = try Bench_Item(serializedBytes: MessageSample.packed.serializedBytes() as [UInt8])
        compare("64 KiB of packed integers", packed, MessageSample.packed)
        let index = try Bench_Index(serializedBytes: MessageSample.index.serializedBytes() as [UInt8])
        compare("64 KiB of maps", index, MessageSample.index)
        let text = try Bench_Small(serializedBytes: MessageSample.text.serializedBytes() as [UInt8])
        compare("64 KiB of text", text, MessageSample.text)
    } catch {
        fatalError("the samples are no messages: \(error)")
    }
}

// Specialised, as an app's own calls are.
@inline(__always)
private func compare<Ours: ProtobufMessage, Theirs: SwiftProtobuf.Message & Sendable>(
    _ size: String,
    _ ours: Ours,
    _ theirs: Theirs
) {
    Benchmark("message of \(size), written") { benchmark in
        for _ in benchmark.scaledIterations { blackHole(try ours.serializedBytes()) }
    }
    Benchmark("message of \(size), written by swift-protobuf") { benchmark in
        for _ in benchmark.scaledIterations { blackHole(try theirs.serializedBytes() as [UInt8]) }
    }
    Benchmark("message of \(size), read") { benchmark in
        let bytes = try ours.serializedBytes()
        benchmark.startMeasurement()
        for _ in benchmark.scaledIterations { blackHole(try Ours(serializedBytes: bytes)) }
        benchmark.stopMeasurement()
    }
    Benchmark("message of \(size), read by swift-protobuf") { benchmark in
        let bytes: [UInt8] = try theirs.serializedBytes()
        benchmark.startMeasurement()
        for _ in benchmark.scaledIterations { blackHole(try Theirs(serializedBytes: bytes)) }
        benchmark.stopMeasurement()
    }
}

/// The messages, as types of swift-protobuf.
private enum MessageSample {
    static let small: ReferenceMessages.Bench_Small = {
        var message = ReferenceMessages.Bench_Small()
        message.id = 123_456_789
        message.user = "alice.liddell"
        message.text = "meet me at the station"
        message.kind = 3
        message.seen = true
        message.delta = -5
        message.stamp = 1_700_000_000
        return message
    }()

    static func medium(_ number: Int) -> ReferenceMessages.Bench_Medium {
        var message = ReferenceMessages.Bench_Medium()
        message.order = "order \(number)"
        message.items = (0..<20).map { Self.item($0) }
        message.at = 1_700_000_000
        return message
    }

    private static func item(_ index: Int) -> ReferenceMessages.Bench_Item {
        var item = ReferenceMessages.Bench_Item()
        item.id = UInt64(1_000 + index)
        item.name = "item number \(index)"
        item.count = Int32(index)
        item.price = 9.5 + Double(index)
        item.note = index.isMultiple(of: 2) ? "" : "please wrap it up"
        item.tags = [1, 2, 300]
        return item
    }

    static let index: ReferenceMessages.Bench_Index = {
        var message = ReferenceMessages.Bench_Index()
        for number in 0..<700 {
            message.counts["key number \(number)"] = Int64(number)
            message.names[Int32(number)] = "name number \(number)"
            if number.isMultiple(of: 2) { message.items["key \(number)"] = Self.item(number) }
        }
        return message
    }()

    /// Numbers of one to three bytes, most of them of two.
    static let packed: ReferenceMessages.Bench_Item = {
        var message = ReferenceMessages.Bench_Item()
        message.tags = (0..<32_000).map { number in Int32(truncatingIfNeeded: number &* 7_919 % 20_000) }
        return message
    }()

    static let text: ReferenceMessages.Bench_Small = {
        var message = ReferenceMessages.Bench_Small()
        message.text = String(repeating: "meet me at the station ", count: 2_850)
        return message
    }()

    static let large: ReferenceMessages.Bench_Large = {
        var message = ReferenceMessages.Bench_Large()
        message.orders = (0..<56).map { Self.medium($0) }
        message.attachment = Data(repeating: 7, count: 10_000)
        for number in 0..<100 { message.totals["key \(number)"] = Int64(number) }
        return message
    }()
}
