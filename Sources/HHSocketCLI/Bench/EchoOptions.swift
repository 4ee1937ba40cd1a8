// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketMessage

/// The options of `bench` that concern calls.
struct EchoOptions: ParsableArguments {
    static let defaultInFlight = 64
    static let connectionLimit = 1_000
    static let inFlightLimit = 1_000_000
    static let defaultStreams = 1
    /// The number of streams that a server allows on a connection by default.
    static let streamLimit = 100
    static let leastWindow = 1_024
    static let largestWindow = 1 << 30
    /// The greatest number of calls per second beside streams.
    static let largestRateBeside = 1e6
    /// The limit of memory for bodies, in bytes; each body in flight is held twice.
    static let memoryLimit = 4 << 30
    /// The longest duration: ten days.
    static let longest = Duration.seconds(864_000)

    @Argument(
        help: .value(
            "host:port",
            """
            A server that echoes type \(BuiltIn.echo), as `hhsocket serve` does, or that of --type; a Unix domain socket as \
            unix:PATH. With --api message ws://HOST:PORT/PATH, as `hhsocket ws-serve` has it.
            """
        ),
        transform: Self.endpoint
    )
    var server: Endpoint?

    @Flag(name: .customLong("self"), help: "Start a server in another process, measure it, and end it.")
    var startsServer = false

    @Option(
        help: .value("type", "The type of the calls, which the server echoes. (default: \(BuiltIn.echo))"),
        transform: TypeArgument.parse
    )
    var type: UInt32?

    @Option(
        number: """
            The number of calls in flight on each connection, with --rate the largest; with --api stream the number of \
            streams. (default: 64; with --api stream 1)
            """
    )
    var inFlight: Int?

    @Option(number: "The number of clients, each with its own connection. (default: 1)")
    var connections: Int?

    @Option(number: "The number of threads that the clients share. (default: one for each connection)")
    var threads: Int?

    @Option(
        help: .value(
            "calls/s",
            """
            The number of calls to start per second in total, at even intervals, instead of one as soon as another is \
            answered. Latency then counts from the time at which a call was due, even if --in-flight delayed it.
            """
        )
    )
    var rate: Double?

    @Option(durationOrZero: "How long to make calls before the measurement. (default: 500ms)")
    var warmup: Duration?

    @Option(
        help: """
            How calls are made: by tasks with completion handlers, with handlers but no tasks, by Swift tasks that await, \
            or by these with a generated client and Protobuf messages, type \(Hhsocket_Bench.Methods.echo.type). With \
            stream Swift tasks send and await the items of streams, types \(BuiltIn.streamOfItems), \
            \(BuiltIn.countOfItems) and \(BuiltIn.echoStream). message: a WebSocket's messages instead, and line: lines, \
            which the server sends back. (default: task)
            """
    )
    var api: EchoParameters.API?

    @Option(
        help: """
            With --api stream: who sends the items. both: the client, and the server sends each back. (default: down)
            """
    )
    var direction: StreamDirection?

    @Option(
        size: "With --api stream: the bytes that the server may send on a stream beyond those taken. (default: 512K)"
    )
    var window: Int?

    @Option(
        help: .value(
            "calls/s",
            """
            With --api stream: the number of plain calls per second beside the streams, of 16 bytes, on all connections \
            together, whose latency is reported. (default: none)
            """
        )
    )
    var calls: Double?

    @Option(
        help: """
            Where completion handlers run. inline: on the socket's thread. default: on the library's default queue, which \
            gets all answers of one read in one block. (default: inline)
            """
    )
    var callbacks: EchoParameters.Callbacks?

    @Option(
        help: """
            Where Swift tasks that await run. global: on Swift's thread pool. socket: on the socket's thread, which costs no \
            change of threads. (default: global)
            """
    )
    var executor: EchoParameters.Executor?

    @Option(help: .value("pid", "The server's process on this machine, to report its CPU time too (Linux)."))
    var serverPid: Int32?

    @Flag(
        help: """
            Perform the hello handshake, and fail if the server does not agree on metadata and compression. The measured \
            calls use neither.
            """
    )
    var hello = false

    @Flag(help: "With --hello: agree on streams as well. The measured calls stay plain ones.")
    var streams = false

