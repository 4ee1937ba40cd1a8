// SPDX-License-Identifier: Apache-2.0
import Foundation
import HHSocket
import HHSocketTesting
import TestSupport
import Testing

/// The examples of `Lines.md`, word for word.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct LineGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage(guide: "Lines").shortcomings() == [])
    }

    @Test func heartbeatIsTheDate() throws {
        var configuration = LineLink.Configuration(servers: [])
        configuration.heartbeatLine = { Date().ISO8601Format() }
        configuration.socket.heartbeat = HeartbeatPolicy(strategy: .fixed(.seconds(60), inBackground: .seconds(600)))
        configuration.socket.backgroundPolicy = .keepConnected
        configuration.heartbeatReplyTimeout = .seconds(8)
        #expect(try configuration.heartbeatLine?().hasSuffix("Z") == true)
        // A history of an app in the background.
        #expect(configuration.socket.heartbeat?.interval.interval(for: HeartbeatHistory()) == .seconds(600))
    }

    @Test func delimitersOfThePageExist() throws {
        for row in try DocumentationPage(guide: "Lines", section: "Delimiters").text.matches(of: /\| `\.([A-Za-z]+)`/) {
            #expect(["lf", "crlf", "lfOrCRLF", "nul"].contains(row.output.1))
        }
        #expect(try LineDelimiter(bytes: [0x1E]).bytes == [0x1E])
    }

    @Test func serverIsScripted() async throws {
        let server = try await LineServer(.echo)
        server.on("how are you?", .line("fine"))
        server.onOpen(.line("ä").dribbled())
        server.once("help", .line("never whole").cut(after: 5).then(.disconnect))

        let link = LineLink(configuration: .init(servers: [server.endpoint]))
        link.connect()
        try await link.send("how are you?")
        #expect(try await server.received(1)[0].text == "how are you?")
        await server.perform(.line("news"))  // to everybody
        link.disconnect()
    }

    /// Compiled, and not run: there is no such server.
    private func page() async throws {
        let link = LineLink(configuration: try .init(address: "example.com:7002"))
        link.connect()
        try await link.send("hello")
        for await line in link.lines {
            print(line)
        }
    }

    /// The same.
    private func json() async throws {
        let link = LineLink(configuration: .init(servers: []))
        struct Message: Codable {
            var from: String
            var text: String
        }

        try await link.send(json: Message(from: "me", text: "hello"))
        for await result in link.lines.decoded(as: Message.self) {
            switch result {
            case .success(let message): print(message.from, message.text)
            case .failure(let error): print(error)  // of this line alone
            }
        }
    }
}
