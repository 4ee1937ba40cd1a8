// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

/// Rules for the sources of tests, which keep one hanging test from holding up all others.
@Suite struct TestSourceTests {
    private static let sources: [(path: String, text: String)] = {
        ["Tests", "Outbox/Tests"].flatMap { folder in
            let url = packageFolder.appendingPathComponent(folder)
            let paths = FileManager.default.enumerator(atPath: url.path)?.compactMap { $0 as? String } ?? []
            return paths.filter { $0.hasSuffix(".swift") }.sorted().compactMap { path in
                (try? String(contentsOf: url.appendingPathComponent(path), encoding: .utf8)).map {
                    ("\(folder)/\(path)", $0)
                }
            }
        }
    }()

    @Test func thereAreSources() {
        #expect(Self.sources.count > 300)
    }

    /// The limit cancels the test, which ends all waits of the support code. Suites within a suite inherit its limit. A
    /// machine that stalls again and again may need a minute for what usually takes a second.
    @Test func suitesThatWaitForOthersHaveATimeLimit() throws {
        let suite = #/(?m)^@Suite(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))/#
        var count = 0
        for (path, text) in Self.sources {
            for match in text.matches(of: suite) where match.1.contains(".io") || match.1.contains(".exclusive") {
                count += 1
                let minutes = match.1.firstMatch(of: #/\.timeLimit\(\.minutes\((\d*)/#)?.1
                #expect(minutes.map { $0.isEmpty || Int($0) ?? 0 >= 5 } == true, "\(path): \(match.1)")
            }
        }
        #expect(count > 150)
    }

    /// `task.value` ignores cancellation: such a body outlives its deadline, and then the watchdog ends the process.
    @Test func noDeadlineIsForTheValueOfATask() throws {
        let body = #/withDeadline\([^\n{]*\{\s*(?:try )?await \w+\.value\s*\}/#
        for (path, text) in Self.sources where !path.hasSuffix("/TestSourceTests.swift") {
            #expect(text.firstMatch(of: body) == nil, "\(path) needs waitForValue(of:)")
        }
    }
}
