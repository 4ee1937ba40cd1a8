// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocketDemo

struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Demonstrate the library: two servers and a client over real TCP.",
        discussion: "Prints one line per step with its time. If a step fails, the exit code is 1."
    )

    func run() async throws {
        do {
            try await Demo { try StandardOutput.write($0 + "\n") }.run()
        } catch let failure as Demo.Failure {
            StandardError.line("error: \(failure)")
            throw ExitCode.failure
        }
    }
}
