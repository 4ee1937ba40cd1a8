// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import Foundation
import HHSocket

struct BenchCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "bench",
        abstract: "Measure calls to a server, or the frame parser.",
        discussion: """
            With HOST:PORT or --self it makes calls, checks each answer, and reports the number of calls per second, their \
            latencies and the CPU time. By default a call starts as soon as another is answered; a slow server then gets \
            fewer calls, and latencies flatter it. With --rate calls start at fixed times, whether or not earlier ones were \
            answered. A wrong answer or a failed call ends it with exit code 1. So does an interruption (SIGINT, SIGTERM), \
            after a report of the measurement so far.

            With --api stream it measures streams: the number of items and of bytes per second, and the CPU time of an item. \
            It checks how long each item is, and how many there were on a stream that has ended.

            With --api message or line it measures messages or lines that the server sends back, on the socket's thread; \
            the report calls one of them and its echo a call.

            --parse parses 64 MiB of frames in 64 KiB pieces that do not align with them, and prints two lines: for frames \
            borrowed in a closure, and for frames owned.
            """
    )

    /// A format, and the argument that selected it.
    struct ChosenFormat {
        var argument = "standard"
        var format = WireFormat.standard
    }

    @OptionGroup var calls: EchoOptions

    @Flag(help: "Measure only the frame parser.")
    var parse = false

    @Option(size: "The length of each payload. (default: 128; with --api typed 60)")
    var bodyLength: Int?

    // The former names of two options, with which Benchmarks/Scripts/bench-compare measures older commits.
    @Option(name: .customLong("body"), help: .hidden, transform: SizeArgument.parse)
    var formerBody: Int?

    @Option(name: .customLong("seconds"), help: .hidden, transform: DurationArgument.parseOrZero)
    var formerSeconds: Duration?

    private var body: Int { self.bodyLength ?? self.formerBody ?? (self.calls.api == .typed ? 60 : 128) }

    @Option(durationOrZero: "How long to measure. (default: 2s; with --parse 1s, twice)")
    var duration: Duration?

    private var givenDuration: Duration? { self.duration ?? self.formerSeconds }

    @Flag(help: "Print one JSON object per line.")
    var json = false

    @OptionGroup var fields: FieldOptions

    @Option(
        help: FormatArgument.help,
        transform: { ChosenFormat(argument: $0, format: try FormatArgument.parse($0)) }
    )
    var format = ChosenFormat()

    func validate() throws {
        guard self.bodyLength == nil || self.formerBody == nil else {
            throw ValidationError("--body is the former name of --body-length; leave one of them out.")
        }
        guard self.duration == nil || self.formerSeconds == nil else {
            throw ValidationError("--seconds is the former name of --duration; leave one of them out.")
        }
        _ = try self.fields.header(in: self.format.format)
        let given = self.calls.given + (self.fields.fields.isEmpty ? [] : ["--field"])
        if self.parse {
            guard given.isEmpty else {
                let options = given.joined(separator: ", ")
                throw ValidationError("\(options): only for calls, and --parse makes none; leave one or the other out.")
            }
            try ParseReport.check(body: self.body)
        } else {
            guard self.calls.server != nil || self.calls.startsServer else {
                throw ValidationError(
                    "Give HOST:PORT or --self to measure calls, or --parse to measure the frame parser."
                )
            }
            try self.calls.check(body: self.body, format: self.format.format)
        }
        if let duration = self.givenDuration {
            guard duration <= EchoOptions.longest else { throw ValidationError("--duration is 10d at most.") }
            guard duration > .zero || self.parse else { throw ValidationError("--duration is 1ms at least.") }
        }
    }

    func run() async throws {
        do {
            if self.parse {
                try self.measureParser()
            } else {
                try await self.measureCalls()
            }
        } catch let code as ExitCode {
            throw code
        } catch let failure as StandardOutput.Failure {
            throw failure
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
    }

    private func measureParser() throws {
        let bench = ParseBench(body: self.body, format: self.format.format)
        let report = ParseReport(json: self.json)
        let seconds = (self.givenDuration ?? .seconds(1)).inSeconds
        try report.print(bench.borrowed(seconds: seconds))
        try report.print(bench.owned(seconds: seconds))
    }

    private func measureCalls() async throws {
        if self.calls.api == .stream {
            try await self.report("items") { try await self.streamResult() }
        } else {
            try await self.report("calls") { try await self.echoResult() }
        }
    }

    /// Measures until the end, or until a signal cancels it, and prints the report.
    private func report<Measured: BenchResult>(
        _ what: String,
        _ measure: @escaping @Sendable () async throws -> Measured
    ) async throws {
        let signals = Signals()
        let measuring = Task { try await measure() }
        // A second signal ends the process at once. The server of --self then ends too.
        let interruption = CallCommand.interruption(signals) { measuring.cancel() }
        defer { interruption.cancel() }
        let result = try await measuring.value
        try StandardOutput.write(self.json ? result.json : result.summary)
        guard !result.isInterrupted else {
            StandardError.line("error: interrupted; the report is of the \(what) until then")
            throw ExitCode.failure
        }
    }

    private func echoResult() async throws -> EchoResult {
        try await self.measured { parameters in
            let showsProgress = StandardError.isTerminal
            return switch parameters.api {
            case .message: try await MessageBench<WebSocketLink>.run(parameters, showsProgress: showsProgress)
            case .line: try await MessageBench<LineLink>.run(parameters, showsProgress: showsProgress)
            default: try await EchoBench(parameters).run(showsProgress: showsProgress)
            }
        }
    }

    private func streamResult() async throws -> StreamResult {
        let direction = self.calls.direction ?? .down
        return try await self.measured { parameters in
            let bench = StreamBench(parameters: parameters, direction: direction)
            return try await bench.run(showsProgress: StandardError.isTerminal)
        }
    }

    /// Measures the server that the options name.
    private func measured<Measured>(_ measure: (EchoParameters) async throws -> Measured) async throws -> Measured {
        do {
            if let server = self.calls.server {
                return try await measure(self.parameters(server, self.calls.serverPid))
            }
            let ownServer = try await OwnServer.start(for: self.calls.api ?? .task, format: self.format.argument)
            defer { ownServer.kill() }
            return try await measure(self.parameters(ownServer.endpoint, ownServer.pid))
        } catch  where Task.isCancelled {
            // Any other error is a consequence of the cancellation.
            throw EchoFailure("interrupted before anything was measured")
        }
    }

    private func parameters(_ server: Endpoint, _ pid: Int32?) throws -> EchoParameters {
        var parameters = self.calls.parameters(
            server: server,
            serverPID: pid,
            format: self.format.format,
            body: self.body,
            seconds: (self.givenDuration ?? .seconds(2)).inSeconds
        )
        parameters.header = try self.fields.header(in: self.format.format)
        return parameters
    }
}
