// SPDX-License-Identifier: Apache-2.0
package import Foundation

/// The folder of this package.
package let packageFolder = (0..<3).reduce(URL(fileURLWithPath: #filePath)) { url, _ in
    url.deletingLastPathComponent()
}

/// A page of the documentation, whose examples tests repeat word for word.
package struct DocumentationPage: Sendable {
    package let text: String
    /// The page's path below the package's folder; nil for text that is not a page.
    private var path: String?

    /// The paths of all pages, below the package's folder.
    package static var paths: [String] {
        get throws {
            let others = ["Examples/browser/README.md", "Examples/python/README.md", "Outbox/README.md"]
            return try ["README.md", "CONTRIBUTING.md"] + self.pages(in: "Docs") + self.catalogs.flatMap(self.pages)
                + others
        }
    }

    /// The catalogs of the libraries' documentation, below the package's folder.
    package static var catalogs: [String] {
        get throws {
            try ["Sources", "Outbox/Sources"].flatMap { folder in
                try FileManager.default.contentsOfDirectory(atPath: packageFolder.appendingPathComponent(folder).path)
                    .sorted().map { "\(folder)/\($0)/\($0).docc" }
            }
            .filter { FileManager.default.fileExists(atPath: packageFolder.appendingPathComponent($0).path) }
        }
    }

    /// The pages in a folder, below the package's folder, without those of its own folders.
    private static func pages(in folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(atPath: packageFolder.appendingPathComponent(folder).path)
            .filter { $0.hasSuffix(".md") }.sorted().map { "\(folder)/\($0)" }
    }

    /// - Parameter path: The path below the package's folder, such as `Docs/Protocol.md`.
    package init(_ path: String) throws {
        self.text = try String(contentsOf: packageFolder.appendingPathComponent(path), encoding: .utf8)
        self.path = path
    }

    /// A guide of a library.
    ///
    /// - Parameter name: The name of its file in the library's catalog, such as `Testing`.
    package init(guide name: String) throws {
        try self.init(Self.path(ofGuide: name))
    }

    /// One section of a guide of a library.
    package init(guide name: String, section title: String) throws {
        try self.init(Self.path(ofGuide: name), section: title)
    }

    /// A file of Swift that a tutorial shows, as a page with this one block.
    ///
    /// - Parameter name: The file's path below the folder of the tutorials, such as `UnitTests/unit-tests-3.swift`.
    package init(tutorialCode name: String) throws {
        let source = try DocumentationPage("Sources/HHSocketRPC/HHSocketRPC.docc/Tutorials/\(name)").text
        self.init(text: "```swift\n\(source)```\n")
    }

    private static func path(ofGuide name: String) throws -> String {
        guard let path = try self.paths.first(where: { $0.hasSuffix(".docc/\(name).md") }) else {
            throw Unexpected(description: "no library has a guide \(name).md")
        }
        return path
    }

    /// One section of a page.
    ///
    /// - Parameter title: Its heading, of the second level.
    package init(_ path: String, section title: String) throws {
        let page = try DocumentationPage(path)
        let sections = page.text.components(separatedBy: "\n## ")
        guard let section = sections.first(where: { $0.hasPrefix("\(title)\n") }) else {
            throw Unexpected(description: "\(path) has no section \"\(title)\"")
        }
        self.text = section
        self.path = path
    }

    /// A page that is only text.
    package init(text: String) {
        self.text = text
    }

    /// The blocks of code in `language`; with "" the blocks that name none.
    package func blocks(_ language: String = "swift") -> [String] {
        self.allBlocks.filter { $0.language == language }.map(\.text)
    }

    /// A block of code of a page.
    package struct Block {
        /// "" if the page names none.
        package var language: String
        package var text: String
        /// The last line of text before it.
        package var introduction: String
        /// The heading of the second level above it; "" if there is none.
        package var section: String
    }

    /// The blocks of code in their order.
    package var allBlocks: [Block] {
        var blocks: [Block] = []
        var block: (language: Substring, lines: [Substring])?
        var (introduction, section) = ("", "")
        for line in self.text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("```") {
                if let ended = block {
                    blocks.append(
                        Block(
                            language: String(ended.language),
                            text: ended.lines.joined(separator: "\n"),
                            introduction: introduction,
                            section: section
                        )
                    )
                    (block, introduction) = (nil, "")
                } else {
                    block = (line.dropFirst(3), [])
                }
            } else if block != nil {
                block?.lines.append(line)
            } else if line.hasPrefix("## ") {
                (introduction, section) = ("", String(line.dropFirst(3)))
            } else if !line.isEmpty {
                introduction = String(line)
            }
        }
        return blocks
    }

    /// The blocks of Swift that tests contain: all except pieces of manifests, which no test can compile, and the files
    /// of a session, which `make` compiles.
    package var examples: [String] {
        get throws {
            let sections = try self.path.map(Self.sectionsWithSessions) ?? []
            return self.allBlocks
                .filter { $0.language == "swift" && !Self.isOfAManifest($0.text) }
                .filter { !sections.contains($0.section) || $0.introduction.wholeMatch(of: /.*`[^`]+\.swift`:/) == nil }
                .map(\.text)
        }
    }

    /// The sections of a page that the Makefile has `Tests/Pages/session` run.
    package static func sectionsWithSessions(_ path: String) throws -> [String] {
        let makefile = try DocumentationPage("Makefile").text
        return makefile.split(separator: "\n").filter { $0.contains("Tests/Pages/session \(path) ") }
            .flatMap { line in line.matches(of: /'([^']+)'/).map { String($0.output.1) } }
    }

    /// The text without blocks of code.
    package var prose: String {
        var isCode = false
        var lines: [Substring] = []
        for line in self.text.split(separator: "\n", omittingEmptySubsequences: false) {
            if line.hasPrefix("```") {
                isCode.toggle()
            } else if !isCode {
                lines.append(line)
            }
        }
        return lines.joined(separator: "\n")
    }

    /// The modules that a block of Swift imports in its first lines, and its other lines.
    package static func imports(of block: String) -> (modules: [String], rest: String) {
        var lines = block.components(separatedBy: "\n")[...]
        var modules: [String] = []
        while let line = lines.first, line.hasPrefix("import ") {
            modules.append(String(line.dropFirst("import ".count)))
            lines = lines.dropFirst()
        }
        while !modules.isEmpty, lines.first == "" { lines = lines.dropFirst() }
        return (modules, lines.joined(separator: "\n"))
    }

    /// The modules that its blocks of Swift import.
    package var imports: Set<String> {
        Set(self.blocks().flatMap { Self.imports(of: $0).modules })
    }

    /// The blocks of Swift that are not in `source`, where they may be indented by up to three levels. The imports in
    /// the first lines of a block must be among those of `source`, in any place.
    ///
    /// - Throws: If the page has no block at all: then it is the wrong page, or has another format.
    package func examples(missingFrom source: String) throws -> [String] {
        let blocks = try self.examples
        guard !blocks.isEmpty else { throw Unexpected(description: "the page has no examples") }
        lazy var imported = Set(SourceFile.imports(of: source))
        let lined = "\n" + source
        return blocks.filter { block in
            let (modules, rest) = Self.imports(of: block)
            let isThere = [0, 4, 8, 12].contains { indentation in
                let lines = rest.components(separatedBy: "\n")
                    .map { $0.isEmpty ? "" : String(repeating: " ", count: indentation) + $0 }
                return lined.hasBytes(of: "\n" + lines.joined(separator: "\n") + "\n")
            }
            return !isThere || !imported.isSuperset(of: modules)
        }
    }

    /// Returns the reasons why a source file does not prove the page's examples: the examples that it lacks, and the
    /// modules that it imports although no example of the page does. Without such modules, the examples' own imports
    /// provide all names.
    ///
    /// - Parameters:
    ///   - allowed: Modules that the test itself requires, and that provide none of those names.
    ///   - file: The source file, by default the caller's.
    package func shortcomings(
        allowing allowed: Set<String> = [],
        of file: String = #filePath
    ) throws -> [String] {
        let source = try String(contentsOfFile: file, encoding: .utf8)
        let own: Set<String> = ["Testing", "TestSupport", "HHSocketTesting"]
        let others = Set(SourceFile.imports(of: source)).subtracting(self.imports).subtracting(own).subtracting(allowed)
        return try self.examples(missingFrom: source) + others.sorted().map { "the page does not import \($0)" }
    }

    /// Whether a block of Swift is a piece of a `Package.swift`, which no test can compile.
    package static func isOfAManifest(_ block: String) -> Bool {
        block.hasPrefix(".package(") || block.hasPrefix(".product(") || block.hasPrefix(".target(")
            || block.hasPrefix("// swift-tools-version:")
    }
}

extension StringProtocol {
    /// Whether it contains another string, byte by byte. Foundation's `contains` compares characters, and takes a
    /// hundred times as long.
    package func hasBytes(of part: String) -> Bool {
        self.withCString { text in part.withCString { strstr(text, $0) != nil } }
    }
}

/// Functions for tests about a Swift file.
package enum SourceFile {
    /// The modules that it imports, with or without attributes and access levels.
    package static func imports(of source: String) -> [String] {
        source.components(separatedBy: "\n").compactMap { line in
            let words = line.split(separator: " ")
            guard let index = words.firstIndex(of: "import"), index + 1 < words.count,
                words[..<index].allSatisfy({ $0.hasPrefix("@") || $0 == "public" }), !line.hasPrefix(" ")
            else { return nil }
            return String(words[index + 1])
        }
    }
}
