// SPDX-License-Identifier: Apache-2.0
import Foundation
import TestSupport
import Testing

@testable import HHSocketCLI

/// The command line as a whole: its version, misspelt options, quantities.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CommandLineTests {
    @Test func printsItsVersion() async throws {
        let outcome = try await Command.run(["--version"])
        #expect(outcome.exitCode == 0)
        #expect(outcome.text == "\(Version.current)\n")
        #expect(outcome.errors == "")
        #expect(Version.current.wholeMatch(of: /[0-9]+\.[0-9]+\.[0-9]+(-dev)?/) != nil)
    }

    @Test func theVersionIsTheNewestOfTheChangelog() throws {
        let changelog = try String(contentsOf: packageFolder.appendingPathComponent("CHANGELOG.md"), encoding: .utf8)
        let newest = try #require(changelog.firstMatch(of: /\n## \[([^\]]+)\]/)?.output.1)
        if newest == "Unreleased" {
            #expect(Version.current.hasSuffix("-dev"))
        } else {
            #expect(Version.current == newest)
        }
    }

    @Test(
        arguments: [
            (["call", "h:1", "--typ", "1000"], "--typ", "--type"),
            (["call", "--typ", "1000", "h:1"], "--typ", "--type"),
            (["call", "h:1", "--type=1", "--timeot=5s"], "--timeot", "--timeout"),
            (["call", "h:1", "--key", "x", "--cret", "y"], "--cret", "--cert"),
            (["call", "--timeout", "soon", "--hedder", "a:b"], "--hedder", "--header"),
            (["serve", "--prot", "0"], "--prot", "--port"),
            (["serve", "--push-every", "1", "--pusch", "1:x"], "--pusch", "--push"),
            (["listen", "--cuont", "1"], "--cuont", "--count"), (["inspect", "--hexx", "-"], "--hexx", "--hex"),
            (["describe", "--prto", "a.proto"], "--prto", "--proto"), (["bench", "--slef"], "--slef", "--self"),
            (["demo", "--selff"], "--selff", nil), (["call", "-v"], "-v", nil),
            (["--verison"], "--verison", "--version"),
        ] as [([String], String, String?)]
    )
    func aMisspeltOptionIsReportedAsUnknown(arguments: [String], option: String, suggestion: String?) async throws {
        let outcome = try await Command.run(arguments)
        #expect(outcome.exitCode == 64)
        #expect(outcome.output.isEmpty)
        let hint = suggestion.map { ". Did you mean '\($0)'?" } ?? ""
        #expect(outcome.errorLines.first == "Error: Unknown option '\(option)'\(hint)")
        let command = arguments[0].hasPrefix("-") ? "hhsocket" : "hhsocket \(arguments[0])"
        #expect(outcome.errors.contains("\nUsage: \(command)"), "\(outcome.errors)")
        #expect(outcome.errors.contains("See '\(command) --help'"), "\(outcome.errors)")
    }

    @Test(
        arguments: [
            // Values that look like options, and arguments that are not options.
            ["call", "h:1", "--body", "--typ"], ["call", "h:1", "--", "--typ"], ["call", "h:1", "--header", "-x:"],
            ["call", "h:1", "-I.", "-I", "."], ["call", "h:1", "--help"], ["call", "h:1", "-h"], ["help", "--typ"],
            ["-"],
            ["call", "h:1", "--heartbeat-misses", "-1"], ["nothing", "--typ"], [],
            ["bench", "--body", "1", "--seconds", "1"],
        ]
    )
    func optionsThatAreKnownAndValuesAreNotUnknown(arguments: [String]) throws {
        let commands = try #require(Commands(of: HHSocketCommand.self))
        #expect(commands.unknownOption(in: arguments) == nil)
    }

    @Test func otherErrorsAreReportedAsBefore() async throws {
        let type = try await Command.run(["call", "h:1"])
        #expect(type.exitCode == 64)
        #expect(type.errors.hasPrefix("Error: --type is missing; give it, or --proto and --method."), "\(type.errors)")
        let help = try await Command.run(["call", "--typ", "--help"])
        #expect(help.exitCode == 0)
        #expect(help.text.contains("USAGE: hhsocket call"))
    }

    /// Wrong usage that is detected when the command runs is reported with the command's own usage too.
    @Test func aMethodWhoseTypeTheFormatKeepsIsWrongUsageOfCall() async throws {
        let folder = try TemporaryFolder()
        let format = try folder.write(
            """
            {"request": ["type", "serial", "length"], "response": ["type", "serial", "status", "length"],
             "applicationTypes": [1, 99]}
            """,
            to: "narrow.json"
        )
        let outcome = try await Command.run([
            "call", "h:1", "--proto", TestProtos.descriptorSet, "--method", "test.Echo/Everything", "--format", format,
        ])
        #expect(outcome.exitCode == 64)
        #expect(outcome.errors.hasPrefix("Error: Type 1000 is reserved in the format custom"), "\(outcome.errors)")
        #expect(outcome.errors.contains("have types from 1 to 99, or what applicationTypes says"))
        #expect(outcome.errors.contains("Usage: hhsocket call "), "\(outcome.errors)")
    }
}

