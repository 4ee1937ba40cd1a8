// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketMessage
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The use of generated messages.
@Suite struct GeneratedMessageTests {
    @Test func messageSurvivesItsBytes() throws {
        var scalars = Every_Thing_Scalars()
        scalars.anInt32 = -1
        scalars.aString = "text"
        #expect(
            try scalars.serializedBytes() == [0x18] + [UInt8](repeating: 0xFF, count: 9) + [0x01, 0x72, 0x04]
                + Array("text".utf8)
        )
        #expect(try Every_Thing_Scalars(serializedBytes: scalars.serializedBytes()) == scalars)
        // From any collection of bytes.
        #expect(try Every_Thing_Scalars(serializedBytes: Data(scalars.serializedBytes())) == scalars)
        #expect(try Every_Thing_Scalars(serializedBytes: scalars.serializedBytes().reversed().reversed()) == scalars)
        #expect(try Every_Thing_Scalars(serializedBytes: [] as [UInt8]) == Every_Thing_Scalars())
    }

    @Test func messagesAreMerged() throws {
        var message = Every_Thing_Optionals()
        message.anInt32 = 1
        message.aString = "one"
        var other = Every_Thing_Optionals()
        other.aString = "two"
        try message.merge(serializedBytes: other.serializedBytes())
        #expect(message.anInt32 == 1)
        #expect(message.aString == "two")
        var repeated = Every_Thing_Repeated()
        repeated.strings = ["a"]
        try repeated.merge(serializedBytes: repeated.serializedBytes())
        #expect(repeated.strings == ["a", "a"])
    }

    /// A message whose fields are on the heap.
    @Test func copyOfAMessageDoesNotChangeWithIt() throws {
        #expect(MemoryLayout<Every_Thing_Scalars>.size == MemoryLayout<Int>.size)
        var message = Every_Thing_Scalars()
        #expect(message == Every_Thing_Scalars())
        message.aString = "one"
        var copy = message
        copy.aString = "two"
        copy.anInt32 = 2
        #expect(message.aString == "one")
        #expect(message.anInt32 == 0)
        #expect(copy != message)
        #expect(Set([message, copy, message]).count == 2)
        copy.anInt32 = 0
        copy.aString = "one"
        #expect(copy == message)
        // A message whose fields were set and cleared equals one whose fields were never set.
        copy.aString = ""
        #expect(copy == Every_Thing_Scalars())
        #expect(copy.hashValue == Every_Thing_Scalars().hashValue)
    }

    @Test func messageWithinAMessageIsChangedWithoutACopy() throws {
        var message = Every_Thing_Node()
        message.next.next.value = 3
        #expect(message.hasNext && message.next.hasNext)
        #expect(message.next.next.value == 3)
        #expect(try Every_Thing_Node(serializedBytes: message.serializedBytes()) == message)
    }

    @Test func presenceIsReported() throws {
        var optionals = Every_Thing_Optionals()
        #expect(!optionals.hasAnInt32)
        #expect(optionals.anInt32 == 0)
        optionals.anInt32 = 0
        #expect(optionals.hasAnInt32)
        #expect(try optionals.serializedBytes() == [0x18, 0x00])
        #expect(try Every_Thing_Optionals(serializedBytes: [0x18, 0x00]).hasAnInt32)
        optionals.clearAnInt32()
        #expect(try optionals.serializedBytes() == [])
    }

    @Test func defaultsAreThoseOfTheProto() {
        let defaults = Every_Thing2_Defaults()
        #expect(defaults.whole == 7)
        #expect(defaults.infinite == .infinity)
        #expect(defaults.noNumber.isNaN)
        #expect(defaults.belowZero.sign == .minus)
        #expect(defaults.least64 == .min)
        #expect(defaults.most64 == .max)
        #expect(defaults.escapes == "quote \" backslash \\ newline \n tab \t nul \0 bell \u{7} \\(x) é 😀")
        #expect(defaults.someBytes == Data([0x61, 0, 1, 0xFF, 0x22, 0x5C, 0x0A, 0x0D, 0x09, 0x27, 0x7A]))
        #expect(defaults.size == .large)
        #expect(defaults.firstSize == .small)
    }

    @Test func notANumberSurvives() throws {
        var scalars = Every_Thing_Scalars()
        scalars.aDouble = -.nan
        scalars.aFloat = -0.0
        let bytes = try scalars.serializedBytes()
        let again = try Every_Thing_Scalars(serializedBytes: bytes)
        #expect(again.aDouble.bitPattern == scalars.aDouble.bitPattern)
        #expect(again.aFloat.bitPattern == scalars.aFloat.bitPattern)
        #expect(bytes.count == 9 + 5)
    }

    @Test func openEnumerationKeepsWhatItDoesNotKnow() throws {
        let repeated = try Every_Thing_Scalars(serializedBytes: [0x80, 0x01, 0x63])
        #expect(try repeated.serializedBytes() == [0x80, 0x01, 0x63])
        #expect(Every_Thing_Colour(rawValue: 99) == .UNRECOGNIZED(99))
        #expect(Every_Thing_Colour(rawValue: 1) == .red)
    }

    @Test func closedEnumerationPutsWhatItDoesNotKnowIntoTheUnknownFields() throws {
        // size = 16: 99 is not declared, 5 is large.
        let one = try Every_Thing2_Optionals(serializedBytes: [0x80, 0x01, 0x63])
        #expect(!one.hasSize)
        #expect(one.unknownFields.data == Data([0x80, 0x01, 0x63]))
        #expect(try one.serializedBytes() == [0x80, 0x01, 0x63])
        // In a list, packed or not.
        let many = try Every_Thing2_Repeated(serializedBytes: [
            0x18, 0x03, 0x18, 0x63, 0x18, 0x05, 0x22, 0x02, 0x62, 0x03,
        ])
        #expect(many.sizes == [.small, .large])
        #expect(many.packedSizes == [.small])
        #expect(many.unknownFields.data == Data([0x18, 0x63, 0x20, 0x62]))
        // The field stays as received, even if it has more bytes than necessary.
        let long = try Every_Thing2_Repeated(serializedBytes: [0x22, 0x03, 0x03, 0xE3, 0x00])
        #expect(long.packedSizes == [.small])
        #expect(long.unknownFields.data == Data([0x20, 0xE3, 0x00]))
        // In a oneof.
        let choice = try Every_Thing2_Choices(serializedBytes: [0x08, 0x63])
        #expect(choice.choice == nil)
        #expect(choice.unknownFields.data == Data([0x08, 0x63]))
        // As the value of a map: the whole entry.
        let entry: [UInt8] = [0x3A, 0x05, 0x0A, 0x01, 0x61, 0x10, 0x63]
        let map = try Every_Thing2_Repeated(serializedBytes: entry + [0x3A, 0x05, 0x0A, 0x01, 0x62, 0x10, 0x01])
        #expect(map.flavoursByName == ["b": .sweet])
        #expect(map.unknownFields.data == Data(entry))
        #expect(try Every_Thing2_Repeated(serializedBytes: map.serializedBytes()) == map)
    }

    @Test func unknownNumberOfAClosedEnumerationTakesNothingAway() throws {
        // size = 16: small, then 99.
        let one = try Every_Thing2_Optionals(serializedBytes: [0x80, 0x01, 0x03, 0x80, 0x01, 0x63])
        #expect(one.size == .small)
        #expect(one.unknownFields.data == Data([0x80, 0x01, 0x63]))
        // text = 4, then size = 1 of the same oneof.
        let choice = try Every_Thing2_Choices(serializedBytes: [0x22, 0x01, 0x61, 0x08, 0x63])
        #expect(choice.choice == .text("a"))
        #expect(choice.unknownFields.data == Data([0x08, 0x63]))
    }

    @Test func requiredClosedEnumerationMustBeOneThatIsKnown() throws {
        var known = Samples.forge(seed: 3)
        known.closedEnums["size"] = [3]
        known.addsUnknownFields = false
        let bytes = known.message(Every_Thing2_Required.messageDescriptor)
        let whole = try Every_Thing2_Required(serializedBytes: bytes).serializedBytes()
        // size = 16.
        let message = try Every_Thing2_Required(serializedBytes: whole + [0x80, 0x01, 0x63])
        #expect(message.size == .small)
        #expect(try message.serializedBytes() == whole + [0x80, 0x01, 0x63])
        var forge = Samples.forge(seed: 3)
        forge.closedEnums["size"] = [99]
        forge.addsUnknownFields = false
        let unknown = forge.message(Every_Thing2_Required.messageDescriptor)
        let error = #expect(throws: MessageError.self) { try Every_Thing2_Required(serializedBytes: unknown) }
        #expect(error?.reason == .missingRequiredField(field: "size"))
    }

    @Test(arguments: [Double.nan, .infinity, -.infinity, 1e300, 0.75, -0.25])
    func anyDateIsATimestamp(interval: Double) {
        let timestamp = Google_Protobuf_Timestamp(date: Date(timeIntervalSince1970: interval))
        switch interval {
        case 0.75: #expect((timestamp.seconds, timestamp.nanos) == (0, 750_000_000))
        case -0.25: #expect((timestamp.seconds, timestamp.nanos) == (-1, 750_000_000))
        case .infinity, 1e300: #expect((timestamp.seconds, timestamp.nanos) == (.max, 0))
        case -.infinity: #expect((timestamp.seconds, timestamp.nanos) == (.min, 0))
        default: #expect((timestamp.seconds, timestamp.nanos) == (0, 0))
        }
    }

    @Test func unknownFieldsAreKept() throws {
        let unknown: [UInt8] = [0xA0, 0x9C, 0x01, 0x07, 0xA2, 0x9C, 0x01, 0x02, 0x08, 0x09]
        var message = try Every_Thing_Nothing(serializedBytes: unknown)
        #expect(message.unknownFields.data == Data(unknown))
        #expect(try message.serializedBytes() == unknown)
        #expect(message != Every_Thing_Nothing())
        message.unknownFields = UnknownStorage()
        #expect(try message.serializedBytes() == [])
    }

    @Test func lastValueOfAOneofWins() throws {
        // text = 4, then size = 1.
        let message = try Every_Thing2_Choices(serializedBytes: [0x22, 0x01, 0x61, 0x08, 0x05])
        #expect(message.choice == .size(.large))
        #expect(message.text == "")
    }

    @Test func errorsSayWhereAndWhy() {
        let error = #expect(throws: MessageError.self) { try Every_Thing_Scalars(serializedBytes: [0x72, 0x01, 0xFF]) }
        #expect(error.map { "\($0)" } == "every.thing.Scalars: the string a_string is not UTF-8 (at byte 2)")
    }

    @Test func manyThreadsMayUseAMessageFirst() async throws {
        // The first thread to arrive links descriptors.
        try await withThrowingTaskGroup(of: [UInt8].self) { group in
            for _ in 0..<16 {
                group.addTask {
                    var node = Every_Thing_Outer()
                    node.unknownFields = UnknownStorage()
                    return try node.serializedBytes()
                }
            }
            for try await bytes in group { #expect(bytes == []) }
        }
    }
}
