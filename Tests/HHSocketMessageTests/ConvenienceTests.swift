// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketMessage
import NIOCore
import Testing

#if canImport(FoundationEssentials)
import FoundationEssentials
#else
import Foundation
#endif

/// The convenience members of all messages.
@Suite struct ConvenienceTests {
    private struct Refusal: Error, Equatable {}

    @Test func aMessageIsMadeInAClosure() throws {
        let message = Every_Thing_Scalars.with {
            $0.anInt32 = 7
            $0.aString = "text"
        }
        #expect(message.anInt32 == 7 && message.aString == "text")
        // The error has the type of the closure's error.
        do throws(Refusal) {
            _ = try Every_Thing_Scalars.with { (message) throws(Refusal) in
                message.anInt32 = 7
                throw Refusal()
            }
            Issue.record("nothing was thrown")
        } catch {
            #expect(error == Refusal())
        }
    }

    @Test func everyTypeOfBytesDecodesAndEncodes() throws {
        let message = Every_Thing_Scalars.with { $0.aString = "text" }
        let bytes = try message.serializedBytes()
        #expect(try message.serializedData() == Data(bytes))
        #expect(try message.serializedBuffer() == ByteBuffer(bytes: bytes))
        #expect(try Every_Thing_Scalars(serializedBytes: Data(bytes)) == message)
        #expect(try Every_Thing_Scalars(serializedBytes: ByteBuffer(bytes: bytes)) == message)
        // A part of a buffer, and bytes without contiguous storage.
        var buffer = ByteBuffer(bytes: [0] + bytes)
        buffer.moveReaderIndex(forwardBy: 1)
        #expect(try Every_Thing_Scalars(serializedBytes: buffer) == message)
        #expect(try Every_Thing_Scalars(serializedBytes: bytes.lazy.map { $0 }) == message)
        #expect(try Every_Thing_Scalars(serializedBytes: sequence(state: bytes[...]) { $0.popFirst() }) == message)
    }

    @Test func limitsApplyToEach() throws {
        let message = Every_Thing_Repeated.with { $0.strings = ["a string that lies apart from the array itself"] }
        let bytes = try message.serializedBytes()
        let limits = MessageLimits(memory: 1, memoryPerByte: 0)
        #expect(throws: MessageError.self) { try Every_Thing_Repeated(serializedBytes: Data(bytes), limits: limits) }
        #expect(throws: MessageError.self) {
            try Every_Thing_Repeated(serializedBytes: ByteBuffer(bytes: bytes), limits: limits)
        }
        #expect(throws: MessageError.self) {
            try ByteBuffer(bytes: bytes).message(as: Every_Thing_Repeated.self, limits: limits)
        }
    }
}