@Suite struct AddressArgumentTests {
    @Test func aListOfServersHasCommasInBetween() throws {
        let servers = try #require(ServerAddresses(argument: "a:1,[::1]:2,unix:/tmp/x,ws://h/a,b,ws://h/c"))
        #expect(servers.endpoints.map { "\($0)" } == ["a:1", "[::1]:2", "unix:/tmp/x", "ws://h:80/a,b", "ws://h:80/c"])
    }

    @Test(arguments: [
        "a:1, b:2", "a:1 ,b:2", " a:1", "a:1,", ",a:1", "a:1,,b:2", "a:1\nb:2", "user@a:1", "a:1;b:2", "http://a:1",
        "ws://h/a, ws://h/b", "ws://h/a, b",
    ])
    func aListWithAnythingElseIsRefusedAtOnce(text: String) {
        #expect(ServerAddresses(argument: text) == nil)
    }

    /// The server need not be there for any of these to be wrong.
    @Test(arguments: [
        ["lines", "host"], ["lines", "ws://host/"], ["lines", "a b:1"], ["lines", "tls://host"],
        ["ws", "http://host/"], ["ws", "ws://host/#x"], ["ws", "ws://user@host/"], ["ws", "host:1"],
        ["ws", "ws://host/ x"], ["ws", "ws://host:0/"],
        ["stomp", "send", "host:61613", "/q"], ["stomp", "send", "stomp://user@host", "/q"],
        ["stomp", "subscribe", "stomp://host:0", "/q"], ["stomp", "subscribe", "ws://host/#x", "/q"],
        ["call", "ws://host/#x", "--type", "1000"], ["listen", "host"], ["put", "file", "host"], ["get", "host", "id"],
        ["bench", "host"], ["serve", "--listen", "a b:1"], ["serve", "--go-away-to", "host"],
        ["serve", "--monitoring", "a b:1"],
    ])
    func anAddressThatCanNeverBeRightIsWrongUsage(arguments: [String]) async throws {
        let outcome = try await WrongUsage(parsing: arguments)
        #expect(outcome.exitCode == 64, "\(outcome.errors)")
        #expect(outcome.output == "")
    }

    @Test func typesMayBeHexadecimal() throws {
        #expect(try TypeArgument.parse("0x3E8") == 1_000)
        #expect(try TypeArgument.parse("0XfFfFfFfF") == .max)
        #expect(try TypeArgument.parse("1000") == 1_000)
        for text in ["", "0x", "+1", "-1", "0x+1", "0x1_0", "1e3", "4294967296", "0x100000000", " 1", "3E8"] {
            #expect(throws: (any Error).self) { try TypeArgument.parse(text) }
        }
        #expect(PushText(argument: "0x7D1:news")?.type == 2_001)
    }
}

@Suite struct QuantityTests {
    @Test(arguments: [
        ("5", Duration.seconds(5)), ("0.05", .milliseconds(50)), ("500ms", .milliseconds(500)),
        ("1ms", .milliseconds(1)),
        ("0.5s", .milliseconds(500)), ("2s", .seconds(2)), ("10m", .seconds(600)), ("1.5h", .seconds(5_400)),
        ("1d", .seconds(86_400)), ("1000000000", .seconds(1_000_000_000)), ("300ms", .milliseconds(300)),
    ])
    func durations(text: String, duration: Duration) throws {
        #expect(try DurationArgument.parse(text) == duration)
        #expect(try DurationArgument.parseOrZero(text) == duration)
    }

    @Test(arguments: [
        "", "s", "ms", "soon", "-1", "1x", "1 s", "1S", "0.5.5", "nan", "inf", "0x1", "1e3", "0.0001", "1000000001",
        "0.1ms",
        "99999999999999999999d", "5ss", "1m30s",
    ])
    func invalidDurations(text: String) {
        #expect(throws: (any Error).self) { try DurationArgument.parse(text) }
        #expect(throws: (any Error).self) { try DurationArgument.parseOrZero(text) }
    }

    @Test(arguments: ["0", "0s", "0ms", "0.0"]) func zeroIsADurationWhereItMayBe(text: String) throws {
        #expect(try DurationArgument.parseOrZero(text) == .zero)
        #expect(throws: (any Error).self) { try DurationArgument.parse(text) }
    }

    @Test(arguments: [
        ("0", 0), ("1", 1), ("1024", 1_024), ("64K", 65_536), ("64k", 65_536), ("16M", 16_777_216),
        ("1G", 1_073_741_824),
        ("9223372036854775807", Int.max),
    ])
    func sizes(text: String, bytes: Int) throws {
        #expect(try SizeArgument.parse(text) == bytes)
    }

    @Test(arguments: [
        "", "K", "-1", "1.5K", "1KB", "1 K", "x", "0x10", "9223372036854775808", "9223372036854775807K", "1T", "1ß",
        "١",
    ])
    func invalidSizes(text: String) {
        #expect(throws: (any Error).self) { try SizeArgument.parse(text) }
    }
}
