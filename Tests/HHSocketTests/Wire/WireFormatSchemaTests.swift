// SPDX-License-Identifier: Apache-2.0
import HHSocketFormats
import TestSupport
import Testing

@testable import HHSocket
@testable import HHSocketLink

/// Docs/WireFormat.schema.json.
enum FormatSchema {
    static var schema: JSONSchema {
        get throws { JSONSchema(root: try JSONValue(DocumentationPage("Docs/WireFormat.schema.json").text)) }
    }

    static func complaints(about json: String) throws -> [String] {
        try self.schema.complaints(about: JSONValue(json))
    }

    /// Whether a text is not JSON, or not valid by the schema.
    static func refuses(_ json: String) -> Bool {
        (try? self.complaints(about: json)) != []
    }

    /// Descriptions that are malformed in a way that a schema cannot tell: a range that ends before it begins, and two
    /// spellings of one number.
    static let cannotRefuse: Set = [
        #"{"request": [], "response": [], "applicationTypes": [2, 1]}"#,
        #"{"request": [], "response": [], "statuses": {"1": 5, "0x1": 6}}"#,
    ]
}

/// The schema allows the descriptions that the decoder reads. `WireFormatTests` check for each of their examples that
/// it rejects what the decoder rejects.
@Suite struct WireFormatSchemaTests {
    @Test func presetsAreValid() throws {
        for format in WireFormat.presets.values {
            #expect(try FormatSchema.complaints(about: format.json) == [], "\(format)")
        }
    }

    @Test(arguments: [
        PublicProtocolTests.smpp, PublicProtocolTests.someip, PublicProtocolTests.memcached, PublicProtocolTests.kafka,
    ])
    func publicProtocolsAreValid(json: String) throws {
        #expect(try FormatSchema.complaints(about: json) == [])
    }

