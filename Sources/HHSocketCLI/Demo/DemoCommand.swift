// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOCore

struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Demonstrate the library: two servers and a client over real TCP.",
        discussion: "Prints one line per step with its time. If a step fails, the exit code is 1."
    )

    func run() async throws {
        var demo = Demo()
        do {
            try await demo.run()
        } catch let failure as Demo.Failure {
            StandardError.line("error: the step \"\(failure.step)\" failed: \(failure.reason)")
            throw ExitCode.failure
        }
    }
}
