// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// The functions on which tests of pages rely, and the rules for every page.
@Suite struct DocumentationPageTests {
    // MARK: What the tests rest on

    @Test func examplesThatAreNowhereAreNamed() throws {
        let page = try DocumentationPage(guide: "Heartbeats")
        let blocks = page.blocks()
        let (modules, first) = DocumentationPage.imports(of: try #require(blocks.first))
        #expect(modules == ["HHSocketRPC"])
        #expect(try page.examples(missingFrom: "") == blocks)
        let lines = first.split(separator: "\n", omittingEmptySubsequences: false)
        let indented = lines.map { $0.isEmpty ? "" : "    \($0)" }.joined(separator: "\n")
        #expect(try page.examples(missingFrom: "import HHSocketRPC\n{\n\(indented)\n}") == Array(blocks.dropFirst()))
        // The import is missing, or a line differs.
        #expect(try page.examples(missingFrom: "{\n\(indented)\n}") == blocks)
        #expect(try page.examples(missingFrom: "import HHSocketRPC\n{\n\(indented)x\n}") == blocks)
    }

    @Test func pageWithoutExamplesIsAnotherPage() throws {
        let page = try DocumentationPage("CHANGELOG.md")
        #expect(throws: Unexpected.self) { try page.examples(missingFrom: "") }
    }

    @Test func importsThatAPageDoesNotNameAreShortcomings() throws {
        let page = DocumentationPage(text: "```swift\nimport HHSocketRPC\n\nlet one = 1\n```\n")
        let folder = try TemporaryFolder()
        let source = "import HHSocketRPC\nimport NIOCore\n@testable import HHSocket\nimport Testing\n\nlet one = 1\n"
        let file = try folder.write(source, to: "Some.swift")
        let others = ["HHSocket", "NIOCore"]
        #expect(try page.shortcomings(of: file) == others.map { "the page does not import \($0)" })
        #expect(try page.shortcomings(allowing: ["HHSocket", "NIOCore"], of: file) == [])
        withExtendedLifetime(folder) {}
    }

    @Test func blocksAreThoseOfTheLanguage() {
        let page = DocumentationPage(text: "a\n```swift\nlet a = 1\n```\nb\n```\nc\n```\n```json\n{}\n```\nd")
        #expect(page.blocks() == ["let a = 1"])
        #expect(page.blocks("") == ["c"])
        #expect(page.blocks("json") == ["{}"])
        #expect(page.prose == "a\nb\nd")
    }

    @Test func filesOfASessionAreNoExamples() throws {
        let page = try DocumentationPage("Docs/Codegen.md")
        let sections = try DocumentationPage.sectionsWithSessions("Docs/Codegen.md")
        #expect(!sections.isEmpty)
        let files = page.allBlocks.filter { sections.contains($0.section) && $0.language == "swift" }.map(\.text)
        #expect(files.count > 2)
        #expect(try Set(files).isDisjoint(with: page.examples))
        // Blocks that are not introduced as files are examples there, too.
        #expect(try DocumentationPage("README.md").examples.count > 1)
        #expect(try DocumentationPage.sectionsWithSessions("Docs/CLI.md").isEmpty)
    }

    @Test(arguments: [
        ("## Go-away: servers that shut down", "go-away-servers-that-shut-down"),
        ("### `plain`", "plain"), ("# The [wire](x.md)", "the-wire"), ("## TLS on a server", "tls-on-a-server"),
    ])
    func anchors(heading: String, anchor: String) {
        #expect(Self.anchors(in: DocumentationPage(text: heading)) == [anchor])
    }

    // MARK: Links

    /// The anchors that GitHub and others generate for a page's headings.
    private static func anchors(in page: DocumentationPage) -> [String] {
        var count: [String: Int] = [:]
        return page.prose.split(separator: "\n").compactMap { line in
            guard let heading = line.wholeMatch(of: /#+ (.*)/)?.output.1 else { return nil }
            let text = String(heading).replacing(/\[([^\]]*)\]\([^)]*\)/) { $0.output.1 }
            let anchor = text.lowercased()
                .filter { $0.isLetter || $0.isNumber || $0 == " " || $0 == "-" || $0 == "_" }
                .replacingOccurrences(of: " ", with: "-")
            defer { count[anchor, default: 0] += 1 }
            return count[anchor].map { "\(anchor)-\($0)" } ?? anchor
        }
    }

