// SPDX-License-Identifier: Apache-2.0
import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

@testable import chat_example

actor ChatService: Chat_Chat.ServiceProtocol {
    private var notes: [Chat_Note] = []

    func send(_ request: Chat_Message, context: ServerContext) async throws -> Chat_Receipt {
        guard !request.text.isEmpty else { throw StatusError(.illegalFormat) }
        var note = Chat_Note()
        note.number = UInt64(self.notes.count + 1)
        note.message = request
        self.notes.append(note)
        try await context.session.push(note)
        var receipt = Chat_Receipt()
        receipt.number = note.number
        return receipt
    }

    func recall(_ request: Google_Protobuf_Empty, context: ServerContext) async throws -> Chat_History {
        var history = Chat_History()
        history.notes = self.notes
        return history
    }

    func compose(
        _ requests: RequestMessages<Chat_Typing>,
        to responses: MessageWriter<Chat_Typing>,
        context: ServerContext
    ) async throws {
        for try await typing in requests { try await responses.send(typing) }
    }
}

private actor Caller {
    private(set) var hasLoggedIn = false

    func logIn() async { self.hasLoggedIn = true }

    func send(_ message: Chat_Message, by chat: any Chat_Chat.ClientProtocol) async {
        do {
            let receipt = try await chat.send(message, options: CallOptions(timeout: .seconds(3)))
            print("sent as number \(receipt.number)")
        } catch let error where error.code == .noPermission {
            await logIn()
        } catch {
            print("not sent: \(error)")
        }
    }
}

/// Our side of `Docs/MigratingFromGRPCSwift.md`, word for word, and the names of its tables.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct GRPCSwiftMigrationTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        let page = try DocumentationPage("Docs/MigratingFromGRPCSwift.md")
        #expect(try page.shortcomings(allowing: ["chat_example"]) == [])
    }

    private func makeClient(of servers: [Endpoint]) -> Chat_Chat.Client {
        var configuration = SocketClient.Configuration(servers: servers)
        configuration.socket.tls = ClientTLS()
        configuration.hello = HelloPolicy()
        let client = SocketClient(configuration: configuration)
        client.connect()
        let chat = Chat_Chat.Client(client)
        return chat
    }

    @Test func callsAndPushesAreTyped() async throws {
        var router = Router()
        router.register(ChatService())
        let server = SocketServer(configuration: .init(), router: router)
        try await server.start()
        let client = SocketClient.connecting(to: server.addresses[0])
        let notes = client.pushes(Chat_Note.self)
        let caller = Caller()
        var message = Chat_Message()
        message.text = "hello"
        await caller.send(message, by: Chat_Chat.Client(client))
        let note = try await first(of: notes, "a note")
        #expect(note.message.text == "hello")

        var refusing = Chat_Chat.MockClient()
        refusing.onSend = { _ in throw SocketError(.noPermission, message: "not you") }
        await caller.send(message, by: refusing)
        #expect(await caller.hasLoggedIn)
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func clientOfAnAppHasTLSAndHello() {
        let chat = self.makeClient(of: [Endpoint(host: "127.0.0.1", port: 1)])
        chat.client.finishTasksAndInvalidate()
    }

    /// Every code of HHSocket in the table exists.
    @Test func codesOfTheTableExist() throws {
        let page = try DocumentationPage("Docs/MigratingFromGRPCSwift.md").text
        let source = try DocumentationPage("Sources/HHSocketLink/SocketError.swift").text
        let section = try #require(
            page.components(separatedBy: "\n### Codes\n").last?.components(separatedBy: "\n## ")[0]
        )
        var count = 0
        for row in section.split(separator: "\n").dropFirst(2) where row.hasPrefix("| `") {
            for name in row.split(separator: "|")[1].matches(of: /`([a-zA-Z]+)`/).map(\.output.1) {
                count += 1
                #expect(source.contains("public static let \(name) = "), "\(name)")
            }
        }
        #expect(count > 15)
    }
}
