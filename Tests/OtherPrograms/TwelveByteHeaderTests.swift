// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocketFormats
import HHSocketRPC
import TestSupport
import Testing

// Of Docs/WireFormat.md, word for word.
func companyClient(_ servers: [Endpoint], _ json: Data) throws -> SocketClient {
    var configuration = SocketClient.Configuration(servers: servers)
    configuration.socket.wireFormat = try WireFormat(json: json)
    let client = SocketClient(configuration: configuration)
    client.connect()
    return client
}

/// An existing header of twelve bytes, from a capture to a client: "From a capture to a client" in Docs/WireFormat.md,
/// against a server in Python.
@Suite(.tags(.io), .enabled(if: Python.isInstalled, Comment(rawValue: Python.howToGetIt)), .timeLimit(.minutes(5)))
struct TwelveByteHeaderTests {
    private static var section: DocumentationPage {
        get throws { try DocumentationPage("Docs/WireFormat.md", section: "From a capture to a client") }
    }

    /// The last description that recognises pushes by a flag, or the one that recognises them by their types.
    private static func description(pushesBy key: String) throws -> String {
        try #require(try self.section.blocks("json").last { $0.contains("\"push\": {\"\(key)\"") })
    }

    private static func withServer(
        _ arguments: [String] = [],
        _ body: (Endpoint, String) async throws -> Void
    ) async throws {
        try await TestSupport.withServer(Python.companysServer(arguments)) { address, server in
            let port = try #require(address.split(separator: ":").last.flatMap { Int($0) })
            try await body(Endpoint(host: "127.0.0.1", port: port), address)
            #expect(server.errors == "")
        }
    }

    @Test func everyExampleOfTheSectionIsInThisFile() throws {
        #expect(try Self.section.shortcomings() == [])
    }

    @Test func tenLinesAreEnough() throws {
        for key in ["flag", "types"] {
            let lines = try Self.description(pushesBy: key).components(separatedBy: "\n")
            #expect(lines.count <= 10, "\(key)")
            #expect(lines.allSatisfy { $0.count <= 180 }, "\(key)")
            let format = try WireFormat(json: Self.description(pushesBy: key).utf8)
            for header in [format.layout.request, format.layout.response] {
                #expect(header.reduce(0) { $0 + ($1.width ?? 0) } == 12)
            }
        }
    }

    // MARK: The page's lines

    /// The TCP payload of each packet in the output of `tcpdump -x`.
    private static func payloads(ofDump lines: [String]) -> [[UInt8]] {
        var packets: [[UInt8]] = []
        for line in lines {
            guard line.hasPrefix("\t0x") else {
                packets.append([])
                continue
            }
            packets[packets.count - 1] += Self.bytes(line.components(separatedBy: ":  ").last ?? "")
        }
        return packets.map { packet in
            let ip = Int(packet[0] & 0x0F) * 4
            #expect(Int(packet[2]) << 8 | Int(packet[3]) == packet.count)
            return Array(packet.dropFirst(ip + Int(packet[ip + 12] >> 4) * 4))
        }
    }

    private static func bytes(_ hex: String) -> [UInt8] {
        let digits = hex.filter { !$0.isWhitespace }
        return stride(from: 0, to: digits.count, by: 2).compactMap { UInt8(digits.dropFirst($0).prefix(2), radix: 16) }
    }

