// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage
import NIOCore
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// The server's side of hello.
@Suite struct HelloAnswerTests {
    private func answer(
        versions: ClosedRange<UInt32> = 1...1,
        accepting features: Set<ProtocolFeature> = [.metadata, .compression, .idempotency],
        _ change: (inout WireHello) -> Void
    ) throws -> (answer: HelloAnswer, reply: WireHelloReply) {
        var hello = WireHello()
        hello.version = 1
        change(&hello)
        let answer = HelloAnswer.answer(to: try ByteBuffer(message: hello), versions: versions, features: features)
        return (answer, try answer.payload.message())
    }

    @Test func theReplyIsTheseBytes() throws {
        let hello = try HelloExchange(features: HelloExchangeTests.all).payload()
        let answer = HelloAnswer.answer(to: hello, features: [.metadata, .compression])
        let golden = try frame(hex: GoldenHello.reply, .response)
        #expect(answer.status == golden.status)
        #expect(answer.payload == golden.payload)
        #expect(answer.agreement?.flags == 0xC000_0000)
    }

    @Test func bothEndsComeToTheSameTermsOfStreams() throws {
        let exchange = HelloExchange(features: [.metadata, .streams], windows: StreamWindows(stream: 1_048_576))
        var answer = HelloAnswer.answer(
            to: try exchange.payload(),
            features: [.metadata, .streams],
            windows: StreamWindows(connection: 8_388_608),
            maximumStreams: 1_000
        )
        #expect(try answer.payload == frame(hex: GoldenStream.reply, .response).payload)
        #expect(try exchange.judge(status: answer.status, payload: answer.payload) == answer.agreement)
        #expect(answer.agreement?.flags == 0xA000_0000)
        answer.withhold(.streams)
        #expect(answer.agreement == Agreement(version: 1, features: [.metadata]))
        let reply: WireHelloReply = try answer.payload.message()
        #expect(reply.features == ["metadata"])
        #expect(reply.connectionWindow == 0)
        #expect(reply.maximumStreams == 0)
    }

    @Test func bothEndsComeToTheSameAgreement() throws {
        for server in [[], [.metadata], [.compression, .idempotency], HelloExchangeTests.all] as [Set<ProtocolFeature>]
        {
            for client in [[], [.idempotency], [.metadata, .idempotency], HelloExchangeTests.all]
                as [Set<ProtocolFeature>]
            {
                let exchange = HelloExchange(features: client)
                let answer = HelloAnswer.answer(to: try exchange.payload(), features: server)
                #expect(try exchange.judge(status: answer.status, payload: answer.payload) == answer.agreement)
            }
        }
    }

    @Test func featuresAreThoseOfBothInTheClientsOrderOnceEach() throws {
        let (answer, reply) = try self.answer(accepting: [.metadata, .compression]) {
            $0.features = ["streams", "metadata", "compression", "metadata"]
        }
        #expect(reply.features == ["metadata", "compression"])
        #expect(answer.agreement == Agreement(version: 1, features: [.metadata, .compression]))
    }

    @Test func idempotencyWithoutMetadataIsNotAccepted() throws {
        let (answer, reply) = try self.answer { $0.features = ["idempotency", "compression"] }
        #expect(reply.features == ["compression"])
        #expect(answer.agreement == Agreement(version: 1, features: [.compression]))
    }

    @Test func featuresBeyondTheLimitAreNotSeen() throws {
        let many = (1...HelloLimits.maximumFeatures).map { "feature \($0)" }
        #expect(try self.answer { $0.features = many.dropLast() + ["metadata"] }.reply.features == ["metadata"])
        #expect(try self.answer { $0.features = many + ["metadata"] }.reply.features == [])
    }

    @Test(arguments: [(1, 0, 1), (5, 0, 3), (2, 2, 2), (9, 3, 3)] as [(UInt32, UInt32, UInt32)])
    func theVersionIsTheNewestThatBothSpeak(_ version: UInt32, _ minimum: UInt32, _ agreed: UInt32) throws {
        let (answer, reply) = try self.answer(versions: 1...3) {
            $0.version = version
            $0.minimumVersion = minimum
        }
        #expect(answer.status == .ok)
        #expect(reply.version == agreed)
        #expect(answer.agreement?.version == agreed)
    }

