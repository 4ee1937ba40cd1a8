// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport

/// The Python on this machine, and its programs.
enum Python {
    /// The first `python3` in PATH.
    static let executable = Command.installed("python3")

    static var isInstalled: Bool { self.executable != nil }

    static let howToGetIt =
        "There is no python3 in PATH: Examples/python is NOT TESTED here. Install Python 3.9 or later."

    static func server(_ arguments: [String] = []) throws -> Command {
        try self.start("Examples/python/server.py", ["--port", "0"] + arguments)
    }

    static func client(_ arguments: [String]) throws -> Command {
        try self.start("Examples/python/client.py", arguments)
    }

    /// The server or the client of streams.
    static func streams(_ arguments: [String], input: Data = Data()) throws -> Command {
        try self.start("Examples/python/streams.py", arguments, input: input)
    }

    static func runClient(_ arguments: [String]) async throws -> Command.Outcome {
        try await self.client(arguments).outcome()
    }

    /// A server that only performs these steps: send:HEX, expect:HEX, shut, end.
    static func scriptedServer(_ steps: [String]) throws -> Command {
        try self.start("Tests/OtherPrograms/peer.py", ["serve"] + steps)
    }

    /// A client that only performs these steps.
    static func scriptedClient(_ address: String, _ steps: [String]) async throws -> Command.Outcome {
        try await self.start("Tests/OtherPrograms/peer.py", ["connect", address] + steps).outcome()
    }

    /// A server with its own header, independent of HHSocket.
    static func companysServer(_ arguments: [String] = []) throws -> Command {
        try self.start("Tests/OtherPrograms/company.py", arguments)
    }

    /// A relay between a connection with TLS and one without.
    static func tlsRelay(_ arguments: [String]) throws -> Command {
        try self.start("Tests/OtherPrograms/tls_relay.py", arguments)
    }

    /// A STOMP client independent of HHSocket.
    static func rawSTOMPClient(_ url: String, _ steps: [String]) throws -> Command {
        try self.start("Tests/OtherPrograms/raw_stomp.py", [url] + steps)
    }

    static func rawSTOMP(_ url: String, _ steps: [String]) async throws -> Command.Outcome {
        try await self.rawSTOMPClient(url, steps).outcome()
    }

    /// A directory in LDAP.
    static func ldapServer() throws -> Command {
        try self.start("Tests/OtherPrograms/ldap_server.py", [])
    }

    private static func start(_ script: String, _ arguments: [String], input: Data = Data()) throws -> Command {
        guard let executable = self.executable else { throw Unexpected(description: self.howToGetIt) }
        // -B: no bytecode is left in the folder of the sources.
        return try Command(
            ["-B", packageFolder.appendingPathComponent(script).path] + arguments,
            of: executable,
            input: input
        )
    }
}
