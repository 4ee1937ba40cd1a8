// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import HHSocketMessage
import Testing

/// An error of another system, generated from its `.proto`: a list of messages of any type.
@Suite struct StatusTests {
    @Test func detailsAreMessagesOfAnyType() throws {
        var status = Google_Rpc_Status()
        status.code = 5
        status.message = "not found"
        let duration = Google_Protobuf_Duration(.seconds(3))
        status.details = [
            try Google_Protobuf_Any(message: duration), try Google_Protobuf_Any(message: Google_Protobuf_Empty()),
        ]
        let again = try Google_Rpc_Status(serializedBytes: status.serializedBytes())
        #expect(again == status)
        #expect(again.details.map { $0.isA(Google_Protobuf_Duration.self) } == [true, false])
        #expect(try Google_Protobuf_Duration(unpackingAny: again.details[0]) == duration)
        let json = try status.jsonString()
        #expect(
            json
                == #"{"code":5,"message":"not found","details":"#
                + #"[{"@type":"type.googleapis.com/google.protobuf.Duration","value":"3s"},"#
                + #"{"@type":"type.googleapis.com/google.protobuf.Empty"}]}"#
        )
    }
}