    @Test(arguments: [(0, 0), (1, 0), (9, 4), (1, 9)] as [(UInt32, UInt32)])
    func withoutAVersionThatBothSpeakTheAnswerIs303AndTheServersOldest(_ version: UInt32, _ minimum: UInt32) throws {
        let (answer, reply) = try self.answer(versions: 2...3) {
            $0.version = version
            $0.minimumVersion = minimum
        }
        #expect(answer.status == .illegalFormat)
        #expect(answer.agreement == nil)
        #expect(reply.version == 2)
    }

    @Test func aRefusalIsTheseBytes() throws {
        let hello = try HelloExchange(features: []).payload()
        let answer = HelloAnswer.answer(to: hello, versions: 2...3, features: [])
        let golden = try frame(hex: GoldenHello.refusal, .response)
        #expect(answer.status == golden.status)
        #expect(answer.payload == golden.payload)
    }

    @Test func aSessionTokenOverTheLimitIsRefused() throws {
        let limit = HelloLimits.maximumTokenLength
        #expect(try self.answer { $0.sessionToken = Data(count: limit) }.answer.status == .ok)
        #expect(try self.answer { $0.sessionToken = Data(count: limit + 1) }.answer.status == .illegalFormat)
    }

    @Test func theServerGetsWhatTheClientSaid() throws {
        var (answer, _) = try self.answer { $0.sessionToken = Data([7]) }
        #expect(answer.takeSessionToken() == [7])
        #expect(answer.sessionToken.isEmpty)
    }

    @Test func garbageIsAnswered402() {
        let answer = HelloAnswer.answer(to: ByteBuffer(bytes: [0x08]), features: [.metadata])
        #expect(answer.status == .protobufFailed)
        #expect(answer.agreement == nil)
        #expect(answer.sessionToken.isEmpty)
    }

    /// Fields over a limit are not decoded: neither features nor unknown fields.
    @Test func helloOverTheLimitsCostsNothing() throws {
        let feature: [UInt8] = [0x12, 8] + Array("metadata".utf8)
        let empty = [[UInt8]](repeating: [0x12, 0], count: 60_000).flatMap(\.self)
        let unknown: [UInt8] = [0x7A, 0x64] + [UInt8](repeating: 1, count: 100)
        let version: [UInt8] = [0x08, 1]
        let late = HelloAnswer.answer(to: ByteBuffer(bytes: empty + feature + unknown + version), features: [.metadata])
        #expect(late.status == .ok)
        #expect(late.agreement?.has(.metadata) == false)
        let early = HelloAnswer.answer(
            to: ByteBuffer(bytes: feature + empty + unknown + version),
            features: [.metadata]
        )
        #expect(early.agreement?.has(.metadata) == true)
        let cut = HelloAnswer.answer(to: ByteBuffer(bytes: version + feature + [0x7A, 0x64]), features: [.metadata])
        #expect(cut.status == .protobufFailed)
    }

    @Test func helloOverTheLimitIsNotRead() {
        let version: [UInt8] = [0x08, 1]
        let rest = HelloLimits.maximumLength - version.count - 4
        let filler: [UInt8] = [0x7A] + [UInt8(rest & 0x7F | 0x80), UInt8(rest >> 7 & 0x7F | 0x80), UInt8(rest >> 14)]
        var bytes = ByteBuffer(bytes: version + filler + [UInt8](repeating: 0, count: rest))
        #expect(bytes.readableBytes == HelloLimits.maximumLength)
        #expect(HelloAnswer.answer(to: bytes, features: []).status == .ok)
        bytes.writeBytes(version)
        let answer = HelloAnswer.answer(to: bytes, features: [])
        #expect(answer.status == .illegalLength)
        #expect(answer.agreement == nil)
    }

    @Test func featureMayBeWithheld() throws {
        var (answer, _) = try self.answer { $0.features = ["compression", "metadata", "idempotency"] }
        answer.withhold(.compression)
        let reply: WireHelloReply = try answer.payload.message()
        #expect(reply.features == ["metadata", "idempotency"])
        #expect(answer.agreement == Agreement(version: 1, features: [.metadata, .idempotency]))
        let payload = answer.payload
        answer.withhold(.compression)
        #expect(answer.payload == payload)
        answer.refuse(.noPermission)
        answer.withhold(.metadata)
        #expect(answer.status == .noPermission)
        #expect(answer.agreement == nil)
        #expect(answer.payload.readableBytes == 0)
    }

    @Test func noBytesAtAllAreAHelloOfNoVersion() {
        #expect(HelloAnswer.answer(to: ByteBuffer(), features: [.metadata]).status == .illegalFormat)
    }
}