    @Option(help: .value("name", "The server's name in the report. (default: hhsocket)"))
    var peer: String?

    private var echoedType: UInt32 { self.type ?? BuiltIn.echo }

    /// The names of the options that were given.
    var given: [String] {
        let options: [(isGiven: Bool, name: String)] = [
            (self.server != nil, "HOST:PORT"), (self.startsServer, "--self"), (self.type != nil, "--type"),
            (self.inFlight != nil, "--in-flight"), (self.connections != nil, "--connections"),
            (self.threads != nil, "--threads"), (self.rate != nil, "--rate"), (self.warmup != nil, "--warmup"),
            (self.api != nil, "--api"), (self.direction != nil, "--direction"), (self.window != nil, "--window"),
            (self.calls != nil, "--calls"), (self.callbacks != nil, "--callbacks"),
            (self.executor != nil, "--executor"), (self.serverPid != nil, "--server-pid"),
            (self.hello, "--hello"), (self.streams, "--streams"), (self.peer != nil, "--peer"),
        ]
        return options.filter(\.isGiven).map(\.name)
    }

    /// Checks the options, for calls with bodies of `body` bytes.
    func check(body: Int, format: WireFormat) throws {
        guard (self.server != nil) != self.startsServer else {
            throw ValidationError("HOST:PORT names a server and --self starts one: leave one of them out.")
        }
        if self.api == .stream {
            try self.checkStreams(body: body, format: format)
        } else if self.api?.hasMessages == true {
            try self.checkMessages(body: body, format: format)
        } else {
            try self.checkCalls(body: body, format: format)
        }
        try self.check(self.connections, for: "--connections", in: 1...Self.connectionLimit)
        try self.check(self.threads, for: "--threads", in: 1...(self.connections ?? 1))
        if let rate = self.rate, !(rate > 0 && rate <= 1e9) {
            throw ValidationError("--rate is a number of calls per second above 0, 1000000000 at most, not \(rate).")
        }
        if let warmup = self.warmup, warmup > Self.longest { throw ValidationError("--warmup is 10d at most.") }
        let api = self.api ?? .task
        guard self.callbacks == nil || api.hasHandlers else {
            throw ValidationError(
                "--callbacks is for completion handlers, and --api \(api.rawValue) has none; leave it out."
            )
        }
        guard self.executor == nil || api.hasTasks else {
            throw ValidationError("--executor is for Swift tasks, and --api \(api.rawValue) has none; leave it out.")
        }
        try require(self.type == nil || !self.startsServer, "--self echoes type \(BuiltIn.echo): leave --type out.")
        guard self.serverPid == nil || !self.startsServer else {
            throw ValidationError("--self knows its server's process; leave --server-pid out.")
        }
        if let pid = self.serverPid, pid < 1 {
            throw ValidationError("--server-pid is a process number, 1 or more, not \(pid).")
        }
    }

    private func checkStreams(body: Int, format: WireFormat) throws {
        guard self.type == nil || self.calls != nil else {
            throw ValidationError("--type is for calls, and --api stream makes none without --calls.")
        }
        try FormatArgument.validate(type: (self.direction ?? .down).type, in: format)
        try require(format.supportsStreams, "The format \(format) cannot have streams: \(WireFormat.streamsNeed).")
        try require(self.rate == nil, "--rate is for calls, and the items of --api stream leave as fast as they can.")
        guard !self.hello, !self.streams else {
            let name = self.hello ? "--hello" : "--streams"
            throw ValidationError("\(name) is for calls: with --api stream connections begin with a hello anyway.")
        }
        if let calls = self.calls {
            try FormatArgument.validate(type: self.echoedType, in: format)
            guard calls > 0, calls <= Self.largestRateBeside else {
                throw ValidationError(
                    """
                    --calls is a number of calls per second above 0, \(Int(Self.largestRateBeside)) at most, not \(calls).
                    """
                )
            }
        }
        guard (0...BuiltIn.longestItem).contains(body) else {
            throw ValidationError("--body-length is a size from 0 to \(BuiltIn.longestItem), not \(body).")
        }
        try self.check(self.inFlight, for: "--in-flight", in: 1...Self.streamLimit)
        try self.check(self.window, for: "--window", in: Self.leastWindow...Self.largestWindow)
    }

