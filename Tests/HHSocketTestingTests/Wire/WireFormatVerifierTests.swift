// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import NIOCore
import TestSupport
import Testing

/// Working formats pass, and each fault is detected.
@Suite struct WireFormatVerifierTests {
    static let directions: [FrameDirection] = [.request, .response]

    static func frames(_ direction: FrameDirection, _ format: WireFormat) -> [Frame] {
        let (types, serials) = (format.layout.applicationTypes, format.layout.requestSerials)
        return [
            Frame(type: types.lowerBound, serial: serials.lowerBound),
            Frame(type: types.lowerBound, serial: serials.upperBound, payload: ByteBuffer(string: "hello")),
            Frame(type: types.lowerBound, serial: serials.lowerBound, payload: ByteBuffer(repeating: 0x2D, count: 300)),
        ]
    }

    @Test(arguments: WireFormat.presets.values.sorted { $0.description < $1.description }, directions)
    func ourOwnFormatsPass(format: WireFormat, direction: FrameDirection) throws {
        try WireFormatVerifier(format).verify(Self.frames(direction, format), direction: direction)
    }

    @Test(arguments: directions)
    func soundCodecPasses(direction: FrameDirection) throws {
        let format = try NetstringCodec.format()
        try WireFormatVerifier(format).verify(Self.frames(direction, format), direction: direction)
        try WireFormatVerifier(format, seed: 2).verify(Self.frames(direction, format), direction: direction)
    }

    @Test(
        arguments: [
            (.takesBytesOfNoFrame, .pieces), (.losesTheFirstByteOfSome, .pieces), (.keepsItsBytes, .roundTrip),
            (.keepsTheEnd, .roundTrip), (.dropsWhatFollows, .pieces), (.writesToTheBytes, .roundTrip),
            (.waitsForEver, .roundTrip), (.takesHalfAFrame, .pieces), (.readsBeyond, .bytesBehind),
            (.readsAllBytes, .time), (.repeatsASerial, .pieces), (.inventsFrames, .roundTrip),
            (.writesNothing, .roundTrip), (.refusesEverything, .roundTrip), (.writesNoStatus, .roundTrip),
            (.writesAnotherSerial, .roundTrip),
        ] as [(FaultyCodec.Fault, WireFormatVerifier.Check)]
    )
    func faultIsFound(fault: FaultyCodec.Fault, check: WireFormatVerifier.Check) throws {
        let format = try WireFormat.faulty(fault)
        let frames = Self.frames(.response, format) + [Frame(type: 101, serial: 51, status: .unknown)]
        let failure = #expect(throws: WireFormatVerifier.Failure.self) {
            try WireFormatVerifier(format).verify(frames, direction: .response)
        }
        #expect(failure?.check == check, "\(failure?.description ?? "")")
        #expect(failure?.direction == .response)
    }

    /// Our decoder rejects such payloads regardless of the codec.
    @Test func payloadsOverTheLimitDoNotReachTheCodec() throws {
        let format = try WireFormat.faulty(.trustsLengths)
        try WireFormatVerifier(format).verify(Self.frames(.request, format), direction: .request)
    }

    #if os(Linux)
    @Test func codecThatTrapsEndsTheProcess() async {
        await #expect(processExitsWith: .failure) {
            // Without the runtime's handler, which would spend 15 s on a backtrace of all threads.
            for number in [SIGILL, SIGTRAP] { signal(number, SIG_DFL) }
            let format = try WireFormat(codec: TrappingCodec(), rules: .init(name: "trapping", hasStatus: true))
            try WireFormatVerifier(format).verify([Frame(type: 101, serial: 50)], direction: .request)
        }
    }
    #endif

    @Test func framesAreNeeded() {
        #expect(throws: WireFormatVerifier.Failure.self) {
            try WireFormatVerifier(.standard).verify([], direction: .request)
        }
    }

    /// A codec that accepts few payloads requires a maker; without one the verifier reports that.
    @Test func makerMakesFramesThatTheCodecTakes() throws {
        let format = try WireFormat(codec: UpperCaseCodec(), rules: .init(name: "upper", hasStatus: false))
        let frames = [Frame(type: 16, serial: 50, payload: ByteBuffer(string: "ABC"))]
        let failure = #expect(throws: WireFormatVerifier.Failure.self) {
            try WireFormatVerifier(format) { _, _, _ in
                Frame(type: 16, serial: 50, payload: ByteBuffer(string: "a"))
            }.verify(frames, direction: .request)
        }
        #expect(failure?.message.contains("give the verifier a maker") == true, "\(failure?.description ?? "")")
        try WireFormatVerifier(format) { _, payload, number in
            let letters = payload.readableBytesView.map { 0x41 + $0 % 26 }
            return Frame(type: 16, serial: UInt32(50 + number % 1_000), payload: ByteBuffer(bytes: letters))
        }.verify(frames, direction: .request)
    }
}

/// Netstrings of capital letters.
private struct UpperCaseCodec: FrameCodec {
    private var sound = NetstringCodec()

    mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        try self.sound.decode(&bytes, direction, maximumPayloadLength: maximumPayloadLength)
    }

    func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        guard frame.payload.readableBytesView.allSatisfy({ (0x41...0x5A).contains($0) }) else {
            throw NetstringCodec.Illegal(description: "letters are capital")
        }
        try self.sound.encode(frame, direction, into: &bytes)
    }
}

/// Reads a header that may be missing.
private struct TrappingCodec: FrameCodec {
    private var sound = NetstringCodec()

    mutating func decode(
        _ bytes: inout ByteBuffer,
        _ direction: FrameDirection,
        maximumPayloadLength: Int
    ) throws -> Frame? {
        let header = Array(bytes.readableBytesView)
        precondition(header[3] != 0)
        return try self.sound.decode(&bytes, direction, maximumPayloadLength: maximumPayloadLength)
    }

    func encode(_ frame: Frame, _ direction: FrameDirection, into bytes: inout ByteBuffer) throws {
        try self.sound.encode(frame, direction, into: &bytes)
    }
}
