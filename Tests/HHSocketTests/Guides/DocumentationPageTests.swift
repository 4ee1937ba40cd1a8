import TestSupport
import Testing

/// What the tests of the pages rest on.
@Suite struct DocumentationPageTests {
    @Test func examplesThatAreNowhereAreNamed() throws {
        let page = try DocumentationPage("Docs/Heartbeats.md")
        let blocks = page.blocks()
        let first = try #require(blocks.first)
        #expect(try page.examples(missingFrom: "") == blocks)
        let lines = first.split(separator: "\n", omittingEmptySubsequences: false)
        let indented = lines.map { $0.isEmpty ? "" : "    \($0)" }.joined(separator: "\n")
        #expect(try page.examples(missingFrom: "{\n\(indented)\n}") == Array(blocks.dropFirst()))
        #expect(try page.examples(missingFrom: "{\n\(indented)x\n}") == blocks)
    }

    @Test func pageWithoutExamplesIsAnotherPage() throws {
        let page = try DocumentationPage("CHANGELOG.md")
        #expect(throws: Unexpected.self) { try page.examples(missingFrom: "") }
    }
}
