// SPDX-License-Identifier: Apache-2.0
public import CWeather
import GeneratedSamples
public import HHSocketProtobufC
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

extension Weather__Report: ProtobufCStructure {
    public static func initialize(_ report: UnsafeMutablePointer<Self>?) { weather__report__init(report) }
}

extension Weather__Receipt: ProtobufCStructure {
    public static func initialize(_ receipt: UnsafeMutablePointer<Self>?) { weather__receipt__init(receipt) }
}

let measured = MethodDescriptor<CMessage<Weather__Report>, CMessage<Weather__Receipt>>(
    "weather.Weather/Measured",
    type: 301,
    kind: .unary
)

/// The examples of `Docs/Codegen.md`, word for word, one of which is that of `README.md` too.
@Suite(.tags(.io), .timeLimit(.minutes(5))) struct CodegenGuideTests {
    @Test func everyExampleOfThePageIsInThisFile() throws {
        #expect(
            try DocumentationPage("Docs/Codegen.md").shortcomings(allowing: ["chat_example", "GeneratedSamples"]) == []
        )
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

    @Test func limits() throws {
        var message = self.message("hello")
        let (bytes, more) = try (self.note("news").serializedBytes(), self.message("again").serializedBytes())

        let note = try Chat_Note(serializedBytes: bytes, limits: MessageLimits(depth: 10, memory: 1 << 20))
        try message.merge(serializedBytes: more)

        #expect(note == self.note("news"))
        #expect(message.text == "again")
        #expect(throws: MessageError.self) { try Chat_Note(serializedBytes: bytes, limits: MessageLimits(depth: 1)) }
    }

    @Test func anyAndStruct() throws {
        let note = Chat_Note.with { $0.number = 7 }
        let any = try Google_Protobuf_Any(message: note)
        let same = try Chat_Note(unpackingAny: any)

        var settings: Google_Protobuf_Struct = ["volume": 0.5, "languages": ["de", "en"]]
        settings["isMuted"] = true

        #expect(same == note)
        #expect(try settings.jsonString() == #"{"isMuted":true,"languages":["de","en"],"volume":0.5}"#)
    }

    @Test func extensions() throws {
        var animal = Extended_Animal()
        animal.heart = Extended_Animal.Heart()

        animal.Extended_age = 7
        if animal.hasExtended_age { animal.clearExtended_age() }

        #expect(!animal.hasExtended_age)
        animal.Extended_age = 8

        var options = MessageJSON.EncodingOptions()
        options.types = MessageTypes(extensions: [Extended_Extensions_age])
        let text = try animal.jsonString(options: options)

        #expect(text == #"{"heart":{},"[extended.age]":8}"#)
    }

    @Test func json() throws {
        let note = self.note("news")

        let text = try note.jsonString()
        let same = try Chat_Note(jsonString: text)

        #expect(same == note)
        #expect(text == #"{"message":{"author":"ann","text":"news"}}"#)
    }

    @Test func jsonWithOptions() throws {
        let text = #"{"message": {"author": "ann", "text": "news", "color": 3}}"#

        var options = MessageJSON.DecodingOptions()
        options.ignoreUnknownFields = true
        options.types = MessageTypes([Chat_Note.self])
        let note = try Chat_Note(jsonString: text, options: options)

        #expect(note == self.note("news"))
        #expect {
            try Chat_Note(jsonString: #"{"message":{"text":1}}"#)
        } throws: { error in
            "\(error)" == "$.message.text: expected a string, found a number"
        }
    }

    @Test func structures() async throws {
        var router = Router()
        router.handle(measured) { report, context in
            var receipt = Weather__Receipt()
            weather__receipt__init(&receipt)
            receipt.number = try report.withStructure { UInt64($0.pointee.temperature) }
            return try CMessage(packing: &receipt)
        }
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()
        let client = SocketClient(configuration: .init(servers: server.addresses))
        client.connect()
        var report = Weather__Report()
        weather__report__init(&report)
        report.temperature = 21

        let receipt = try await client.call(measured, CMessage(packing: &report))
        try receipt.withStructure { receipt in print(receipt.pointee.number) }

        #expect(try receipt.withStructure { $0.pointee.number } == 21)
        await client.close()
        await server.shutdown()
    }

    @Test func conveniences() throws {
        let news = Chat_Note.with {
            $0.number = 7
            $0.message.text = "hello"
        }
        let data = try news.serializedData()
        let buffer = try news.serializedBuffer()
        let fromData = try Chat_Note(serializedData: data)
        let fromBuffer = try Chat_Note(serializedBytes: buffer)

        #expect(fromData == news && fromBuffer == news)
        #expect(news.number == 7 && news.message.text == "hello")
    }

    @Test func optionsOfCalls() async throws {
        var router = Router()
        router.messageLimits = MessageLimits(depth: 10, memory: 1 << 20)
        router.register(ChatRoom())
        let server = SocketServer(configuration: .init(port: 0), router: router)
        try await server.start()
        var configuration = SocketClient.Configuration(servers: server.addresses)
        configuration.messageLimits = MessageLimits(depth: 10, memory: 1 << 20)
        let connection = SocketClient(configuration: configuration)
        connection.connect()
        let (chat, message) = (Chat_Chat.Client(connection), self.message("hello"))

        let answer = try await chat.client.response(to: Chat_Chat.Methods.send, message)
        print(answer.message.number, answer.metadata, answer.endpoint)

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

    @Test func streams() async throws {
        let typing = self.typing
        var router = Router()
        router.register(ChatRoom())
        router.register(Transfers())
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
    }
}
