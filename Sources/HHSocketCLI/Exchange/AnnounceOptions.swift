// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// The options for how an echo server announces its address, and its life from then until a signal.
struct AnnounceOptions: ParsableArguments {
    @Option(
        parsing: .unconditional,
        help: ArgumentHelp(
            "The line on stdout: %h is the host, %p the port, %% a percent sign. (default: listening on HOST:PORT)",
            valueName: "format"
        )
    )
    var announce: String?

    /// Runs a server until SIGINT or SIGTERM.
    ///
    /// - Parameters:
    ///   - start: Begins to listen, and returns the server and its address.
    ///   - stop: Ends the server.
    /// - Throws: `ExitCode.failure` if it cannot listen, which is reported on stderr.
    func serve<Server>(
        _ start: () async throws(SocketError) -> (Server, Endpoint),
        stop: (Server) async -> Void
    ) async throws {
        Signals.ignoreBrokenPipes()
        let signals = Signals()
        do throws(SocketError) {
            let (server, address) = try await start()
            let line = self.announce.map { ServeCommand.announcement($0, address) } ?? "listening on \(address)"
            try? StandardOutput.write(line + "\n")
            for await _ in signals.stream { break }
            await stop(server)
        } catch {
            StandardError.line("error: \(error.code): \(error.message.inOneLine)")
            throw ExitCode.failure
        }
    }
}