    @Test func everyRelativeLinkAndAnchorResolves() throws {
        var checked = 0
        var anchors: [String: Set<String>] = [:]
        for path in try DocumentationPage.paths + ["CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md"] {
            let page = try DocumentationPage(path)
            let folder = packageFolder.appendingPathComponent(path).deletingLastPathComponent()
            // Code is excluded.
            let text = page.prose.replacing(/`[^`\n]*`/, with: "code")
            for link in text.matches(of: /\]\(([^)\s]+)\)/).map({ String($0.output.1) }) where !link.contains("://") {
                checked += 1
                let pieces = link.split(separator: "#", maxSplits: 1, omittingEmptySubsequences: false).map(String.init)
                let this = packageFolder.appendingPathComponent(path)
                let target = pieces[0].isEmpty ? this : folder.appendingPathComponent(pieces[0])
                guard FileManager.default.fileExists(atPath: target.path) else {
                    Issue.record("\(path): \(link) leads nowhere")
                    continue
                }
                guard pieces.count > 1 else { continue }
                let file = target.standardizedFileURL.path
                let known =
                    try anchors[file]
                    ?? Set(Self.anchors(in: DocumentationPage(text: String(contentsOf: target, encoding: .utf8))))
                anchors[file] = known
                #expect(known.contains(pieces[1]), "\(path): there is no heading for \(link)")
            }
        }
        #expect(checked > 100)
    }

    /// A separator too many hides the end of its row, and an asterisk too many is shown.
    @Test func rowsHaveTheColumnsOfTheirHeadingAndBoldTextIsBold() throws {
        var checked = 0
        for path in try DocumentationPage.paths + ["CHANGELOG.md", "CODE_OF_CONDUCT.md", "SECURITY.md"] {
            var columns: Int?
            for line in try DocumentationPage(path).prose.split(separator: "\n", omittingEmptySubsequences: false) {
                // Two begin bold text, three show one.
                let words = line.drop { $0 == "*" }
                #expect(line.count - words.count != 3 || words.contains("***"), "\(path): \(line)")
                guard line.hasPrefix("|") else {
                    columns = nil
                    continue
                }
                let count = line.replacing("\\|", with: "").split(separator: "|", omittingEmptySubsequences: false)
                    .count
                #expect(count == columns ?? count, "\(path): \(line)")
                columns = columns ?? count
                checked += 1
            }
        }
        #expect(checked > 500)
    }

    @Test func noPageIsLeftOutOfTheIndex() throws {
        let index = try DocumentationPage("Docs/README.md").text
        let others = ["Docs/README.md", "README.md", "Outbox/README.md"]
        for path in try DocumentationPage.paths where !others.contains(path) && !Self.isLibraryPage(path) {
            let link = path.hasPrefix("Docs/") ? String(path.dropFirst("Docs/".count)) : "../\(path)"
            #expect(index.contains("(\(link))"), "Docs/README.md has no link to \(path)")
        }
        #expect(try DocumentationPage("README.md").text.contains("(Docs/README.md)"))
    }

    /// Whether a page of a catalog is about its library or one of its types, rather than a guide.
    private static func isLibraryPage(_ path: String) -> Bool {
        path.contains(".docc/") && (try? DocumentationPage(path).text.hasPrefix("# ``")) == true
    }

    // MARK: Code

    /// The sources of tests, and of the example that a page quotes and that has tests of its own, with their paths.
    private static func testSources() throws -> [(path: String, text: String)] {
        try ["Tests", "Outbox/Tests", "Examples/App"].flatMap { folder in
            let start = packageFolder.appendingPathComponent(folder)
            let files = try #require(FileManager.default.enumerator(at: start, includingPropertiesForKeys: nil))
            return try files.compactMap { $0 as? URL }.filter { $0.pathExtension == "swift" }
                .map { ($0.path, try String(contentsOf: $0, encoding: .utf8)) }
        }
    }

    /// The files of packages that pages show unchanged, which `make test-readme` and `make test-first-server` build and
    /// run.
    private static func filesOnPages() throws -> Set<String> {
        let files = try ["Greeter", "Notices"].flatMap { example in
            let start = packageFolder.appendingPathComponent("Examples/\(example)")
            let files = try #require(FileManager.default.enumerator(at: start, includingPropertiesForKeys: nil))
            return files.compactMap { $0 as? URL }.filter { $0.pathExtension == "swift" }
        }
        return Set(try files.map { String(try String(contentsOf: $0, encoding: .utf8).dropLast()) })
    }

    /// Examples compile, and do what the page says, because a test that names the page has them, or because they are
    /// files of a package that is run.
    @Test func everyBlockOfSwiftIsHeldByATest() throws {
        let sources = try Self.testSources()
        let files = try Self.filesOnPages()
        var count = 0
        for path in try DocumentationPage.paths {
            let page = try DocumentationPage(path)
            let name = path.firstMatch(of: /\.docc\/(.*)\.md/).map { "guide: \"\($0.output.1)\"" } ?? path
            let guides = sources.filter { $0.text.hasBytes(of: name) }
            for block in try page.examples {
                count += 1
                let alone = DocumentationPage(text: "```swift\n\(block)\n```\n")
                let isHeld =
                    try files.contains(block) || guides.contains { try alone.examples(missingFrom: $0.text).isEmpty }
                #expect(isHeld, "\(path): no test has this example:\n\(block)")
            }
        }
        #expect(count > 80)
    }

    @Test func theFirstExampleOfAPageSaysWhatToImport() throws {
        for path in try DocumentationPage.paths {
            guard let first = try DocumentationPage(path).examples.first else { continue }
            #expect(!DocumentationPage.imports(of: first).modules.isEmpty, "\(path): \(first)")
        }
    }

    /// Pieces of manifests name only products and traits of this package.
    @Test func piecesOfManifestsNameWhatThereIs() throws {
        let manifest = try DocumentationPage("Package.swift").text
        let blocks = try DocumentationPage.paths.flatMap { try DocumentationPage($0).blocks() }
            .filter(DocumentationPage.isOfAManifest)
        #expect(blocks.count >= 4)
        for block in blocks {
            for product in block.matches(of: /\.product\(name: "([^"]+)", package: "([^"]+)"\)/) {
                #expect(manifest.contains(".library(name: \"\(product.output.1)\""))
                #expect(product.output.2 == "hhsocket")
            }
            for plugin in block.matches(of: /\.plugin\(name: "([^"]+)", package: "hhsocket"\)/) {
                #expect(manifest.contains(".plugin(name: \"\(plugin.output.1)\""))
            }
            for traits in block.matches(of: /traits: \["([^"]+)"\]/) {
                #expect(manifest.contains(".trait(name: \"\(traits.output.1)\""))
            }
            for platform in block.matches(of: /\.(?:macOS|iOS)\(\.v[0-9]+\)/) {
                #expect(manifest.contains(platform.output))
            }
        }
    }

    @Test func theReadmeNamesTheToolchainOfTheManifest() throws {
        let first = try #require(try DocumentationPage("Package.swift").text.split(separator: "\n").first)
        let version = try #require(first.firstMatch(of: /swift-tools-version: ([0-9.]+)/)).output.1
        let readme = try DocumentationPage("README.md")
        #expect(readme.text.contains("Required: Swift \(version);"))
        #expect(readme.blocks().contains { $0.hasPrefix(first) })
    }

    // MARK: Commands

    @Test func everyTargetOfMakeThatAPageNamesExists() throws {
        let makefile = try DocumentationPage("Makefile").text
        let targets = Set(makefile.matches(of: /\n([a-z][a-z-]*):/).map { String($0.output.1) })
        var named: Set<String> = []
        for path in try DocumentationPage.paths {
            let page = try DocumentationPage(path)
            let lines = ["", "sh"].flatMap { page.blocks($0) }.flatMap { $0.components(separatedBy: "\n") }
            let spans = page.prose.split(separator: "`", omittingEmptySubsequences: false).enumerated()
                .compactMap { $0.offset % 2 == 1 ? String($0.element) : nil }
            let targets = (lines + spans).compactMap { $0.prefixMatch(of: /make ([a-z][a-z-]*)/)?.output.1 }
            named.formUnion(targets.map { String($0) })
        }
        #expect(named.count > 10)
        #expect(named.subtracting(targets) == [])
    }

