import ArgumentParser
import HHSocket
import HHSocketRPC
import HHSocketServer
import NIOCore

struct DemoCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "demo",
        abstract: "Show what it does: two servers and a client over real TCP.",
        discussion: "Each step is a line with its time. A step that does not do what it says ends it with exit code 1."
    )

    func run() async throws {
        Signals.ignoreBrokenPipes()
        var demo = Demo()
        do {
            try await demo.run()
        } catch is StandardOutput.Closed {
            throw ExitCode.failure
        } catch let failure as Demo.Failure {
            StandardError.line("error: the step \"\(failure.step)\" failed: \(failure.reason)")
            throw ExitCode.failure
        }
    }
}
