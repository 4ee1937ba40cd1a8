// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import TestSupport

@testable import HHSocketCLI

/// What the process of a command prints whose arguments are wrong, and its exit code.
struct WrongUsage: Equatable, Sendable {
    var exitCode: Int32
    var output: String
    var errors: String

    /// Runs the process.
    init(of arguments: [String], fileID: String = #fileID, line: Int = #line) async throws {
        let outcome = try await Command.run(arguments, fileID: fileID, line: line)
        self.exitCode = outcome.exitCode
        self.output = outcome.text
        self.errors = outcome.errors
    }

    /// Parses the arguments in the tests' process, because starting a process takes ten times as long;
    /// ``WrongUsageTests`` compares both. Only wrong usage that a running command notices needs the process.
    init(parsing arguments: [String], fileID: String = #fileID, line: Int = #line) async throws {
        do throws(HHSocketCommand.Refusal) {
            _ = try HHSocketCommand.command(for: arguments)
        } catch {
            self.init(error)
            return
        }
        try await self.init(of: arguments, fileID: fileID, line: line)
    }

    private init(_ refusal: HHSocketCommand.Refusal) {
        var text = refusal.text
        if !text.isEmpty { text += "\n" }
        let isHelp = refusal.exitCode == .success
        self.exitCode = refusal.exitCode.rawValue
        self.output = isHelp ? text : ""
        self.errors = isHelp ? "" : text
    }
}