    @Test func formatsInTheDocumentationAreValid() throws {
        var count = 0
        for path in try DocumentationPage.paths {
            for json in try DocumentationPage(path).blocks("json") {
                guard let members = try? JSONValue(json).object, members["request"] != nil, members["response"] != nil
                else { continue }
                count += 1
                #expect(try FormatSchema.complaints(about: json) == [], "\(path)")
                // One example shows a rejected description.
                let rule = json.contains(#""serials": [0, 65535]"#) ? WireFormatError.Rule.pushIsResponse : nil
                do {
                    _ = try WireFormat(json: json.utf8)
                    #expect(rule == nil, "\(path)")
                } catch {
                    #expect(error.rule == rule, "\(path): \(error)")
                }
            }
        }
        #expect(count == 9)
    }

    @Test func encodedLayoutsAreValid() throws {
        for seed in 0..<UInt64(scaled(200)) {
            var random = SeededGenerator(seed: seed)
            let format = try WireFormat(RandomLayoutTests.randomLayout(&random))
            #expect(try FormatSchema.complaints(about: format.json) == [], "seed \(seed)")
        }
    }

    // MARK: Every key

    /// Formats that together have every key.
    static let everyKey = [
        """
        {
          "$schema": "WireFormat.schema.json",
          "name": "a", "order": "little",
          "request": [{"headerLength": 64, "bytes": 1}, {"field": "type", "bytes": 2, "order": "big"}, "serial",
                      {"field": "length", "digits": "decimal", "width": 6}, {"custom": "token", "bytes": 4}],
          "response": [{"constant": "CAFE"}, {"field": "type", "bytes": 2}, "serial", "status", "length",
                       {"text": ";"}, {"flags": 0, "bytes": 2, "order": "big"}],
          "lengthCounts": "rest", "checksum": {"algorithm": "crc32", "bytes": 8, "order": "big"}, "tail": true,
          "bodyEnd": {"text": "\\r\\n"}, "applicationTypes": [16, 60000], "requestSerials": ["0x32", "0xFFFFFFFF"],
          "okStatus": 0, "statuses": {"1": "noPermission", "0x2": 404},
          "heartbeat": {"type": 3, "answerType": 4, "pingedBy": "both", "clientSerial": 1, "serverSerial": 2,
                        "serials": [1, 2], "pingStatus": 7},
          "push": {"flag": 1, "mask": 3, "serial": 9},
          "cancel": {"type": 5}
        }
        """,
        """
        {"request": ["type", "serial", "length"], "response": ["type", "serial", "length"], "push": {"serial": 1}}
        """,
        """
        {"request": ["type", "serial", "length"], "response": ["type", "serial", "length"], "push": {"serials": [1, 9]}}
        """,
        """
        {"request": ["type", "serial", "length"], "response": ["type", "serial", "length"],
         "push": {"types": [100, "0xC8"], "serial": 1}, "tail": "little", "checksum": "crc32c"}
        """,
    ]

    private static func keys(in value: JSONValue) -> Set<String> {
        switch value {
        case .object(let members): members.reduce(into: Set(members.keys)) { $0.formUnion(self.keys(in: $1.value)) }
        case .list(let elements): elements.reduce(into: []) { $0.formUnion(self.keys(in: $1)) }
        default: []
        }
    }

    @Test func everyKeyOfTheSchemaIsRead() throws {
        var keys: Set<String> = []
        for json in Self.everyKey {
            #expect(throws: Never.self) { try WireFormat(json: json.utf8) }
            #expect(try FormatSchema.complaints(about: json) == [])
            keys.formUnion(Self.keys(in: try JSONValue(json)))
        }
        #expect(try FormatSchema.schema.propertyNames.subtracting(keys) == [])
    }

    @Test func everyKeyOfTheSchemaIsInTheDocumentation() throws {
        let page = try DocumentationPage("Docs/WireFormat.md", section: "JSON reference").text
        for name in try FormatSchema.schema.propertyNames {
            #expect(page.contains("`\(name)`") || page.contains("\"\(name)\":"), "\(name)")
        }
    }

    @Test func everyStatusThatHasANameIsInTheSchema() throws {
        let statuses = try #require(FormatSchema.schema.root.object["properties"]?.object["statuses"])
        let names = try #require(statuses.object["additionalProperties"]?.object["anyOf"]?.list.last?.object["enum"])
        #expect(Set(names.list.compactMap(\.text)) == Set(Status.named.keys))
        #expect(names.list.count == Status.named.count)
    }

    /// The schema's defaults are the values of omitted keys.
    @Test func defaultsAreThoseOfTheDecoder() throws {
        func format(_ member: String) throws -> WireFormat {
            let header = #"["type", "serial", "status", "length"]"#
            return try WireFormat(json: #"{"request": \#(header), "response": \#(header)\#(member)}"#.utf8)
        }
        func text(_ value: JSONValue) -> String {
            switch value {
            case .text(let text): "\"\(text)\""
            case .number(let number): "\(Int(number))"
            case .boolean(let value): "\(value)"
            case .null, .list, .object: "null"
            }
        }
        let properties = try #require(FormatSchema.schema.root.object["properties"]).object
        var count = 0
        for (key, property) in properties {
            guard let value = property.object["default"] else { continue }
            count += 1
            #expect(try format(#", "\#(key)": \#(text(value))"#) == format(""), "\(key)")
        }
        let heartbeat = #", "heartbeat": {"type": 1, "pingedBy": "both""#
        for (key, property) in try #require(properties["heartbeat"]?.object["properties"]).object {
            guard let value = property.object["default"] else { continue }
            count += 1
            #expect(try format(#"\#(heartbeat), "\#(key)": \#(text(value))}"#) == format(heartbeat + "}"), "\(key)")
        }
        #expect(count == 8)
    }

    @Test(arguments: [
        "5", "[]", #"{"$schema": 5, "request": [], "response": []}"#,
        #"{"request": [{"field": "type", "bytes": 5}], "response": []}"#,
        #"{"request": [{"constant": ""}], "response": []}"#, #"{"request": ["type"]}"#,
        #"{"request": [], "response": [], "tail": 1}"#, #"{"request": [], "response": [], "okStatus": 1.5}"#,
    ])
    func nonsenseIsRefused(json: String) {
        #expect(FormatSchema.refuses(json))
        #expect(throws: WireFormatError.self) { try WireFormat(json: json.utf8) }
    }
}
