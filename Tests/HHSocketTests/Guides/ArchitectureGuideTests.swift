// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The names of `Docs/Architecture.md`, the map, and of `Docs/Internals.md`, all of which exist.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ArchitectureGuideTests {
    /// The cells of the rows of all tables in a section, without their backticks.
    private func rows(of page: String, section title: String) throws -> [[String]] {
        try DocumentationPage(page, section: title).text.split(separator: "\n")
            .filter { $0.hasPrefix("| ") && $0.hasSuffix(" |") }
            .map { $0.dropFirst(2).dropLast(2).components(separatedBy: " | ") }
            .map { $0.map { cell in cell.trimmingCharacters(in: ["`"]) } }
    }

    // MARK: Declarations

    /// The declarations of a source, without its comments.
    private struct Declarations {
        /// The types that it declares or extends, by the last component of their names.
        let types: Set<String>
        /// Its functions and initializers, and the properties of its types that are not nested.
        let members: Set<String>

        init(of source: String) {
            let code = source.components(separatedBy: "\n")
                .filter { line in !line.drop { $0 == " " }.hasPrefix("//") }
                .joined(separator: "\n")
            let types = code.matches(of: /(?:class|struct|enum|actor|protocol|extension) ([A-Z][A-Za-z0-9.]*)/)
            self.types = Set(types.compactMap { match in match.output.1.split(separator: ".").last.map { String($0) } })
            let functions = code.matches(of: /func `?([A-Za-z0-9_]+)`?[<(]/).map { String($0.output.1) }
            let properties = code.matches(of: /\n {4}(?:[^ \n]+ )*?(?:var|let) `?([A-Za-z0-9_]+)/)
                .map { String($0.output.1) }
            let initializers = code.contains(/\sinit[?!]?[<(]/) ? ["init"] : []
            self.members = Set(functions + properties + initializers)
        }
    }

    /// The members that sources declare, by the types that their files declare or extend.
    private static func declaredMembers() throws -> [String: Set<String>] {
        var members: [String: Set<String>] = [:]
        let libraries = [
            "HHSocketLink", "HHSocket", "HHSocketRPC", "HHSocketTransfers", "HHSocketSTOMP", "HHSocketServer",
            "HHSocketServerTransfers", "HHSocketOperations", "HHSocketFormats",
        ]
        for library in libraries {
            let start = packageFolder.appendingPathComponent("Sources/\(library)")
            let files = try #require(FileManager.default.enumerator(at: start, includingPropertiesForKeys: nil))
            for file in files.compactMap({ $0 as? URL })
            where file.pathExtension == "swift" && !file.path.contains(".docc/") {
                let declarations = Declarations(of: try String(contentsOf: file, encoding: .utf8))
                for type in declarations.types { members[type, default: []].formUnion(declarations.members) }
            }
        }
        return members
    }

    /// The types in backticks, and the members in backticks with their type, that are not among `members`.
    private static func undeclared(in text: String, _ members: [String: Set<String>]) -> [String] {
        text.matches(of: /`([A-Z][A-Za-z0-9]*)(?:\.([a-z][A-Za-z0-9]*))?`/).compactMap { match -> String? in
            let declared = members[String(match.output.1)]
            let isDeclared: Bool
            if let member = match.output.2 {
                isDeclared = declared?.contains(String(member)) == true
            } else {
                isDeclared = declared != nil
            }
            return isDeclared ? nil : String(match.output.0)
        }
    }

    @Test func declarationsAreFoundAndInventionsAreNot() throws {
        let source = """
            /// Uses func three() of struct Four.
            extension One.Two {
                // let five = 5
                package static var six: Int { 6 }
                func seven<T>(_ eight: T) {
                    let nine = "ten"
                }
            }
            """
        let declarations = Declarations(of: source)
        #expect(declarations.types == ["Two"])
        #expect(declarations.members == ["six", "seven"])
        #expect(Declarations(of: "struct A {\n    init(b: Int) {}\n}").members == ["init"])

        let members = try Self.declaredMembers()
        #expect(Self.undeclared(in: "`Link.flush` → `Ledger`, `PeerPort.init`", members) == [])
        // A function of another type, and names that nothing has.
        let invented = ["`Link.sweepIsDue`", "`Link.flushesEverything`", "`Ledgers.condemn`", "`Ledgers`"]
        #expect(Self.undeclared(in: invented.joined(separator: " ‖ "), members) == invented)
    }

    // MARK: The map

    @Test func everyNameOfTheMapIsDeclared() throws {
        let members = try Self.declaredMembers()
        let flows = try DocumentationPage("Docs/Architecture.md", section: "Three flows").text
        #expect(flows.matches(of: /`[A-Z][A-Za-z]+\.[a-z][A-Za-z]+`/).count > 40)
        #expect(Self.undeclared(in: flows, members) == [])
        for section in ["Owners", "Rules of the house"] {
            let text = try DocumentationPage("Docs/Architecture.md", section: section).text
            #expect(Self.undeclared(in: text, members) == [])
        }
    }

    @Test func theMapIsShort() throws {
        let text = try DocumentationPage("Docs/Architecture.md").text
        // The last line is empty.
        #expect(text.components(separatedBy: "\n").count <= 151)
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

    // MARK: The tables of the internals

    @Test func everyFileOfATableDeclaresItsName() throws {
        let rows = try ["Where the protocol is implemented", "Decisions as values"]
            .flatMap { try self.rows(of: "Docs/Internals.md", section: $0) }
            .filter { $0.last?.hasSuffix(".swift") == true }
        #expect(rows.count > 50)
        for row in rows {
            let (name, file) = (row[row.count - 2], row[row.count - 1])
            let declarations = Declarations(of: try DocumentationPage(file).text)
            let isDeclared = declarations.types.contains(name) || declarations.members.contains(name)
            #expect(isDeclared, "\(file) does not declare \(name)")
        }
    }

    @Test func everyPartOfTheProtocolHasARow() throws {
        let page = try DocumentationPage("Docs/Protocol.md").text
        let headings = page.split(separator: "\n").compactMap { line -> String? in
            guard line.hasPrefix("## ") || line.hasPrefix("### ") else { return nil }
            return String(line.drop { $0 == "#" }.dropFirst())
        }
        let mapped = try self.rows(of: "Docs/Internals.md", section: "Where the protocol is implemented")
            .compactMap(\.first)
        // A list for authors of other implementations, and the layouts of presets, which are data.
        let others: Set = ["Minimum implementation", "`plain`", "`tgcd`", "`mars`", "`separated`"]
        for heading in headings where !others.contains(heading) {
            #expect(mapped.contains { $0.hasPrefix("[\(heading)](") }, "\(heading) is in no row")
        }
    }

    @Test func theGlossaryIsInOrder() throws {
        let words = try self.rows(of: "Docs/Internals.md", section: "Glossary").dropFirst().compactMap(\.first)
        #expect(words.count > 20)
        #expect(words == words.sorted())
    }
}
