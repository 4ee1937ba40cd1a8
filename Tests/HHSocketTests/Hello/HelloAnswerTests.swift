import Foundation
import HHSocketMessage
import NIOCore
import Testing

@testable import HHSocket

/// The server's side.
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
        let (answer, _) = try self.answer { $0.sessionToken = Data([7]) }
        #expect(answer.hello?.sessionToken == Data([7]))
    }

    @Test func garbageIsAnswered402() {
        let answer = HelloAnswer.answer(to: ByteBuffer(bytes: [0x08]), features: [.metadata])
        #expect(answer.status == .protobufFailed)
        #expect(answer.agreement == nil)
        #expect(answer.hello == nil)
    }

    @Test func noBytesAtAllAreAHelloOfNoVersion() {
        #expect(HelloAnswer.answer(to: ByteBuffer(), features: [.metadata]).status == .illegalFormat)
    }
}
