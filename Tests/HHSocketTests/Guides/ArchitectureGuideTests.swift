// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The map of `Docs/Architecture.md`, all of whose names exist.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ArchitectureGuideTests {
    /// The cells of the rows of all tables in a section, without their backticks.
    private func rows(ofSection title: String) throws -> [[String]] {
        try DocumentationPage("Docs/Architecture.md", section: title).text.split(separator: "\n")
            .filter { $0.hasPrefix("| ") && $0.hasSuffix(" |") }
            .map { $0.dropFirst(2).dropLast(2).components(separatedBy: " | ") }
            .map { $0.map { cell in cell.trimmingCharacters(in: ["`"]) } }
    }

    @Test func everyFileOfTheMapDeclaresItsName() throws {
        let rows = try self.rows(ofSection: "Where the protocol is implemented").filter {
            $0.last?.hasSuffix(".swift") == true
        }
        #expect(rows.count > 40)
        for row in rows {
            let (name, file) = (row[row.count - 2], row[row.count - 1])
            let source = try DocumentationPage(file).text
            #expect(source.contains(name), "\(file) does not have \(name)")
        }
    }

    @Test func everyPartOfTheProtocolIsOnTheMap() throws {
        let page = try DocumentationPage("Docs/Protocol.md").text
        let headings = page.split(separator: "\n").compactMap { line -> String? in
            guard line.hasPrefix("## ") || line.hasPrefix("### ") else { return nil }
            return String(line.drop { $0 == "#" }.dropFirst())
        }
        let mapped = try self.rows(ofSection: "Where the protocol is implemented").compactMap(\.first)
        // A list for authors of other implementations, and the layouts of presets, which are data.
        let others: Set = ["Minimum implementation", "`plain`", "`tgcd`", "`mars`", "`separated`"]
        for heading in headings where !others.contains(heading) {
            #expect(mapped.contains { $0.hasPrefix("[\(heading)](") }, "\(heading) is not on the map")
        }
    }

    @Test func everyFileOfASymptomExists() throws {
        let section = try DocumentationPage("Docs/Architecture.md", section: "From a symptom to a file and a test").text
        let files = section.matches(of: /`((?:Sources|Tests|Outbox|Scripts)\/[^`]+)`/).map { String($0.output.1) }
        #expect(files.count > 50)
        for file in files {
            let path = packageFolder.appendingPathComponent(file).path
            #expect(FileManager.default.fileExists(atPath: path), "\(file)")
        }
    }

    @Test func theGlossaryIsInOrder() throws {
        let words = try self.rows(ofSection: "Glossary").dropFirst().compactMap(\.first)
        #expect(words.count > 20)
        #expect(words == words.sorted())
    }
}
