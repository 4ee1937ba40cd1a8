import ArgumentParser
import Foundation
import HHSocket

struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measure calls to a server, or the frame parser.",
        discussion: """
            With HOST:PORT or --self it makes calls, checks each answer, and tells how many there were per second, how long \
            they took and what CPU time they cost. By default a call starts as soon as another is answered; then a slow \
            server is asked less, and latencies flatter it. --rate asks at fixed times, whatever becomes of the calls \
            before. A wrong answer or a failed call ends it with exit code 1. An interruption (SIGINT, SIGTERM) does so \
            too, after what was measured by then has been told.

            --parse feeds 64 MiB of frames in 64 KiB pieces that do not align with them, and prints two lines: frames \
            borrowed in a closure, and frames owned.
            """
    )

    /// A format, and the words that chose it.
    struct ChosenFormat {
        var argument = "standard"
        var format = WireFormat.standard
    }

    @OptionGroup var calls: EchoOptions

    @Flag(help: "Measure the frame parser alone.")
    var parse = false

    @Option(
        name: .customLong("body"),
        help: ArgumentHelp("The length of each payload. (default: 128; with --api typed 60)", valueName: "bytes")
    )
    var givenBody: Int?

    private var body: Int { self.givenBody ?? (self.calls.api == .typed ? 60 : 128) }

    @Option(help: ArgumentHelp("How long to measure. (default: 2; with --parse 1, twice)", valueName: "seconds"))
    var seconds: Double?

    @Flag(help: "Print a JSON object a line.")
    var json = false

    @Option(
        help: FormatArgument.help,
        transform: { ChosenFormat(argument: $0, format: try FormatArgument.parse($0)) }
    )
    var format = ChosenFormat()

    func validate() throws {
        let given = self.calls.given
        if self.parse {
            guard given.isEmpty else {
                let options = given.joined(separator: ", ")
                throw ValidationError("\(options): about calls, and --parse makes none; leave one or the other out.")
            }
            try ParseReport.check(body: self.body)
        } else {
            guard self.calls.server != nil || self.calls.startsServer else {
                throw ValidationError(
                    "Say what to measure: HOST:PORT or --self for calls, --parse for the frame parser."
                )
            }
            try self.calls.check(body: self.body, format: self.format.format)
        }
        let shortest = self.parse ? 0 : 0.001
        if let seconds = self.seconds, !(seconds >= shortest && seconds <= EchoOptions.longest) {
            throw ValidationError(
                "--seconds is a number from \(shortest) to \(Int(EchoOptions.longest)), not \(seconds)."
            )
        }
    }

    func run() async throws {
        Signals.ignoreBrokenPipes()
        do {
            if self.parse {
                try self.measureParser()
            } else {
                try await self.measureCalls()
            }
        } catch let code as ExitCode {
            throw code
        } catch is StandardOutput.Closed {
            throw ExitCode.failure
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
    }

    private func measureParser() throws {
        let bench = ParseBench(body: self.body, format: self.format.format)
        let report = ParseReport(json: self.json)
        try report.print(bench.borrowed(seconds: self.seconds ?? 1))
        try report.print(bench.owned(seconds: self.seconds ?? 1))
    }

    private func measureCalls() async throws {
        let signals = Signals()
        let measuring = Task { try await self.echoResult() }
        let interruption = Task { [stream = signals.stream] in
            var isFirst = true
            for await _ in stream {
                // A second signal means it. A server of our own notices that we are gone.
                guard isFirst else { Self.exit(withError: ExitCode.failure) }
                isFirst = false
                measuring.cancel()
            }
        }
        defer { interruption.cancel() }
        let result = try await measuring.value
        try StandardOutput.write(self.json ? result.json : result.summary)
        guard !result.isInterrupted else {
            StandardError.line("error: interrupted; this is what was measured by then")
            throw ExitCode.failure
        }
    }

    /// What was measured with the server that the options name.
    private func echoResult() async throws -> EchoResult {
        do {
            if let server = self.calls.server { return try await self.echoResult(server, self.calls.serverPid) }
            let ownServer = try await OwnServer.start(format: self.format.argument)
            defer { ownServer.kill() }
            return try await self.echoResult(ownServer.endpoint, ownServer.pid)
        } catch  where Task.isCancelled {
            // What failed, failed for that reason.
            throw EchoFailure("interrupted before anything was measured")
        }
    }

    private func echoResult(_ server: Endpoint, _ pid: Int32?) async throws -> EchoResult {
        let parameters = self.calls.parameters(
            server: server,
            serverPID: pid,
            format: self.format.format,
            body: self.body,
            seconds: self.seconds ?? 2
        )
        return try await EchoBench(parameters).run(showsProgress: StandardError.isTerminal)
    }
}
