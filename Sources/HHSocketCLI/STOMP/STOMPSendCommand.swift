// SPDX-License-Identifier: Apache-2.0
import ArgumentParser
import HHSocket
import HHSocketSTOMP
import NIOCore

/// `hhsocket stomp send`
struct STOMPSendCommand: AsyncParsableCommand {
    static let configuration = CommandConfiguration(
        commandName: "send",
        abstract: "Send a message.",
        discussion: """
            Exits with 0 when the message was sent, or with --receipt when the broker has confirmed it. Without --body \
            and --body-file the body is empty.
            """
    )

    @OptionGroup var options: STOMPOptions

    @OptionGroup var route: RouteOptions

    @Option(parsing: .unconditional, help: .value("text", "The body."))
    var body: String?

    @Option(help: .value("file", "The file whose bytes are the body; - for standard input."))
    var bodyFile: String?

    @Option(help: .value("type", "The content type of the body. (default: none)"))
    var contentType: String?

    @Flag(help: "Wait for the broker's receipt.")
    var receipt = false

    func validate() throws {
        _ = try Usage.checked { () throws(SocketError) in try self.options.configuration(self.route) }
        try require(self.body == nil || self.bodyFile == nil, "--body and --body-file exclude each other.")
    }

    func run() async throws {
        var body = ByteBuffer(string: self.body ?? "")
        if let file = self.bodyFile { body = try Input.content(of: file, limit: STOMPOptions.longestBody) }
        do throws(SocketError) {
            let client = STOMPClient(configuration: try self.options.configuration(self.route))
            client.connect(attempts: 1)
            try await client.send(
                body,
                to: self.options.destination,
                headers: self.options.headers,
                contentType: self.contentType,
                receipt: self.receipt
            )
            // The broker may read the messages after this process has ended; with a receipt it has confirmed them.
            try? await client.disconnect()
        } catch {
            StandardError.report(error)
            throw ExitCode.failure
        }
    }
}