    @Test func everyTargetOfMakeAndSuiteThatAWorkflowNamesExists() throws {
        let makefile = try DocumentationPage("Makefile").text
        let targets = Set(makefile.matches(of: /\n([a-z][a-z-]*):/).map { String($0.output.1) })
        let sources = try Self.testSources().map(\.text)
        for workflow in ["api", "apple", "docs", "linux"] {
            let text = try DocumentationPage(".github/workflows/\(workflow).yml").text
            for target in text.matches(of: /make ([a-z][a-z-]+)/).map({ String($0.output.1) }) {
                // The package of that name is not one of its targets.
                #expect(targets.contains(target) || target == "git", "\(workflow).yml: make \(target)")
            }
            for suite in text.matches(of: /\b[A-Z][A-Za-z]+Tests\b/).map({ String($0.output) }) {
                #expect(sources.contains { $0.contains("struct \(suite)") }, "\(workflow).yml: \(suite)")
            }
        }
    }

    /// The transcript of `make demo` has the steps that the demo has.
    @Test func theDemosTranscriptHasItsSteps() throws {
        let demo = try DocumentationPage("Sources/HHSocketDemo/Demo.swift").text
        let steps = demo.matches(of: /self\.step\("([a-z ]+)"\)/).map { String($0.output.1) }
        let transcript = try #require(try DocumentationPage("README.md").blocks("").first { $0.contains(" ms  ") })
        let lines = transcript.split(separator: "\n").map { line in
            String(line.drop { $0.isWhitespace || $0.isNumber || $0 == "." }.dropFirst("ms  ".count))
        }
        #expect(steps.count == lines.count && steps.count > 5)
        for (step, line) in zip(steps, lines) { #expect(line.hasPrefix("\(step)  ")) }
    }

    // MARK: Numbers

    /// A number of tests would become outdated.
    @Test func theReadmeDoesNotCountTests() throws {
        let text = try DocumentationPage("README.md").text
        #expect(text.matches(of: /[0-9][0-9,]* (?:tests|suites)|[0-9][0-9,]* in [0-9]+ suites/).isEmpty)
    }
}
