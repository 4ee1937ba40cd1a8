// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketMessage

// Answers the questions of protobuf's `conformance-test-runner`: requests on standard input and responses on standard
// output, each after its length in four bytes, the least significant first. `make conformance-protobuf` builds it.

/// The types that the runner asks for.
let testMessages: [String: any ProtobufMessage.Type] = [
    "protobuf_test_messages.proto2.TestAllTypesProto2": ProtobufTestMessages_Proto2_TestAllTypesProto2.self,
    "protobuf_test_messages.proto3.TestAllTypesProto3": ProtobufTestMessages_Proto3_TestAllTypesProto3.self,
]

/// The types that an `Any` of the cases may contain, and their extensions.
let anyTypes = MessageTypes(
    Array(testMessages.values),
    extensions: [ProtobufTestMessages_Proto2_Extensions_extension_int32]
)

/// Reads so many bytes; nil at the end of the input.
func read(_ count: Int) throws -> [UInt8]? {
    var bytes: [UInt8] = []
    while bytes.count < count {
        guard let more = try FileHandle.standardInput.read(upToCount: count - bytes.count), !more.isEmpty else {
            return nil
        }
        bytes += more
    }
    return bytes
}

func decode<Message: ProtobufMessage>(
    _ type: Message.Type,
    _ request: Conformance_ConformanceRequest
) throws -> Message? {
    switch request.payload {
    case .protobufPayload(let bytes): return try type.init(serializedBytes: bytes)
    case .jsonPayload(let text):
        var options = MessageJSON.DecodingOptions()
        options.ignoreUnknownFields = request.testCategory == .jsonIgnoreUnknownParsingTest
        options.types = anyTypes
        return try type.init(jsonString: text, options: options)
    case .jspbPayload, .textPayload, nil: return nil
    }
}

func answer<Message: ProtobufMessage>(
    _ type: Message.Type,
    _ request: Conformance_ConformanceRequest
) -> Conformance_ConformanceResponse {
    var response = Conformance_ConformanceResponse()
    let message: Message
    do {
        guard let decoded = try decode(type, request) else {
            response.skipped = "neither text format nor JSPB"
            return response
        }
        message = decoded
    } catch {
        response.parseError = "\(error)"
        return response
    }
    do {
        switch request.requestedOutputFormat {
        case .protobuf: response.protobufPayload = try message.serializedData()
        case .json:
            var options = MessageJSON.EncodingOptions()
            options.types = anyTypes
            response.jsonPayload = try message.jsonString(options: options)
        default: response.skipped = "neither text format nor JSPB"
        }
    } catch {
        response.serializeError = "\(error)"
    }
    return response
}

func answer(_ bytes: [UInt8]) throws -> Conformance_ConformanceResponse {
    let request = try Conformance_ConformanceRequest(serializedBytes: bytes)
    // The runner asks which failures it should expect: none.
    if request.messageType == "conformance.FailureSet" { return .with { $0.protobufPayload = Data() } }
    guard let type = testMessages[request.messageType] else {
        return .with { $0.runtimeError = "there is no type \(request.messageType)" }
    }
    return answer(type, request)
}

while let header = try read(4) {
    guard let request = try read(header.reversed().reduce(0) { $0 << 8 | Int($1) }) else { break }
    let response = try answer(request).serializedBytes() as [UInt8]
    let length = (0..<4).map { UInt8(truncatingIfNeeded: response.count >> ($0 * 8)) }
    try FileHandle.standardOutput.write(contentsOf: length + response)
}
