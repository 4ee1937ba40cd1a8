import ArgumentParser
import HHSocket
import HHSocketHello

/// What `bench` is told about calls.
struct EchoOptions: ParsableArguments {
    static let defaultInFlight = 64
    static let connectionLimit = 1_000
    static let inFlightLimit = 1_000_000
    /// In bytes; each body in flight is held twice.
    static let memoryLimit = 4 << 30
    static let longest = 1e6

    @Argument(
        help: ArgumentHelp(
            "A server that echoes type \(BuiltIn.echo), as `hhsocket serve` does; a Unix domain socket as unix:PATH.",
            valueName: "host:port"
        ),
        transform: Self.endpoint
    )
    var server: Endpoint?

    @Flag(name: .customLong("self"), help: "Start a server of its own, in another process, and end it afterwards.")
    var startsServer = false

    @Option(
        help: ArgumentHelp(
            "How many calls to have in flight on each connection; with --rate, at most. (default: 64)",
            valueName: "calls"
        )
    )
    var inFlight: Int?

    @Option(help: ArgumentHelp("How many clients to run, each with a connection and a thread. (default: 1)"))
    var connections: Int?

    @Option(
        help: ArgumentHelp(
            """
            Start so many calls per second in all, evenly, instead of one as soon as another is answered. Latency then \
            counts from when a call was to start, also if --in-flight kept it waiting.
            """,
            valueName: "calls/s"
        )
    )
    var rate: Double?

    @Option(help: ArgumentHelp("How long to make calls before they count. (default: 0.5)", valueName: "seconds"))
    var warmup: Double?

    @Option(
        help: ArgumentHelp(
            """
            How calls are made: tasks with completion handlers, Swift tasks that await, or the same with a generated client \
            and Protobuf messages, type \(Hhsocket_Bench.Methods.echo.type). (default: task)
            """
        )
    )
    var api: EchoParameters.API?

    @Option(
        help: ArgumentHelp(
            """
            Where completion handlers run. inline: on the socket's own thread. default: on the library's default queue, to \
            which what one read brings is handed over in one block. (default: inline, which measures the calls alone)
            """
        )
    )
    var callbacks: EchoParameters.Callbacks?

    @Option(
        help: ArgumentHelp("The server's process on this machine: its CPU time is told too (Linux).", valueName: "pid")
    )
    var serverPid: Int32?

    @Flag(
        help: """
            Say hello first, and agree on metadata and compression; a server that does not is an error. The calls that are \
            measured use neither.
            """
    )
    var hello = false

    @Option(help: ArgumentHelp("What to call the server in the report. (default: hhsocket)", valueName: "name"))
    var peer: String?

    /// The options that were given, as they are written.
    var given: [String] {
        let options: [(isGiven: Bool, name: String)] = [
            (self.server != nil, "HOST:PORT"), (self.startsServer, "--self"), (self.inFlight != nil, "--in-flight"),
            (self.connections != nil, "--connections"), (self.rate != nil, "--rate"), (self.warmup != nil, "--warmup"),
            (self.api != nil, "--api"), (self.callbacks != nil, "--callbacks"), (self.serverPid != nil, "--server-pid"),
            (self.hello, "--hello"), (self.peer != nil, "--peer"),
        ]
        return options.filter(\.isGiven).map(\.name)
    }

    /// Says what is wrong with the options of calls with bodies of `body` bytes.
    func check(body: Int, format: WireFormat) throws {
        guard (self.server != nil) != self.startsServer else {
            throw ValidationError("HOST:PORT names a server and --self starts one: leave one of them out.")
        }
        try FormatArgument.validate(type: BuiltIn.echo, in: format)
        guard !self.hello || format.supportsHello else {
            throw ValidationError("The format \(format) cannot have hello: \(WireFormat.helloNeeds).")
        }
        if self.api == .typed, !MessageCaller.lengths.contains(body) {
            throw ValidationError(
                """
                --body is a number of bytes from \(MessageCaller.lengths.lowerBound), the shortest message, to \
                \(MessageCaller.lengths.upperBound), not \(body).
                """
            )
        }
        guard EchoBody.lengths.contains(body) else {
            throw ValidationError(
                """
                --body is a number of bytes from \(EchoBody.lengths.lowerBound), which hold the call's number, to \
                \(EchoBody.lengths.upperBound), not \(body).
                """
            )
        }
        try self.check(self.inFlight, "--in-flight", 1...Self.inFlightLimit)
        try self.check(self.connections, "--connections", 1...Self.connectionLimit)
        let bodies = (self.inFlight ?? Self.defaultInFlight) * (self.connections ?? 1)
        guard 2 * bodies * body <= Self.memoryLimit else {
            throw ValidationError(
                """
                \(bodies) bodies of \(body) bytes in flight need more than \(Self.memoryLimit >> 30) GiB; make --body, \
                --in-flight or --connections smaller.
                """
            )
        }
        if let rate = self.rate, !(rate > 0 && rate <= 1e9) {
            throw ValidationError("--rate is a number of calls per second above 0, 1000000000 at most, not \(rate).")
        }
        if let warmup = self.warmup, !(warmup >= 0 && warmup <= Self.longest) {
            throw ValidationError("--warmup is a number of seconds from 0 to \(Int(Self.longest)), not \(warmup).")
        }
        guard self.callbacks == nil || self.api ?? .task == .task else {
            let api = self.api?.rawValue ?? ""
            throw ValidationError("--callbacks is about completion handlers, and --api \(api) has none; leave it out.")
        }
        guard self.serverPid == nil || !self.startsServer else {
            throw ValidationError("--self knows its server's process; leave --server-pid out.")
        }
        if let pid = self.serverPid, pid < 1 {
            throw ValidationError("--server-pid is a process number, 1 or more, not \(pid).")
        }
    }

    private func check(_ number: Int?, _ name: String, _ range: ClosedRange<Int>) throws {
        if let number, !range.contains(number) {
            throw ValidationError("\(name) is a number from \(range.lowerBound) to \(range.upperBound), not \(number).")
        }
    }

    /// What is to be measured.
    func parameters(
        server: Endpoint,
        serverPID: Int32?,
        format: WireFormat,
        body: Int,
        seconds: Double
    ) -> EchoParameters {
        let api = self.api ?? .task
        return EchoParameters(
            server: server,
            serverPID: serverPID,
            peer: self.peer ?? "hhsocket",
            format: format,
            hello: self.hello,
            body: body,
            inFlight: self.inFlight ?? Self.defaultInFlight,
            connections: self.connections ?? 1,
            warmup: self.warmup ?? 0.5,
            seconds: seconds,
            api: api,
            callbacks: api == .task ? self.callbacks ?? .inline : nil,
            rate: self.rate
        )
    }

    private static func endpoint(_ text: String) throws -> Endpoint {
        guard let endpoint = Endpoint(text) else {
            throw ValidationError(
                "\"\(text)\" is no server: write HOST:PORT, an IPv6 address in brackets, or unix:PATH."
            )
        }
        return endpoint
    }
}
