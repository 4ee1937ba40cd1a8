// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The client's side of hello, with the frames of Docs/Protocol.md.
@Suite struct HelloExchangeTests {
    static let all: Set<ProtocolFeature> = [.metadata, .compression, .idempotency]

    private func judge(
        _ status: Status = .ok,
        features: Set<ProtocolFeature> = HelloExchangeTests.all,
        isRequired: Bool = false,
        versions: ClosedRange<UInt32> = 1...1,
        _ change: (inout WireHelloReply) -> Void
    ) throws -> Agreement? {
        var reply = WireHelloReply()
        reply.version = 1
        change(&reply)
        let exchange = HelloExchange(versions: versions, features: features, isRequired: isRequired)
        return try exchange.judge(status: status, payload: ByteBuffer(message: reply))
    }

    @Test func helloIsTheseBytes() throws {
        let golden = try frame(hex: GoldenHello.hello, .request)
        #expect(golden.type == FrameType.hello)
        #expect(golden.serial == FrameSerial.hello)
        #expect(try HelloExchange(features: Self.all).payload() == golden.payload)
    }

    @Test func aReplyIsReadFromTheseBytes() throws {
        let golden = try frame(hex: GoldenHello.reply, .response)
        let agreement = try HelloExchange(features: Self.all).judge(status: golden.status, payload: golden.payload)
        #expect(agreement == Agreement(version: 1, features: [.compression, .metadata]))
    }

    @Test func windowsAreInHelloWhereStreamsAreOffered() throws {
        let windows = StreamWindows(stream: 1_048_576)
        let golden = try frame(hex: GoldenStream.hello, .request)
        #expect(try HelloExchange(features: [.metadata, .streams], windows: windows).payload() == golden.payload)
        let without: WireHello = try HelloExchange(features: [.metadata], windows: windows).payload().message()
        #expect(without.streamWindow == 0)
    }

    @Test func theTermsOfStreamsAreReadFromTheReply() throws {
        let golden = try frame(hex: GoldenStream.reply, .response)
        let exchange = HelloExchange(features: [.metadata, .streams], windows: StreamWindows(stream: 1_048_576))
        let terms = try exchange.judge(status: golden.status, payload: golden.payload)?.streams
        #expect(terms?.client == StreamWindows(stream: 1_048_576, connection: 4_194_304))
        #expect(terms?.server == StreamWindows(stream: 262_144, connection: 8_388_608))
        #expect(terms?.maximumStreams == 1_000)
        let silent = try self.judge(features: [.streams]) { $0.features = ["streams"] }?.streams
        #expect(silent == StreamTerms())
        #expect(silent?.maximumStreams == 100)
        #expect(try self.judge(features: [.streams]) { $0.streamWindow = 5 }?.streams == nil)
    }

    @Test func theSessionTokenIsInHello() throws {
        let payload = try HelloExchange(features: [], sessionToken: [1, 2, 3]).payload()
        let hello: WireHello = try payload.message()
        #expect(hello.sessionToken == Data([1, 2, 3]))
        #expect(hello.features.isEmpty)
        #expect(!hello.hasResumeFrom)
    }

    @Test func aSessionTokenOverTheLimitStopsBeforeAnythingIsSent() throws {
        let token = [UInt8](repeating: 0, count: HelloLimits.maximumTokenLength)
        #expect(throws: Never.self) { try HelloExchange(features: [], sessionToken: token).payload() }
        let error = #expect(throws: HandshakeRefusal.self) {
            try HelloExchange(features: [], sessionToken: token + [0]).payload()
        }
        #expect(error?.remedy == .stop)
    }

    @Test func aServerThatAcceptsNothingStillAgreesOnAVersion() throws {
        #expect(try self.judge { _ in } == Agreement(version: 1, features: []))
    }

    @Test func aServerThatAcceptsWhatWasNotOfferedIsRefused() throws {
        let error = #expect(throws: HandshakeRefusal.self) {
            try self.judge(features: [.metadata]) { $0.features = ["metadata", "compression"] }
        }
        #expect(error?.remedy == .tryAnotherServer)
        #expect(error?.reason.contains("\"compression\"") == true)
    }

    @Test(arguments: [0, 2, 4, UInt32.max])
    func aVersionOutOfRangeIsRefused(_ version: UInt32) throws {
        let error = #expect(throws: HandshakeRefusal.self) {
            try self.judge(versions: 3...3) { $0.version = version }
        }
        #expect(error?.reason.contains("version \(version)") == true)
        #expect(try self.judge(versions: 2...4) { $0.version = 3 }?.version == 3)
    }

    @Test(arguments: [true, false], [true, false])
    func refusedTokenIsNoReasonToCarryOnWithoutHello(isRequired: Bool, hasToken: Bool) throws {
        let exchange = HelloExchange(features: [], sessionToken: hasToken ? [1] : [], isRequired: isRequired)
        let error = #expect(throws: HandshakeRefusal.self) {
            try exchange.judge(status: .noPermission, payload: ByteBuffer())
        }
        #expect(error?.reason.contains(hasToken ? "refused the session token" : "requires a session token") == true)
        #expect(error?.remedy == .stop)
    }

    @Test(arguments: [Status.undefinedType, .illegalFormat, .protobufFailed, .partial, Status(rawValue: 999)])
    func anErrorStatusMeansToCarryOnWithoutHelloUnlessItIsRequired(_ status: Status) throws {
        #expect(try self.judge(status) { _ in } == nil)
        let error = #expect(throws: HandshakeRefusal.self) {
            try self.judge(status, isRequired: true) { $0.version = 7 }
        }
        #expect(error?.reason.contains("status \(status)") == true)
        #expect(error?.reason.contains("speaks being 7") == true)
    }

    @Test func anErrorStatusNeedsNoReply() throws {
        let garbage = ByteBuffer(bytes: [0xFF, 0xFF])
        #expect(try HelloExchange(features: []).judge(status: .undefinedType, payload: garbage) == nil)
        #expect(throws: HandshakeRefusal.self) {
            try HelloExchange(features: [], isRequired: true).judge(status: .undefinedType, payload: garbage)
        }
    }

    @Test func aReplyThatCannotBeReadIsRefused() throws {
        let error = #expect(throws: HandshakeRefusal.self) {
            try HelloExchange(features: []).judge(status: .ok, payload: ByteBuffer(bytes: [0x08]))
        }
        #expect(error?.reason.contains("cannot be read") == true)
    }
}
