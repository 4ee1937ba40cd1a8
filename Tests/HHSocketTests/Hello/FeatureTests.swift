// SPDX-License-Identifier: Apache-2.0
import HHSocket
import Testing

@Suite struct FeatureTests {
    @Test func aFeatureIsItsName() {
        #expect(ProtocolFeature(rawValue: "metadata") == .metadata)
        #expect(ProtocolFeature(rawValue: "others") == nil)
    }

    @Test func anAgreementOnFeaturesIsOneOnFlags() {
        #expect(Agreement(version: 1, features: [.metadata]).flags == 0x8000_0000)
        #expect(Agreement(version: 1, features: [.compression]).flags == 0x4000_0000)
        #expect(Agreement(version: 1, features: [.metadata, .compression, .idempotency]).flags == 0xC000_0000)
        #expect(Agreement(version: 1, features: [.streams]).flags == 0x2000_0000)
        #expect(Agreement(version: 1, features: [ProtocolFeature]()).flags == 0)
    }

    @Test func onlyAnAgreementOnStreamsHasTheirTerms() {
        let terms = StreamTerms(server: StreamWindows(stream: 1), maximumStreams: 7)
        #expect(Agreement(version: 1, features: [.streams], streams: terms).streams == terms)
        #expect(Agreement(version: 1, features: [.metadata], streams: terms).streams == nil)
    }

    @Test func idempotencyRidesOnMetadata() {
        #expect(Agreement(version: 1, features: [.metadata, .idempotency]).has(.idempotency))
        #expect(!Agreement(version: 1, features: [.compression, .idempotency]).has(.idempotency))
    }

    @Test func formatsHaveHelloWhereTheirTypesHaveRoomAndTheirAnswersHaveAStatus() throws {
        #expect(WireFormat.standard.supportsHello)
        #expect(WireFormat.plain.supportsHello)
        #expect(WireFormat.tgcd.supportsHello)
        #expect(!WireFormat.mars.supportsHello)
    }

    @Test func formatsHaveStreamsWhereTheyHaveHelloAndCancelsAndTheTypesAreFree() throws {
        #expect(WireFormat.standard.supportsStreams)
        #expect(WireFormat.plain.supportsStreams)
        #expect(!WireFormat.tgcd.supportsStreams)
        #expect(!WireFormat.mars.supportsStreams)
        var layout = WireFormat.standard.layout
        layout.cancel = nil
        #expect(try !WireFormat(layout).supportsStreams)
        layout = WireFormat.standard.layout
        layout.cancel?.type = FrameType.item
        #expect(try !WireFormat(layout).supportsStreams)
    }

    @Test func aFormatWithoutRoomHasNoHello() throws {
        func supports(_ change: (inout WireFormat.Layout) -> Void) throws -> Bool {
            var layout = WireFormat.standard.layout
            layout.heartbeat = nil
            change(&layout)
            return try WireFormat(layout).supportsHello
        }
        #expect(try supports { _ in })
        #expect(try !supports { $0.applicationTypes = 3...100 })
        #expect(try !supports { $0.applicationTypes = 16...0x2000_0000 })
        #expect(try !supports { $0.requestSerials = 2...100 })
        #expect(try !supports { $0.requestSerials = 4...100 })
        #expect(try supports { $0.requestSerials = 50...100 })
        #expect(try !supports { $0.push = .init(serial: 3) })
        #expect(try !supports { $0.cancel = .init(type: 4) })
        #expect(try !supports { $0.heartbeat = .init(type: 3, pingedBy: .client) })
    }
}