    /// Each description is saved as `company.json`, each recording under its name, and each command prints the text
    /// below it.
    @Test func theLinesOfThePagePrintWhatStandsThere() async throws {
        let folder = try TemporaryFolder()
        let shell = try #require(Command.installed("sh", or: ["/bin"]))
        var recordings: [String: [UInt8]] = [:]
        var dump: [[UInt8]] = []
        var commands = 0
        try await Self.withServer { _, address in
            for block in try Self.section.allBlocks where block.language != "swift" {
                let lines = block.text.components(separatedBy: "\n")
                let output = lines.dropFirst().joined(separator: "\n")
                if block.language == "json" {
                    try block.text.write(toFile: folder.file("company.json"), atomically: true, encoding: .utf8)
                } else if lines[0].hasPrefix("sudo tcpdump") {
                    dump = Self.payloads(ofDump: Array(lines.dropFirst()))
                } else if lines[0].hasPrefix("cat ") {
                    let name = String(lines[0].dropFirst("cat ".count))
                    recordings[name] = Self.bytes(output)
                    try output.write(toFile: folder.file(name), atomically: true, encoding: .utf8)
                } else {
                    commands += 1
                    let line = lines[0].replacingOccurrences(of: "10.0.0.1:7000", with: address)
                    let outcome = try await Command(
                        ["-c", "hhsocket() { '\(Command.hhsocket.path)' \"$@\"; }; cd '\(folder.file(""))'; \(line)"],
                        of: shell
                    ).outcome()
                    // ArgumentParser's usage text is omitted.
                    let errors = outcome.errors.components(separatedBy: "\nHelp:")[0]
                    let printed = (outcome.text + errors).trimmingCharacters(in: .newlines)
                    #expect(printed.replacingOccurrences(of: address, with: "10.0.0.1:7000") == output, "\(line)")
                }
            }
        }
        #expect(dump == [recordings["request.txt"], recordings["answers.txt"]])
        #expect(commands == 8)
    }

    @Test func theClientOfThePage() async throws {
        let json = Data(try Self.description(pushesBy: "flag").utf8)
        try await Self.withServer { endpoint, _ in try await Self.runTheClientOfThePage([endpoint], json) }
    }

    private static func runTheClientOfThePage(_ servers: [Endpoint], _ json: Data) async throws {
        let shown = Watched<[String]>([])
        let show = { @Sendable (text: String) in shown.withLockedValue { $0.append(text) } }

        let client = try companyClient(servers, json)
        let subscription = client.onPush(ofType: 2001) { push in
            show(push.string)
        }
        let order = try await client.data(for: SocketRequest(type: 1003, body: "tea"))
        show(order.string)
        do {
            _ = try await client.data(for: SocketRequest(type: 1002, body: "seat 7"))
        } catch let error where error.code == .overloaded {
            show("no seat is left")
        }

        try await shown.wait("the push") { $0.count == 3 }
        #expect(shown.current.sorted() == ["news", "no seat is left", "ordered tea"])
        subscription.cancel()
        await client.close()
    }

    // MARK: More of it

    /// Requests, answers, errors, and pushes whose serial is that of a call in flight, many at once.
    @Test(arguments: [("flag", []), ("types", ["--no-errors"])])
    func pushesNeverCompleteCalls(key: String, arguments: [String]) async throws {
        let json = Data(try Self.description(pushesBy: key).utf8)
        try await Self.withServer(arguments) { endpoint, _ in
            let client = try companyClient([endpoint], json)
            let pushes = Watched(0)
            let subscription = client.onPush { push in
                #expect(push.type == 2001 && push.string == "news")
                pushes.withLockedValue { $0 += 1 }
            }
            try await withThrowingTaskGroup(of: Void.self) { group in
                for number in 0..<200 {
                    group.addTask {
                        let response = try await client.data(for: SocketRequest(type: 1003, body: "\(number)"))
                        #expect(response.string == "ordered \(number)" && response.type == 1003)
                    }
                }
                try await group.waitForAll()
            }
            let body = String(repeating: "x", count: 100_000)
            #expect(try await client.data(for: SocketRequest(type: 1001, body: body)).string == body)
            try await pushes.wait("the pushes") { $0 == 200 }
            #expect(client.statistics.unknownResponses == 0)
            subscription.cancel()
            await client.close()
        }
    }

    @Test(arguments: [(1002, .overloaded), (1009, .undefinedType)] as [(UInt32, SocketError.Code)])
    func errorsOfOneByteHaveTheirMeaning(type: UInt32, code: SocketError.Code) async throws {
        let json = Data(try Self.description(pushesBy: "flag").utf8)
        try await Self.withServer { endpoint, _ in
            let client = try companyClient([endpoint], json)
            let error = await #expect(throws: SocketError.self) {
                try await client.data(for: SocketRequest(type: type, body: "x"))
            }
            #expect(error?.code == code)
            #expect(error?.notExecuted == true)
            await client.close()
        }
    }
}
