import HHSocketRPC
import HHSocketServer
import TestSupport
import Testing

@testable import chat_example

struct ChatRoom: Chat_Chat.ServiceProtocol {
    func send(_ request: Chat_Message, context: ServerContext) async throws -> Chat_Receipt {
        guard !request.text.isEmpty else { throw StatusError(.illegalLength) }
        var receipt = Chat_Receipt()
        receipt.number = 1
        return receipt
    }

    func recall(_ request: Google_Protobuf_Empty, context: ServerContext) async throws -> Chat_History {
        Chat_History()
    }
}

/// The examples of `Docs/Codegen.md`, word for word, one of which is that of `README.md` too.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CodegenGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(try DocumentationPage("Docs/Codegen.md").shortcomings(allowing: ["chat_example"]) == [])
    }

    /// The page's `.proto` and its line for `protoc`, which make all that its examples use.
    @Test(
        .enabled(
            if: Command.installed("protoc") != nil,
            "There is no protoc: the .proto of Docs/Codegen.md is NOT TESTED here. Install the package protobuf-compiler."
        )
    )
    func theProtoOfThePageMakesWhatItsExamplesUse() async throws {
        let page = try DocumentationPage("Docs/Codegen.md")
        let folder = try TemporaryFolder()
        _ = try folder.write(try #require(page.blocks("proto").first), to: "chat.proto")
        let line = try #require(page.blocks("").first { $0.hasPrefix("protoc ") })
        let shell = try #require(Command.installed("sh", or: ["/bin"]))
        let script = """
            cd '\(folder.path)'
            mkdir -p .build/debug Sources/Chat
            ln -s '\(Command.executable("protoc-gen-hhsocket").path)' .build/debug/
            ln -s '\(packageFolder.path)/Protos' Protos
            \(line)
            cat Sources/Chat/*.swift
            """
        let outcome = try await Command.run(["-ec", script], of: shell)
        #expect(outcome.exitCode == 0, "\(outcome.errors)")
        let names = Set(page.blocks().flatMap { $0.matches(of: /Chat_[A-Z][A-Za-z]*/).map { String($0.output) } })
        #expect(names.count >= 5)
        for name in names { #expect(outcome.text.contains(" \(name)"), "\(name) is not made") }
        for method in ["send", "recall"] { #expect(outcome.text.contains("func \(method)(")) }
    }

    private func message(_ text: String) -> Chat_Message {
        var message = Chat_Message()
        message.author = "ann"
        message.text = text
        return message
    }

    private func note(_ text: String) -> Chat_Note {
        var note = Chat_Note()
        note.message = self.message(text)
        return note
    }

    @Test func clientAndServer() async throws {
        let (message, note) = (self.message("hello"), self.note("news"))
        let port = 0

        var router = Router()
        router.register(ChatRoom())
        let server = SocketServer(configuration: .init(port: port), router: router)
        try await server.start()
        try await server.push(note)

        let servers = server.addresses
        let connection = SocketClient(configuration: .init(servers: servers))
        connection.connect()
        let chat = Chat_Chat.Client(connection)
        let receipt = try await chat.send(message, options: .init(timeout: .seconds(3)))

        #expect(receipt.number == 1)
        let refused = await #expect(throws: SocketError.self) { try await chat.send(self.message("")) }
        #expect(refused?.code == .illegalLength)

        let client = connection
        let reader = Task { try await Self.talk(client, message) }
        // A subscription counts once the connection's thread has come to it, which a push may be ahead of.
        let newsroom = Task {
            while !Task.isCancelled {
                try await server.push(note)
                try await Task.sleep(for: .milliseconds(10))
            }
        }
        _ = try await first(of: client.pushes(ofType: 2001), "the news")
        newsroom.cancel()
        reader.cancel()
        await connection.close()
        await server.shutdown(gracePeriod: .zero)
    }

    private static func talk(_ client: SocketClient, _ message: Chat_Message) async throws {
        let chat = Chat_Chat.Client(client)
        let receipt = try await chat.send(message)
        print("sent as number \(receipt.number)")
        for await note in chat.pushes(Chat_Note.self) {
            print("\(note.message.author): \(note.message.text)")
        }
    }

    @Test func mock() async throws {
        let note = self.note("news")
        var mock = Chat_Chat.MockClient()
        mock.onSend = { message in Chat_Receipt() }
        let notes = mock.pushes(Chat_Note.self)
        mock.pushSource.send(note)

        let client: any Chat_Chat.ClientProtocol = mock
        #expect(try await client.send(self.message("hello")) == Chat_Receipt())
        #expect(try await first(of: notes, "the note") == note)
    }
}
