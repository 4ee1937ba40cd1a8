// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket

/// The options for how an echo server announces its address, and its life from then until a signal.
struct AnnounceOptions: ParsableArguments {
    @Option(
        parsing: .unconditional,
        help: .value(
            "format",
            "The line on stdout: %h is the host, %p the port, %% a percent sign. (default: listening on HOST:PORT)"
        )
    )
    var announce: String?

    @OptionGroup var input: EndOfInputOption

    /// Runs a server until SIGINT or SIGTERM.
    ///
    /// - Parameters:
    ///   - start: Begins to listen, and returns the server and its address.
    ///   - stop: Ends the server.
    /// - Throws: `ExitCode.failure` if it cannot listen, which is reported on stderr, or could not announce itself.
    func serve<Server>(
        _ start: () async throws(SocketError) -> (Server, Endpoint),
        stop: (Server) async -> Void
    ) async throws {
        let signals = Signals()
        let hasInputFailed = self.input.watch(signals)
        let isAnnounced: Bool
        do throws(SocketError) {
            let (server, address) = try await start()
            let line = self.announce.map { ServeCommand.announcement($0, address) } ?? "listening on \(address)"
            isAnnounced = Self.announce(line + "\n")
            for await _ in signals.stream { break }
            await stop(server)
        } catch {
            StandardError.report(error)
            throw ExitCode.failure
        }
        guard isAnnounced, !hasInputFailed.withLockedValue({ $0 }) else { throw ExitCode.failure }
    }

    /// Prints the lines that announce a server, which continues even if that fails. A failure is reported on stderr.
    ///
    /// - Returns: Whether they were printed, or nobody reads them.
    static func announce(_ lines: String) -> Bool {
        do throws(StandardOutput.Failure) {
            try StandardOutput.write(lines)
        } catch {
            guard error.hasNoReader else {
                StandardError.line("error: \(error)")
                return false
            }
        }
        return true
    }
}
