// SPDX-License-Identifier: Apache-2.0
import GeneratedSamples
import HHSocketRPC
import HHSocketServer
import HHSocketTesting
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

    func compose(
        _ requests: RequestMessages<Chat_Typing>,
        to responses: MessageWriter<Chat_Typing>,
        context: ServerContext
    ) async throws {
        for try await typing in requests { try await responses.send(typing) }
    }
}

/// Counts pieces.
private struct Transfers: Files_Transfer.ServiceProtocol {
    func begin(_ request: Files_File, context: ServerContext) async throws -> Files_Upload { Files_Upload() }
    func send(_ request: Files_Piece, context: ServerContext) async throws -> Files_Upload { Files_Upload() }
    func fetch(_ request: Files_PieceRequest, context: ServerContext) async throws -> Files_Piece { Files_Piece() }

    func sendAll(_ requests: RequestMessages<Files_Piece>, context: ServerContext) async throws -> Files_Upload {
        var upload = Files_Upload()
        for try await _ in requests { upload.offset += 1 }
        return upload
    }
}

/// Has one entry for each key.
private struct Store: Kv_Store.ServiceProtocol {
    func get(_ request: Kv_GetRequest, context: ServerContext) async throws -> Kv_GetReply { Kv_GetReply() }
    func put(_ request: Kv_Entry, context: ServerContext) async throws -> Kv_PutReply { Kv_PutReply() }
    func delete(_ request: Kv_DeleteRequest, context: ServerContext) async throws -> Kv_DeleteReply { Kv_DeleteReply() }

    func scan(
        _ request: Kv_GetRequest,
        to responses: MessageWriter<Kv_Entry>,
        context: ServerContext
    ) async throws {
        for key in request.keys { try await responses.send(.with { $0.key = "\(key)ann" }) }
    }
}

/// The examples of `Docs/Codegen.md`, word for word, one of which is that of `README.md` too.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CodegenGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(
            try DocumentationPage("Docs/Codegen.md").shortcomings(allowing: ["chat_example", "GeneratedSamples"]) == []
        )
    }

    /// The page's `.proto` and its line for `protoc`, which generate all types of its examples.
    @Test(
        .enabled(
            if: Command.installed("protoc") != nil,
            "There is no protoc: the .proto of Docs/Codegen.md is NOT TESTED here. Install the package protobuf-compiler."
        )
    )
    func theProtoOfThePageMakesWhatItsExamplesUse() async throws {
        let page = try DocumentationPage("Docs/Codegen.md", section: "Numbers and options in a .proto")
        let whole = try DocumentationPage("Docs/Codegen.md")
        let folder = try TemporaryFolder()
        _ = try folder.write(try #require(page.blocks("proto").first), to: "chat.proto")
        let line = try #require(whole.blocks("").first { $0.hasPrefix("protoc ") })
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
        let names = Set(whole.blocks().flatMap { $0.matches(of: /Chat_[A-Z][A-Za-z]*/).map { String($0.output) } })
        #expect(names.count >= 5)
        for name in names { #expect(outcome.text.contains(" \(name)"), "\(name) is not made") }
        for method in ["send", "recall", "compose"] { #expect(outcome.text.contains("func \(method)(")) }
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

    @Test func optionsOfCalls() async throws {
        var router = Router()
        router.register(ChatRoom())
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()
        let connection = SocketClient(configuration: .init(servers: server.addresses))
        connection.connect()
        let (chat, message) = (Chat_Chat.Client(connection), self.message("hello"))

        let answer = try await chat.client.response(to: Chat_Chat.Methods.send, message)
        print(answer.message.number, answer.response.metadata, answer.response.endpoint)

        var options = CallOptions()
        options.isIdempotent = false
        let history = try await chat.recall(Google_Protobuf_Empty(), options: options)

        #expect(answer.message.number == 1)
        #expect(history == Chat_History())
        #expect(Chat_Chat.Methods.recall.idempotency == .noSideEffects)
        await connection.close()
        await server.shutdown(gracePeriod: .zero)
    }

    @Test func clientAndServer() async throws {
        let (message, note) = (self.message("hello"), self.note("news"))
        let port = 0

        var router = Router()
        router.register(ChatRoom())
        let server = SocketServer(configuration: .init(port: port), router: router)
        try await server.start()

        try await server.push(note)
        try await server.push(note, to: "ann")
        for session in server.sessions(of: "ann") { try await session.push(note) }

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
        // A subscription takes effect on the connection's thread, where a push may be handled first.
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

    @Test func streams() async throws {
        let typing = self.typing
        var router = Router()
        router.register(ChatRoom())
        router.register(Transfers())
        router.register(Store())
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()
        let servers = server.addresses

        var configuration = SocketClient.Configuration(servers: servers)
        configuration.streams = StreamPolicy()
        let connection = SocketClient(configuration: configuration)
        connection.connect()
        let chat = Chat_Chat.Client(connection)

        let stream = try await chat.compose()
        try await stream.send(typing)
        stream.finish()
        for try await other in stream { print("\(other.author) is typing") }

        let transfer = Files_Transfer.Client(connection)
        var piece = Files_Piece()
        piece.id = 7
        let pieces = [piece, piece]
        let receipt = try await transfer.sendAll { stream in
            for piece in pieces { try await stream.send(piece) }
        }
        #expect(receipt.offset == 2)

        let store = Kv_Store.Client(connection)
        let entries = try await store.scan(.with { $0.keys = ["user/"] })
        for try await entry in entries { print(entry.key) }
        #expect(try await entries.response.status == .ok)
        await connection.close()
        await server.shutdown(gracePeriod: .zero)
    }

    private var typing: Chat_Typing {
        var typing = Chat_Typing()
        typing.author = "ann"
        typing.isTyping = true
        return typing
    }

    @Test func mockedStreams() async throws {
        let typing = self.typing
        var mock = Chat_Chat.MockClient()
        let (composing, far) = MessageStream<Chat_Typing, Chat_Typing>.mock()
        mock.onCompose = { composing }
        far.respond(typing)
        far.finish()
        var heard: [Chat_Typing] = []
        for try await other in try await mock.compose() { heard.append(other) }
        #expect(heard == [typing])

        let (writer, sent) = MessageWriter<Chat_Typing>.collecting()
        try await writer.send(typing)
        #expect(sent.messages == [typing])
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

        mock.onSend { message, options in
            guard options.idempotencyKey != nil else { throw SocketError(.invalidArgument, message: "no key") }
            return Chat_Receipt()
        }
        let checking: any Chat_Chat.ClientProtocol = mock
        let error = await #expect(throws: SocketError.self) { try await checking.send(self.message("hello")) }
        #expect(error?.message == "no key")
        var options = CallOptions()
        options.idempotencyKey = "1"
        #expect(try await checking.send(self.message("hello"), options: options) == Chat_Receipt())
    }

    @Test func timeoutOfAMock() async throws {
        let message = self.message("hello")
        let clock = VirtualClock()
        var mock = Chat_Chat.MockClient(clock: clock)
        mock.onSend = { message in
            try await clock.sleep(for: .seconds(60))
            return Chat_Receipt()
        }
        let call = Task { [mock] in try await mock.send(message, options: .init(timeout: .seconds(3))) }
        try await clock.waitForSleepers(2)  // the handler, and the timeout
        clock.advance(by: .seconds(3))
        let error = await #expect(throws: SocketError.self) { try await call.value }
        #expect(error?.code == .timeout)
    }
}
