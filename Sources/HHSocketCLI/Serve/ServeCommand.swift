import ArgumentParser
import Foundation
import HHSocket
import HHSocketHello
import HHSocketServer
import Logging
import NIOCore

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

struct ServeCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "serve",
        abstract: "Serve a few built-in requests.",
        discussion: """
            Types: 1000 echoes the payload; 1001 sleeps for the payload's decimal milliseconds (an hour at most), then \
            echoes it; 1002 answers with the status that the payload names in decimal; 1003 answers with the payload's \
            SHA-256 in hex; 1004 reads the message of `bench --api typed` and writes it anew; 1005 answers with what came \
            beside the payload, a line each: the serial, and where hello agreed on them deadline, idempotency key and \
            metadata. A payload that 1001 or 1002 cannot read is answered with status 303, one that 1004 cannot with 402.

            Once connections are accepted stdout has a line for each place to listen at: first that of --host and --port, \
            then those of --listen in their order, with the ports that were free where 0 was asked for. Nothing else is \
            printed there. SIGINT and SIGTERM tell clients to go away, and let requests in flight finish, for --grace at \
            most; a second one ends at once.
            """
    )

    @Option(help: "The address to listen on; unix:PATH is a Unix domain socket.")
    var host = "127.0.0.1"

    @Option(help: "The port to listen on; 0 picks a free one.")
    var port = 7000

    @Option(
        help: ArgumentHelp(
            """
            Listen there too: HOST:PORT, an IPv6 address in brackets, or unix:PATH; port 0 picks a free one. May be given \
            several times. TLS and the format are the same everywhere.
            """,
            valueName: "address"
        )
    )
    var listen: [ListenAddress] = []

    @Option(help: ArgumentHelp("Push TEXT to every client again and again.", valueName: "type:text"))
    var push: PushText?

    @Option(help: ArgumentHelp("How often to push. (default: 1)", valueName: "seconds"))
    var pushEvery: Seconds?

    @Option(help: ArgumentHelp("Ping after so long a silence; without it nobody is pinged.", valueName: "seconds"))
    var ping: Seconds?

    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "Each line on stdout: %h is the host, %p the port, %% a percent sign. (default: listening on HOST:PORT)",
            valueName: "format"
        )
    )
    var announce: String?

    @Flag(
        name: .customLong("until-eof"),
        help: "End as by SIGTERM when standard input ends: for a program that starts this one."
    )
    var endsWithInput = false

    @Option(help: FormatArgument.help, transform: FormatArgument.parse)
    var format = WireFormat.standard

    @Flag(help: "Answer the requests of each connection in their order.")
    var answersInOrder = false

    @Flag(help: "Serve clients alone that have said hello; requests of others are answered 303.")
    var requireHello = false

    @Option(help: LogArgument.help, transform: LogArgument.parse)
    var log: Logger.Level?

    @OptionGroup(title: "Limits") var limits: LimitOptions

    @OptionGroup(title: "Shutdown") var shutdown: ShutdownOptions

    @OptionGroup(title: "TLS") var tls: ServerTLSOptions

    private var unixPath: String? { Endpoint(self.host)?.unixPath }

    func validate() throws {
        guard self.unixPath != nil || !self.host.hasPrefix("unix:") else {
            throw ValidationError("--host unix:PATH needs a path.")
        }
        if let push = self.push {
            guard self.format.layout.push != nil else {
                throw ValidationError("The format \(self.format) has no pushes.")
            }
            try FormatArgument.validate(type: push.type, in: self.format)
        }
        guard self.ping == nil || self.format.serverPing != nil else {
            throw ValidationError("In the format \(self.format) servers do not ping.")
        }
        guard (0...65_535).contains(self.port) else {
            throw ValidationError("--port is a number from 0 to 65535, not \(self.port).")
        }
        guard !self.requireHello || self.format.supportsHello else {
            throw ValidationError("The format \(self.format) cannot have hello: \(WireFormat.helloNeeds).")
        }
        guard self.pushEvery == nil || self.push != nil else {
            throw ValidationError("--push-every says how often to push; --push TYPE:TEXT says what.")
        }
    }

    func run() async throws {
        Signals.ignoreBrokenPipes()
        let signals = Signals()
        if self.endsWithInput { Self.signalAtEndOfInput() }
        let hangUps = self.tls.tls == nil ? nil : Signals([SIGHUP])
        let server = SocketServer(configuration: self.configuration, router: BuiltIn.router)
        do {
            try await server.start()
        } catch {
            StandardError.line("error: \(error)")
            throw ExitCode.failure
        }
        // Whoever started this may not read on; serving goes on all the same.
        try? StandardOutput.write(server.addresses.map { self.announcement(of: $0) + "\n" }.joined())

        let pushing = Task { [push, pushEvery] in
            guard let push else { return }
            while !Task.isCancelled {
                try await Task.sleep(for: pushEvery?.duration ?? .seconds(1))
                await server.push(type: push.type, body: push.body)
            }
        }
        let reloading = Task { [stream = hangUps?.stream] in
            guard let stream else { return }
            for await _ in stream { Self.reload(server) }
        }
        var signalled = signals.stream.makeAsyncIterator()
        _ = await signalled.next()
        let ended = Task {
            await server.shutdown()
        }
        let secondSignal = Task { [stream = signals.stream] in
            for await _ in stream { await server.shutdown(gracePeriod: .zero) }
        }
        await ended.value
        secondSignal.cancel()
        reloading.cancel()
        pushing.cancel()
    }

    private var configuration: SocketServer.Configuration {
        let first =
            self.unixPath.map { ServerListener(unixPath: $0) } ?? ServerListener(host: self.host, port: self.port)
        let listeners = ([first] + self.listen.map(\.listener)).map { listener in
            var listener = listener
            listener.tls = self.tls.tls
            listener.wireFormat = self.format
            return listener
        }
        var configuration = SocketServer.Configuration(
            listeners: listeners,
            limits: self.limits.limits,
            heartbeat: self.ping.map { HeartbeatPolicy(interval: $0.duration) }
        )
        configuration.answersInOrder = self.answersInOrder
        configuration.hello.isRequired = self.requireHello
        configuration.shutdown = self.shutdown.policy
        configuration.logger = LogArgument.logger(self.log)
        return configuration
    }

    /// A thread, because reading blocks, and ends with the process.
    private static func signalAtEndOfInput() {
        Thread.detachNewThread {
            var buffer = [UInt8](repeating: 0, count: 4_096)
            while true {
                let count = read(STDIN_FILENO, &buffer, buffer.count)
                guard count > 0 || (count == -1 && errno == EINTR) else { break }
            }
            kill(getpid(), SIGTERM)
        }
    }

    private static func reload(_ server: SocketServer) {
        do throws(SocketError) {
            try server.reloadTLS()
            StandardError.line("the certificate was read anew")
        } catch {
            StandardError.line("error: \(error.code): \(error.message.inOneLine); the old certificate stays")
        }
    }

    private func announcement(of address: Endpoint) -> String {
        guard let format = self.announce else { return "listening on \(address)" }
        return Self.announcement(format, address)
    }

    static func announcement(_ format: String, _ address: Endpoint) -> String {
        var result = ""
        var rest = Substring(format)
        while let percent = rest.firstIndex(of: "%") {
            result += rest[..<percent]
            rest = rest[rest.index(after: percent)...]
            switch rest.first {
            case "h": result += address.unixPath ?? address.host
            case "p": result += String(address.port)
            case "%": result += "%"
            default:
                result += "%"
                continue
            }
            rest.removeFirst()
        }
        return result + rest
    }
}