    private func checkMessages(body: Int, format: WireFormat) throws {
        let api = self.api?.rawValue ?? ""
        let isOfFrames = [
            (self.type != nil, "--type"), (self.hello, "--hello"), (self.streams, "--streams"),
            (format != .standard, "--format"),
        ]
        for case (true, let name) in isOfFrames {
            throw ValidationError("\(name) is for frames, and --api \(api) sends none; leave it out.")
        }
        try require(self.rate == nil, "--rate is for calls; leave it out.")
        try self.checkNoStreams()
        try self.checkBodies(of: body)
        guard let server = self.server else { return }
        guard server.isWebSocket == (self.api == .message) else {
            let form = self.api == .message ? "ws://HOST:PORT/PATH" : "HOST:PORT"
            throw ValidationError("--api \(api) needs a server written as \(form), not \(server).")
        }
    }

    private func checkNoStreams() throws {
        try require(self.direction == nil, "--direction is for --api stream; leave it out.")
        guard self.window == nil else { throw ValidationError("--window is for --api stream; leave it out.") }
        try require(self.calls == nil, "--calls is for calls beside --api stream; --rate is for these.")
    }

    private func checkCalls(body: Int, format: WireFormat) throws {
        try self.checkNoStreams()
        try require(!self.streams || self.hello, "--streams needs --hello, in which streams are agreed on.")
        try require(!self.streams || format.supportsStreams, "The format \(format) cannot have streams.")
        try FormatArgument.validate(type: self.echoedType, in: format)
        if self.hello { try FormatArgument.requireHello(in: format) }
        let typed = Hhsocket_Bench.Methods.echo.type
        try require(self.type == nil || self.api != .typed, "--api typed calls type \(typed): leave --type out.")
        if self.api == .typed, !MessageCaller.lengths.contains(body) {
            throw ValidationError(
                """
                --body-length is a size from \(MessageCaller.lengths.lowerBound), the shortest message, to \
                \(MessageCaller.lengths.upperBound), not \(body).
                """
            )
        }
        try self.checkBodies(of: body)
    }

    private func checkBodies(of body: Int) throws {
        guard EchoBody.lengths.contains(body) else {
            throw ValidationError(
                """
                --body-length is a size from \(EchoBody.lengths.lowerBound), which hold the call's number, to \
                \(EchoBody.lengths.upperBound), not \(body).
                """
            )
        }
        try self.check(self.inFlight, for: "--in-flight", in: 1...Self.inFlightLimit)
        let bodies = (self.inFlight ?? Self.defaultInFlight) * (self.connections ?? 1)
        guard 2 * bodies * body <= Self.memoryLimit else {
            throw ValidationError(
                """
                \(bodies) bodies of \(body) bytes in flight need more than \(Self.memoryLimit >> 30) GiB; reduce \
                --body-length, --in-flight or --connections.
                """
            )
        }
    }

    private func check(_ number: Int?, for name: String, in range: ClosedRange<Int>) throws {
        if let number, !range.contains(number) {
            throw ValidationError("\(name) is a number from \(range.lowerBound) to \(range.upperBound), not \(number).")
        }
    }

    /// Returns the parameters that the options describe.
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
            agreesOnStreams: self.streams,
            type: self.echoedType,
            body: body,
            inFlight: self.inFlight ?? (api == .stream ? Self.defaultStreams : Self.defaultInFlight),
            connections: self.connections ?? 1,
            threads: self.threads ?? self.connections ?? 1,
            warmup: (self.warmup ?? .milliseconds(500)).inSeconds,
            seconds: seconds,
            api: api,
            callbacks: api.hasHandlers ? self.callbacks ?? .inline : nil,
            executor: api.hasTasks ? self.executor ?? .global : nil,
            rate: self.rate,
            window: self.window,
            callsBeside: self.calls
        )
    }

    private static func endpoint(_ text: String) throws -> Endpoint {
        guard let endpoint = Endpoint(text) else {
            throw ValidationError(
                "write HOST:PORT, with an IPv6 address in brackets, or unix:PATH, or ws://HOST:PORT/PATH"
            )
        }
        return endpoint
    }
}
