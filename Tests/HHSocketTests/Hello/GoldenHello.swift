// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// Complete frames from Docs/Protocol.md.
enum GoldenHello {
    /// Hello.
    static let hello =
        "00000003 00000003 00000028 0801120B636F6D7072657373696F6E120B6964656D706F74656E637912086D657461646174612801 03C50D1B"
    /// The answer to hello.
    static let reply =
        "00000003 00000003 000000C8 00000019 0801120B636F6D7072657373696F6E12086D65746164617461 5E370834"
    /// The answer to hello of a server that only speaks newer versions.
    static let refusal =
        "00000003 00000003 0000012F 00000002 0802 0014000B"
    /// A request with metadata.
    static let request =
        "800003E8 00000032 00000021 000000180A0E0A0674656E616E74120461636D6510DC0B1A036B2D3168656C6C6F 731F0868"
    /// A request with a compressed body.
    static let compressed =
        "400003E8 00000033 00000012 789CCB48CDC9C9D751C820950200280E1301 5C1C0778"
    /// A response with metadata and a compressed body.
    static let response =
        "C00003E8 00000033 000000C8 00000026 000000100A0E0A06726567696F6E120465752D31789CCB48CDC9C9D751C820950200280E1301 C41E0B82"

    static let all = [hello, reply, refusal, request, compressed, response]
}

@Suite struct GoldenHelloTests {
    @Test func theFramesAreThoseOfTheProtocolsDescription() throws {
        let lines = try DocumentationPage("Docs/Protocol.md").text.components(separatedBy: "\n")
        for frame in GoldenHello.all { #expect(lines.contains(frame)) }
    }
}
