// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

#if canImport(Glibc)
import Glibc
#elseif canImport(Musl)
import Musl
#elseif canImport(Darwin)
import Darwin
#endif

/// TLS, proxies and Unix domain sockets on the command line.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct ConnectionCommandTests {
    private let files: TestServerFiles

    init() throws {
        self.files = try TestServerFiles()
    }

    private func call(_ address: String, _ options: [String]) async throws -> Command.Outcome {
        try await Command.run(["call", address, "--type", "1000", "--body", "hello"] + options)
    }

    @Test func callSpeaksTLSAsItIsConfigured() async throws {
        try await withServe(["--cert", self.files.certificate, "--key", self.files.key]) { address, _ in
            for options in [
                ["--ca", self.files.ca], ["--ca", self.files.ca, "--pin", self.files.pin],
                ["--ca", self.files.ca, "--server-name", "localhost"],
                ["--insecure-skip-verification"],
            ] {
                let outcome = try await self.call(address, options)
                #expect(outcome.exitCode == 0, "\(options): \(outcome.errors)")
                #expect(outcome.text == "hello")
            }
            let other = String(repeating: "A", count: 43) + "="
            for (options, reason) in [
                (["--tls"], "is not trusted"),
                (["--ca", self.files.ca, "--pin", other], "none of the pins"),
                (["--ca", self.files.ca, "--server-name", "example.com"], "for another name"),
            ] {
                let outcome = try await self.call(address, options)
                #expect(outcome.exitCode == 1)
                #expect(outcome.errors.hasPrefix("error: tlsFailed: "), "\(outcome.errors)")
                #expect(outcome.errors.contains(reason), "\(outcome.errors)")
            }
        }
    }

    @Test func serverWithAnAuthorityLetsItsClientsInAlone() async throws {
        let issued = try TestCertificate(.client)
        let certificate = try self.files.folder.write(issued.certificatePEM, to: "client.pem")
        let key = try self.files.folder.write(issued.keyPEM, to: "client.key")
        try await withServe(["--cert", self.files.certificate, "--key", self.files.key, "--ca", self.files.ca]) {
            address,
            _ in
            let outcome = try await self.call(address, ["--ca", self.files.ca, "--cert", certificate, "--key", key])
            #expect(outcome.text == "hello", "\(outcome.errors)")
            let without = try await self.call(address, ["--ca", self.files.ca])
            #expect(without.exitCode == 1)
            #expect(without.errors.contains("requires a client certificate"), "\(without.errors)")
        }
    }

    @Test func certificateIsReloadedOnSIGHUP() async throws {
        try await withServe(["--cert", self.files.certificate, "--key", self.files.key]) { address, server in
            let renewed = try TestCertificate(.serverRenewed)
            _ = try self.files.folder.write(renewed.certificatePEM, to: "server.pem")
            // The old key does not fit: the old certificate stays.
            server.signal(SIGHUP)
            try await server.complains("the old certificate stays")
            #expect(try await self.call(address, ["--ca", self.files.ca, "--pin", self.files.pin]).text == "hello")
            _ = try self.files.folder.write(renewed.keyPEM, to: "server.key")
            server.signal(SIGHUP)
            try await server.complains("the certificate was reloaded")
            #expect(try await self.call(address, ["--ca", self.files.ca, "--pin", renewed.pin]).text == "hello")
        }
    }

    @Test func aServerWithoutTLSIgnoresAHangUp() async throws {
        try await withServe { address, server in
            for _ in 0..<2 { server.signal(SIGHUP) }
            try await server.complains("SIGHUP is ignored: the server has no certificate to reload")
            #expect(try await self.call(address, []).text == "hello")
        }
    }

    @Test func listenSpeaksTLSToo() async throws {
        let arguments = [
            "--cert", self.files.certificate, "--key", self.files.key, "--push", "2001:hi", "--push-every", "0.01",
        ]
        try await withServe(arguments) { address, _ in
            let outcome = try await Command.run(["listen", address, "--ca", self.files.ca, "--count", "2"])
            #expect(outcome.lines == ["2001 hi", "2001 hi"], "\(outcome.errors)")
        }
    }

    @Test(arguments: [["listen"], ["ws", "--send", "x"], ["lines", "--send", "x"], ["call", "--type", "1000"]])
    func aSettingWithWhichNoAttemptSucceedsEndsACommand(command: [String]) async throws {
        let file = self.files.folder.file("none.pem")
        try await withServe([]) { address, _ in
            let address = command[0] == "ws" ? "wss://\(address)/" : address
            let outcome = try await Command.run([command[0], address, "--ca", file] + command.dropFirst())
            #expect(outcome.exitCode == 1)
            #expect(outcome.errors.contains("invalidArgument") && outcome.errors.contains(file), "\(outcome.errors)")
        }
    }

    @Test func unixDomainSocketIsAnAddress() async throws {
        let path = self.files.folder.file("s")
        let server = try Command(["serve", "--host", "unix:\(path)"])
        #expect(try await server.lines() == ["listening on unix:\(path)"])
        let outcome = try await self.call("unix:\(path)", [])
        #expect(outcome.text == "hello", "\(outcome.errors)")
        server.signal(SIGTERM)
        #expect(try await server.outcome().exitCode == 0)
        #expect(!FileManager.default.fileExists(atPath: path))
    }

    @Test(arguments: [Proxy.Kind.http, .socks5])
    func callGoesThroughAProxyAlsoWithTLS(kind: Proxy.Kind) async throws {
        let proxy = try await TestProxy(kind) { $0.credentials = .init(user: "me", password: "p@ss") }
        let hostAndPort = "\(proxy.endpoint)"
        try await withServe(["--cert", self.files.certificate, "--key", self.files.key]) { address, _ in
            let server = "localhost:\(try #require(Endpoint(address)).port)"
            let url = "\(kind.rawValue)://me:p%40ss@\(hostAndPort)"
            let outcome = try await self.call(server, ["--ca", self.files.ca, "--proxy", url])
            #expect(outcome.text == "hello", "\(outcome.errors)")
            #expect(proxy.asked == [server])
            let stranger = try await self.call(
                server,
                ["--ca", self.files.ca, "--proxy", "\(kind.rawValue)://me:guess@\(hostAndPort)"]
            )
            #expect(stranger.exitCode == 1)
            #expect(stranger.errors.hasPrefix("error: proxyFailed: "), "\(stranger.errors)")
            #expect(!stranger.errors.contains("guess"))
        }
    }

    @Test(arguments: [["-4"], ["--ipv4"], []]) func callIsMadeByTheFamilyThatIsAskedFor(options: [String]) async throws
    {
        try await withServe([]) { address, _ in
            // Only the system's resolver reads this name.
            let name = "127.1:\(try #require(Endpoint(address)).port)"
            for server in [address, name] {
                let outcome = try await self.call(server, options)
                #expect(outcome.text == "hello", "\(outcome.errors)")
            }
        }
    }

    @Test(arguments: ["-6", "--ipv6"]) func familyThatIsOffIsReportedWithItsSetting(option: String) async throws {
        try await withServe([]) { address, _ in
            let outcome = try await self.call(address, [option])
            #expect(outcome.exitCode == 1)
            #expect(
                outcome.errors.contains(
                    "this is an IPv4 address, and SocketConfiguration.addressFamilies is onlyIPv6; allow IPv4 there"
                ),
                "\(outcome.errors)"
            )
            let name = "127.1:\(try #require(Endpoint(address)).port)"
            let unknown = try await self.call(name, [option])
            #expect(unknown.exitCode == 1)
            #expect(unknown.errors.contains("127.1 has no IPv6 address ("), "\(unknown.errors)")
        }
    }

    @Test(arguments: ["-6", "--ipv6"]) func listenAndWebSocketsObeyToo(option: String) async throws {
        let server = try await MockWebSocketServer(.drop)
        let outcome = try await Command.run(["ws", server.url, "--once", "--send", "hello", option])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("SocketConfiguration.addressFamilies is onlyIPv6"), "\(outcome.errors)")
        let listening = try Command(["listen", "127.0.0.1:1", option])
        try await listening.complains("SocketConfiguration.addressFamilies is onlyIPv6")
        listening.signal(SIGINT)
        _ = try await listening.outcome()
        #expect(server.acceptedCount == 0)
    }

    @Test(arguments: [
        ["call", "127.0.0.1:1", "--type", "1000", "--proxy", "ftp://host"],
        ["call", "127.0.0.1:1", "--type", "1000", "-4", "-6"], ["listen", "127.0.0.1:1", "--ipv4", "--ipv6"],
        ["call", "127.0.0.1:1", "--type", "1000", "--cert", "x"],
        ["call", "127.0.0.1:1", "--type", "1000", "--pin", "short"],
        ["serve", "--key", "x"], ["serve", "--ca", "x"], ["serve", "--host", "unix:"],
    ])
    func invalidOptionsAreRejected(arguments: [String]) async throws {
        let outcome = try await Command.run(arguments)
        #expect(outcome.exitCode == 64, "\(outcome)")
        #expect(outcome.errors.contains("rror"))
    }

    @Test func missingFileIsNamed() async throws {
        let outcome = try await self.call("127.0.0.1:1", ["--ca", "/nowhere.pem"])
        #expect(outcome.exitCode == 1)
        #expect(outcome.errors.contains("/nowhere.pem"), "\(outcome.errors)")
        let server = try await Command.run(["serve", "--port", "0", "--cert", "/nowhere.pem", "--key", self.files.key])
        #expect(server.exitCode == 1)
        #expect(server.errors.contains("/nowhere.pem"), "\(server.errors)")
    }
}
