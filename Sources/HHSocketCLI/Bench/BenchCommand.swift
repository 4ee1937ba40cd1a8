import ArgumentParser
import Foundation
import HHSocket

struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measure the frame parser.",
        discussion: """
            --parse feeds 64 MiB of frames in 64 KiB pieces that do not align with them, and prints two lines: frames \
            borrowed in a closure, and frames owned.
            """
    )

    /// The largest payload of which one frame fits the stream.
    static let largestBody =
        ParseBench.streamLength - FrameEncoder(direction: .request).encodedLength(payloadLength: 0)

    @Flag(help: "Measure the frame parser alone.")
    var parse = false

    @Option(help: ArgumentHelp("The length of each frame's payload.", valueName: "bytes"))
    var body = 128

    @Option(help: ArgumentHelp("How long to measure each.", valueName: "seconds"))
    var seconds = 1.0

    @Flag(help: "Print a JSON object a line.")
    var json = false

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    func validate() throws {
        guard self.parse else { throw ValidationError("Say what to measure: --parse.") }
        guard (0...Self.largestBody).contains(self.body) else {
            throw ValidationError("--body is a number of bytes from 0 to \(Self.largestBody), not \(self.body).")
        }
        guard self.seconds >= 0, self.seconds <= 1e6 else {
            throw ValidationError("--seconds is a number from 0 to 1000000, not \(self.seconds).")
        }
    }

    func run() async throws {
        Signals.ignoreBrokenPipes()
        let bench = ParseBench(body: self.body, format: self.format)
        do {
            try self.print(bench.borrowed(seconds: self.seconds))
            try self.print(bench.owned(seconds: self.seconds))
        } catch is StandardOutput.Closed {
            throw ExitCode.failure
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
    }

    private func print(_ result: ParseBench.Result) throws {
        guard self.json else {
            let numbers = String(
                format: "%.0f frames/s, %.3f GB/s (%d B bodies, %.2f s)",
                result.framesPerSecond,
                result.gigabytesPerSecond,
                result.body,
                result.seconds
            )
            return try StandardOutput.write("\(result.peer): \(numbers)\n")
        }
        var object = JSONLine()
        object.add("peer", result.peer)
        object.add("workload", "parse")
        object.add("body", result.body)
        object.add("frames_per_s", result.framesPerSecond, digits: 0)
        object.add("gb_per_s", result.gigabytesPerSecond, digits: 3)
        object.add("seconds", result.seconds, digits: 3)
        object.add("frames", result.frames)
        try StandardOutput.write(object.line)
    }
}
