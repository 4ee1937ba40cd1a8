import HHSocketHello
import Testing

@Suite struct FeatureTests {
    @Test func aFeatureIsItsName() {
        #expect(ProtocolFeature(rawValue: "metadata") == .metadata)
    }
}
