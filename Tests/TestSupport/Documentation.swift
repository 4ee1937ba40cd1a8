import Foundation

/// The folder of this package.
package let packageFolder = (0..<3).reduce(URL(fileURLWithPath: #filePath)) { url, _ in
    url.deletingLastPathComponent()
}

/// A page of the documentation, whose examples tests repeat word for word.
package struct DocumentationPage: Sendable {
    package let text: String

    /// - Parameter path: Below the package's folder, such as `Docs/Testing.md`.
    package init(_ path: String) throws {
        self.text = try String(contentsOf: packageFolder.appendingPathComponent(path), encoding: .utf8)
    }

    /// A part of a page.
    package init(text: String) {
        self.text = text
    }

    /// Its blocks of code in `language`.
    package func blocks(_ language: String = "swift") -> [String] {
        self.text.components(separatedBy: "```\(language)\n").dropFirst()
            .compactMap { $0.components(separatedBy: "\n```").first }
    }

    /// The blocks of Swift that are not in `source`, where they may be indented by up to three levels.
    ///
    /// - Throws: If the page has no block at all: then it is another page, or written in another way.
    package func examples(missingFrom source: String) throws -> [String] {
        let blocks = self.blocks()
        guard !blocks.isEmpty else { throw Unexpected(description: "the page has no examples") }
        return blocks.filter { block in
            ![0, 4, 8, 12].contains { indentation in
                let lines = block.components(separatedBy: "\n")
                    .map { $0.isEmpty ? "" : String(repeating: " ", count: indentation) + $0 }
                return source.contains("\n" + lines.joined(separator: "\n") + "\n")
            }
        }
    }
}
