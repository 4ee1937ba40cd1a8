// SPDX-License-Identifier: Apache-2.0
import Foundation
import GeneratedSamples
import HHSocketMessage
import TestSupport
import Testing

/// Our side of `Docs/MigratingFromSwiftProtobuf.md`, word for word.
private struct OurSide {
    func celebrateBirthday(of bytes: [UInt8]) throws -> [UInt8] {
        var animal = try Extended_Animal(serializedBytes: bytes)
        animal.Extended_age += 1
        animal.name = animal.hasName ? animal.name : "nameless"
        return try animal.serializedBytes()
    }

    func describe(_ json: String) -> String {
        var options = MessageJSON.DecodingOptions()
        options.ignoreUnknownFields = true
        do {
            return try Extended_Animal(jsonString: json, options: options).name
        } catch {
            return "not an animal: \(error)"
        }
    }

    func isAnimal(_ bytes: [UInt8]) -> Bool {
        do {
            _ = try Extended_Animal(serializedBytes: bytes)
            return true
        } catch {
            if case .missingRequiredField(let field) = error.reason { print("\(field) is missing") }
            return false
        }
    }
}

/// Both sides of `Docs/MigratingFromSwiftProtobuf.md`, and the statements of its tables about ours.
@Suite struct SwiftProtobufMigrationTests {
    private let page: DocumentationPage
    private let theirs = SwiftProtobufSide()
    private let ours = OurSide()

    init() throws {
        self.page = try DocumentationPage("Docs/MigratingFromSwiftProtobuf.md")
    }

    @Test func bothSidesDoTheSame() throws {
        let young = try self.theirs.animal("Rex", age: 3)
        let (older, same) = try (self.theirs.celebrateBirthday(of: young), self.ours.celebrateBirthday(of: young))
        #expect(try self.theirs.age(of: older) == 4)
        #expect(try self.theirs.age(of: same) == 4)

        let json = #"{"name": "Rex", "heart": {}, "wings": 2}"#
        #expect(self.theirs.describe(json) == "Rex")
        #expect(self.ours.describe(json) == "Rex")
        #expect(self.theirs.describe("[]").hasPrefix("not an animal: "))
        #expect(self.ours.describe("[]").hasPrefix("not an animal: "))

        for bytes in [young, [], [0x0A]] {
            #expect(self.theirs.isAnimal(bytes) == self.ours.isAnimal(bytes))
        }
    }

    /// The names are those of the manifest's minimum version.
    @Test func theVersionIsThatOfTheManifest() throws {
        let manifest = try DocumentationPage("Package.swift").text
        let version = try #require(manifest.firstMatch(of: /apple\/swift-protobuf", from: "([0-9.]+)"/)).output.1
        #expect(self.page.text.contains("[swift-protobuf](https://github.com/apple/swift-protobuf) \(version)."))
    }

    private static let checkout = packageFolder.appendingPathComponent(".build/checkouts/swift-protobuf")

    /// Each name of theirs is in their sources, except those generated from a `.proto`.
    @Test(
        .enabled(
            if: FileManager.default.fileExists(atPath: Self.checkout.path),
            "There is no .build/checkouts/swift-protobuf: its names are NOT TESTED here."
        )
    )
    func theirNamesAreInTheirSources() throws {
        var known: Set<Substring> = ["animal", "chat", "OneOf_Body"]
        for folder in ["Sources/SwiftProtobuf", "Sources/protoc-gen-swift", "Plugins"] {
            let files = try #require(
                FileManager.default.enumerator(
                    at: Self.checkout.appendingPathComponent(folder),
                    includingPropertiesForKeys: nil
                )
            )
            for case let file as URL in files where file.pathExtension == "swift" {
                let text = try String(contentsOf: file, encoding: .utf8)
                known.formUnion(Self.words(of: text))
            }
        }
        known.formUnion(Self.words(of: try DocumentationPage(".build/checkouts/swift-protobuf/Package.swift").text))
        var count = 0
        for row in self.page.text.split(separator: "\n") where row.hasPrefix("| ") {
            for code in row.split(separator: "|")[0].split(separator: "`", omittingEmptySubsequences: false)
                .enumerated()
            where code.offset % 2 == 1 {
                for word in Self.words(of: String(code.element)) where word.count > 1 {
                    let isGenerated = word.contains(/^(Chat_|Extended_|(has|clear)[A-Z])/)
                    count += 1
                    #expect(isGenerated || known.contains(word), "\(word)")
                }
            }
        }
        #expect(count > 80)
    }

    private static func words(of text: String) -> [Substring] {
        text.split { !($0.isASCII && ($0.isLetter || $0.isNumber || $0 == "_")) }.filter { $0.first?.isNumber == false }
    }

    /// Each reason in the table of errors is a reason of `MessageError`.
    @Test func reasonsOfTheTableExist() throws {
        let source = try DocumentationPage("Sources/HHSocketMessage/MessageError.swift").text
        let section = try #require(self.page.text.components(separatedBy: "\n### Errors\n").last)
            .components(separatedBy: "\n## ")[0]
        var count = 0
        for row in section.split(separator: "\n") where row.hasPrefix("| ") {
            for reason in row.split(separator: "|")[1].matches(of: /`\.([a-zA-Z0-9]+)/).map(\.output.1) {
                count += 1
                #expect(source.contains("case \(reason)"), "\(reason)")
            }
        }
        #expect(count > 6)
    }

    /// Each option in the table of the generator is one of ours, or marked as missing.
    @Test func optionsOfTheTableAreOurs() throws {
        let source = try DocumentationPage("Sources/Codegen/GeneratorOptions.swift").text
        for option in ["FileNaming", "Visibility", "ProtoPathModuleMappings", "UseAccessLevelOnImports", "Module"] {
            #expect(self.page.text.contains("`\(option)`") && source.contains("case \"\(option)\":"), "\(option)")
        }
        let others = try #require(
            self.page.text.split(separator: "\n").first { $0.hasSuffix("`ExperimentalHiddenNames` | none |") }
        )
        for option in others.matches(of: /`([A-Za-z]+)`/).map(\.output.1) {
            #expect(!source.contains("\"\(option)\""), "\(option)")
        }
    }

    @Test func statementsOfTheTablesAboutOursHold() throws {
        let animal = try Extended_Animal(serializedBytes: self.theirs.animal("Rex", age: 3))
        // Extensions are unknown fields, and equal by their bytes.
        #expect(!animal.unknownFields.isEmpty && animal.Extended_age == 3)
        var other = animal
        other.unknownFields = UnknownStorage()
        #expect(other != animal && !other.hasExtended_age)
        // Neither reading nor writing works without a required field.
        #expect(throws: MessageError.self) { try Extended_Animal().serializedBytes() }
        #expect(throws: MessageError.self) { try Extended_Animal(serializedBytes: [] as [UInt8]) }
        #expect(try Array(animal.jsonString().utf8) == Array(#"{"name":"Rex","heart":{}}"#.utf8))
        #expect(try Extended_Animal(jsonUTF8Bytes: Array(animal.jsonString().utf8)) == other)
        #expect(Google_Protobuf_Timestamp.with { $0.seconds = 7 }.date.timeIntervalSince1970 == 7)
        #expect(Google_Protobuf_Duration(.seconds(7)).duration == .seconds(7))
    }
}
